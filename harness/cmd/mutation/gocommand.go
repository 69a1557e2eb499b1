package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Names of environment variables.
const (
	realGo   = "MUTATION_GO"      // the path of the go command
	profile  = "MUTATION_PROFILE" // lines of the coverage profile, with files' names without the directory: what is mutated
	deadline = "MUTATION_UNTIL"   // seconds since 1970, after which no mutant is begun; "": no end
	lateFile = "MUTATION_LATE"    // the path of a file with a line for each mutant that came later
)

var testArgs = []string{"test", "-short", "-vet=off", "-count=1", "-failfast", "-ldflags=-s -w"} // a smaller binary links faster

// goCommand is the go command that Gremlins runs. It differs from the real one in four ways, which Gremlins has no flags
// for:
//
//   - In the coverage profile, all lines are covered that are to be mutated, so that Gremlins runs every mutant of them.
//   - The tests are always those of the package that Gremlins mutates. Gremlins itself takes a package main for the one
//     in the module's root.
//   - If the package does not compile, the exit status is the one by which Gremlins knows that. The go command's own is
//     the same as that of a test that fails.
//   - After the deadline, it says the same of a package that it does not test, and notes that.
//
// It returns an exit status.
func goCommand(args []string) int {
	if args[0] != "test" {
		return 0 // "go mod download"; the go command downloads what it needs
	}
	if at := slices.Index(args, "-coverprofile"); at >= 0 {
		dir := strings.TrimSuffix(args[len(args)-1], "/...")
		if err := writeProfile(args[at+1], dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		output, status := runGo(slices.Concat(testArgs, []string{dir})...)
		fmt.Print(output) // Gremlins shows it if the tests fail
		return status
	}
	if late, err := noteIfLate(); late || err != nil {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 2
	}
	output, status := runGo(slices.Concat(testArgs, args[1:len(args)-1], []string{"."})...)
	if strings.Contains(output, "[build failed]") {
		return 2
	}
	return status
}

// runGo runs the real go command and returns its output and exit status.
func runGo(args ...string) (output string, status int) {
	cmd := exec.Command(os.Getenv(realGo), args...)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		return err.Error(), 1
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// noteIfLate reports whether the deadline has passed, and if so, notes it.
func noteIfLate() (bool, error) {
	text := os.Getenv(deadline)
	if text == "" {
		return false, nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return false, fmt.Errorf("%s: %w", deadline, err)
	}
	if time.Now().Unix() < seconds {
		return false, nil
	}
	notes, err := os.OpenFile(os.Getenv(lateFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return true, err
	}
	_, err = notes.WriteString("late\n")
	return true, errors.Join(err, notes.Close())
}

// writeProfile writes a coverage profile of a package. Gremlins looks for the files' names with the directory as it has given it.
func writeProfile(path, dir string) error {
	var text strings.Builder
	text.WriteString("mode: set\n")
	for line := range strings.Lines(os.Getenv(profile)) {
		text.WriteString(filepath.ToSlash(filepath.Join(dir, line)))
	}
	return os.WriteFile(path, []byte(text.String()), 0o600)
}

// lineRange are lines of a file, the first and the last, counted from 1.
type lineRange [2]int

var everyLine = lineRange{1, 1_000_000}

// profileLine is the line of a coverage profile that says that tests run these lines.
func profileLine(file string, lines lineRange) string {
	return fmt.Sprintf("%s:%d.1,%d.1000000 1 1\n", file, lines[0], lines[1])
}
