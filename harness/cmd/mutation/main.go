// Command mutation measures the tests of a Go module with Gremlins (github.com/go-gremlins/gremlins), which changes one
// operator of the code at a time and runs the tests of the package with it.
//
//   - Each changed operator is a mutant. If the tests fail, or do not end, the mutant is caught; otherwise it survived.
//   - A survivor for which no test is worth writing is explained in a file. Any other one is an error, and so is an
//     explanation without its survivor.
//   - Every mutant is run, whatever the coverage profile says. A profile knows neither the expressions after "case" nor
//     what a test runs as a process of its own.
//   - The tests run in an environment in which even a broken program finds no cluster of the user.
//
// Generated files are left out, as are packages for tests, whose names end in "test".
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"example.com/controllers/harness/proc"
)

func main() {
	if filepath.Base(os.Args[0]) == "go" {
		os.Exit(goCommand(os.Args[1:]))
	}
	proc.Main("mutation", run)
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("mutation", flag.ContinueOnError)
	gremlins := flags.String("gremlins", "", "`path` of Gremlins (required)")
	explained := flags.String("explained", "", "`path` of the file that explains survivors (required)")
	only := flags.String("only", "", "`regexp` of files, relative to the module; others are not mutated")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 || *gremlins == "" || *explained == "" {
		return fmt.Errorf("usage: mutation --gremlins PATH --explained PATH [--only REGEXP] MODULE-DIRECTORY")
	}
	which, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("--only: %w", err)
	}
	text, err := os.ReadFile(*explained)
	if err != nil {
		return err
	}
	explanations, err := parseExplanations(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", *explained, err)
	}
	module, err := filepath.Abs(flags.Arg(0))
	if err != nil {
		return err
	}
	mutants, err := runGremlins(ctx, *gremlins, module, which)
	if err != nil {
		return err
	}
	explanations = slices.DeleteFunc(explanations, func(e explanation) bool { return !which.MatchString(e.mutant.file) })
	return report(os.Stdout, *explained, mutants, explanations)
}

// report prints how many mutants there were, and the survivors that are not explained. It returns an error if there is
// one, or an explanation without its survivor.
func report(out io.Writer, explained string, mutants []mutant, explanations []explanation) error {
	count := map[status]int{}
	for _, m := range mutants {
		count[m.status]++
	}
	unexplained, stale := match(mutants, explanations)
	fmt.Fprintf(out, "\n%d mutants: %d caught, and %d that made the tests hang; %d survived, %d of them explained in %s. %d more did not compile.\n",
		len(mutants)-count[notViable], count[killed], count[timedOut], count[lived], count[lived]-len(unexplained), explained, count[notViable])
	catchable := len(mutants) - count[notViable]
	for _, e := range explanations {
		if e.equivalent && !slices.Contains(stale, e) {
			catchable--
		}
	}
	if catchable > 0 {
		fmt.Fprintf(out, "That is %d %% of those that are not equivalent to the code.\n", 100*(count[killed]+count[timedOut])/catchable)
	}
	if len(unexplained) > 0 {
		fmt.Fprintf(out, "\nSurvived; write a test that fails, or explain in %s why none is needed:\n", explained)
	}
	for _, m := range unexplained {
		fmt.Fprintf(out, "  line %d: %s | WHY\n", m.number, m.key)
	}
	if len(stale) > 0 {
		fmt.Fprintf(out, "\nExplained in %s, but no such mutant survived; remove:\n", explained)
	}
	for _, e := range stale {
		fmt.Fprintf(out, "  line %d: %s\n", e.number, e.mutant)
	}
	if len(unexplained)+len(stale) > 0 {
		return fmt.Errorf("%d survivors without an explanation, %d explanations without a survivor", len(unexplained), len(stale))
	}
	return nil
}
