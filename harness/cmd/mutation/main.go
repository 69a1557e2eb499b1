// Command mutation measures the tests of a Go module with Gremlins (github.com/go-gremlins/gremlins), which changes one
// operator of the code at a time and runs the tests of the package with it.
//
//   - Each changed operator is a mutant. If the tests fail, or do not end, the mutant is caught; otherwise it survived.
//   - A survivor for which no test is worth writing is explained in a file. Any other one is an error, and so is an
//     explanation without its survivor.
//   - Every mutant is run, whatever the coverage profile says. A profile knows neither the expressions after "case" nor
//     what a test runs as a process of its own.
//   - The tests run in an environment in which even a broken program finds no cluster of the user.
//   - With --since, only lines that were changed since a commit are mutated. Gremlins' own --diff overlooks the later ones of
//     several changes in one hunk.
//   - With --budget, no mutant is begun after that time. How many were not tried is said, and is no error.
//
// Generated files are left out, as are packages for tests, whose names end in "test".
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"example.com/controllers/harness/proc"
)

func main() {
	if filepath.Base(os.Args[0]) == "go" {
		os.Exit(goCommand(os.Args[1:]))
	}
	proc.Main("mutation", func(ctx context.Context, args []string) error { return run(ctx, os.Stdout, args) })
}

const usage = "usage: mutation --gremlins PATH [--only REGEXP] [--since COMMIT] [--budget DURATION] MODULE-DIRECTORIES"

func run(ctx context.Context, out io.Writer, args []string) error {
	flags := flag.NewFlagSet("mutation", flag.ContinueOnError)
	gremlins := flags.String("gremlins", "", "`path` of Gremlins (required)")
	only := flags.String("only", "", "`regexp` of files, relative to the module; others are not mutated")
	since := flags.String("since", "", "`commit`; only lines that are not as they were then are mutated")
	budget := flags.Duration("budget", 0, "no mutant is begun after this `duration`; 0: all of them are run")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 || *gremlins == "" {
		return errors.New(usage)
	}
	if *budget < 0 {
		return fmt.Errorf("--budget is %s, and has to be positive", *budget)
	}
	which, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("--only: %w", err)
	}
	if *since != "" {
		if _, err := git(ctx, flags.Arg(0), "rev-parse", "--verify", "--quiet", *since+"^{commit}"); err != nil {
			return fmt.Errorf("--since %s: %s is in no Git repository that has such a commit", *since, flags.Arg(0))
		}
	}
	g := runner{gremlins: *gremlins, only: which, since: *since}
	if *budget != 0 {
		g.until = time.Now().Add(*budget)
	}
	var all error
	for _, dir := range flags.Args() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		all = errors.Join(all, mutate(ctx, out, g, dir))
	}
	return all
}

// mutate runs the mutants of one module and reports about them.
func mutate(ctx context.Context, out io.Writer, g runner, dir string) error {
	module, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	explained, text, err := readExplanations(dir)
	if err != nil {
		return err
	}
	explanations, err := parseExplanations(text)
	if err != nil {
		return fmt.Errorf("%s: %w", explained, err)
	}
	found, err := g.run(ctx, module)
	if err != nil {
		return err
	}
	if g.since != "" && len(found.mutants) == 0 && !found.isPart() && len(found.unfit) == 0 {
		fmt.Fprintf(out, "%s: no operator in what has changed since %s\n", dir, g.since)
		return nil
	}
	if g.since != "" || found.isPart() { // the others may well survive, but perhaps they were not run
		explanations = slices.DeleteFunc(explanations, func(e explanation) bool { return !e.explainsOneOf(found.mutants) })
	}
	explanations = slices.DeleteFunc(explanations, func(e explanation) bool { return !g.only.MatchString(e.mutant.file) })
	return report(out, explained, found, explanations)
}

// readExplanations reads a module's file of explanations: for a lesson, it is beside the tests of the lesson.
func readExplanations(dir string) (path, text string, err error) {
	path = filepath.Join(dir, "survivors.txt")
	if _, err := os.Stat(filepath.Join(dir, "test")); err == nil {
		path = filepath.Join(dir, "test", "survivors.txt")
	}
	content, err := os.ReadFile(path)
	return path, string(content), err
}

// report prints how many mutants there were, and the survivors that are not explained. It returns an error if there is
// one, or an explanation without its survivor.
func report(out io.Writer, explained string, found outcome, explanations []explanation) error {
	mutants := found.mutants
	count := map[status]int{}
	for _, m := range mutants {
		count[m.status]++
	}
	unexplained, stale := match(mutants, explanations)
	fmt.Fprintf(out, "\n%d mutants: %d caught, and %d that made the tests hang; %d survived, %d of them explained in %s. %d more did not compile.\n",
		len(mutants)-count[notViable], count[killed], count[timedOut], count[lived], count[lived]-len(unexplained), explained, count[notViable])
	if found.isPart() {
		fmt.Fprintf(out, "The time was up before %d more, and before %d whole packages; a larger --budget runs them.\n", found.notTried, found.notBegun)
	}
	if len(found.unfit) > 0 {
		fmt.Fprintf(out, "Not tried, because tests fail where mutants run: %s.\n", strings.Join(found.unfit, ", "))
	}
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
