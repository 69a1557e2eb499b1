package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// realGo is the name of the environment variable with the path of the go command.
const realGo = "MUTATION_GO"

// goCommand is the go command that Gremlins runs. It differs from the real one in three ways, which Gremlins has no flags
// for:
//
//   - In the coverage profile, all lines are covered, so that Gremlins runs every mutant.
//   - The tests are always those of the package that Gremlins mutates. Gremlins itself takes a package main for the one
//     in the module's root.
//   - If the package does not compile, the exit status is the one by which Gremlins knows that. The go command's own is
//     the same as that of a test that fails.
//
// It returns an exit status.
func goCommand(args []string) int {
	if args[0] != "test" {
		return 0 // "go mod download"; the go command downloads what it needs
	}
	test := []string{"test", "-short", "-vet=off", "-count=1", "-failfast", "-ldflags=-s -w"} // a smaller binary links faster
	if at := slices.Index(args, "-coverprofile"); at >= 0 {
		dir := strings.TrimSuffix(args[len(args)-1], "/...")
		if err := writeProfile(args[at+1], dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		output, status := runGo(append(test, dir)...)
		fmt.Print(output) // Gremlins shows it if the tests fail
		return status
	}
	output, status := runGo(slices.Concat(test, args[1:len(args)-1], []string{"."})...)
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

// writeProfile writes a coverage profile in which all lines of a package are covered.
func writeProfile(path, dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	var profile strings.Builder
	profile.WriteString("mode: set\n")
	for _, file := range files {
		fmt.Fprintf(&profile, "%s:1.1,1000000.1 1 1\n", filepath.ToSlash(file))
	}
	return os.WriteFile(path, []byte(profile.String()), 0o600)
}
