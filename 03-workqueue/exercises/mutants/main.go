// Program mutants puts bugs into lesson 3's controller, one at a time, and looks whether torture finds them
// and names the right cause. The bugs are the patches beside it. Each says what is wrong, when that shows, and
// which verdicts are right.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/proc"
	"example.com/controllers/harness/torture"
)

func main() {
	guard.Main()
	proc.Main("mutants", run)
}

// mutant is a bug.
type mutant struct {
	name, patch string // patch is its path
	bug         string // what is wrong
	expect      []torture.Verdict
}

// result is what came of one.
type result struct {
	mutant
	verdict torture.Verdict // of the first failure; "" if nothing was found
	why     string
	kind    string // of the plan that found it
	took    time.Duration

	replays, same int // how often that plan was run again, and how often the verdict was the same
}

func (r result) caught() bool { return slices.Contains(r.expect, r.verdict) }

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	only := flags.String("only", "", "`names` of mutants with commas between them; all without it")
	atOnce := flags.Int("at-once", 3, "how `many` mutants are put to torture at a time")
	replays := flags.Int("replay", 0, "how `many` times the plan that finds a mutant is run again, to see whether the verdict is the same")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *atOnce < 1 || *replays < 0 || flags.NArg() > 0 {
		return errors.New("--at-once must be 1 or more, --replay 0 or more, and there are no arguments")
	}
	root, err := cluster.Root(ctx)
	if err != nil {
		return err
	}
	lesson := filepath.Join(root, "03-workqueue")
	mutants, err := readAll(filepath.Join(lesson, "exercises", "mutants"), *only)
	if err != nil {
		return err
	}
	scenario, err := torture.Read(filepath.Join(lesson, "exercises", "torture", "scenario.yaml"))
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "workshop-mutants-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer os.RemoveAll(scratch)
	reference, err := build(ctx, lesson, scratch, mutant{name: "none"})
	if err != nil {
		return err
	}
	ring, err := torture.Open(ctx, 6, os.Stderr)
	if err != nil {
		return err
	}
	results, err := judgeAll(ctx, *atOnce, mutants, func(ctx context.Context, m mutant) (result, error) {
		program, err := build(ctx, lesson, scratch, m)
		if err != nil {
			return result{}, err
		}
		return judge(ctx, ring, scenario, reference, program, m, *replays)
	})
	if err := errors.Join(err, ring.Close()); err != nil {
		return err
	}
	return report(os.Stdout, results)
}

// readAll reads the patches of a directory.
func readAll(dir, only string) ([]mutant, error) {
	dir, err := filepath.Abs(dir) // a patch is applied elsewhere
	if err != nil {
		return nil, err
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	for name := range strings.SplitSeq(only, ",") {
		if name != "" {
			wanted[name] = true
		}
	}
	var mutants []mutant
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".patch")
		if only != "" && !wanted[name] {
			continue
		}
		delete(wanted, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		m, err := read(name, string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		m.patch = path
		mutants = append(mutants, m)
	}
	for name := range wanted {
		return nil, fmt.Errorf("there is no mutant %q in %s", name, dir)
	}
	if len(mutants) == 0 {
		return nil, fmt.Errorf("there are no mutants in %s", dir)
	}
	return mutants, nil
}

// verdicts are what a patch may expect.
var verdicts = []torture.Verdict{torture.Died, torture.NoStop, torture.Lost, torture.Different, torture.RuleBroken,
	torture.TooMuch, torture.TooLittle, torture.NoRest}

// read reads the head of a patch.
func read(name, text string) (mutant, error) {
	m := mutant{name: name}
	head, _, ok := strings.Cut(text, "\n\n--- ")
	if !ok {
		return m, errors.New("a patch has a head, an empty line, and then the difference")
	}
	for line := range strings.SplitSeq(head, "\n") {
		switch key, value, _ := strings.Cut(line, ": "); key {
		case "Bug":
			m.bug = value
		case "Expect":
			for word := range strings.SplitSeq(value, ", ") {
				if !slices.Contains(verdicts, torture.Verdict(word)) {
					return m, fmt.Errorf("there is no verdict %q", word)
				}
				m.expect = append(m.expect, torture.Verdict(word))
			}
		}
	}
	if m.bug == "" || len(m.expect) == 0 {
		return m, errors.New("its head must have a line that begins with \"Bug:\", and one with \"Expect:\"")
	}
	return m, nil
}

// build builds the controller with a bug in it, and returns the path of the program.
func build(ctx context.Context, lesson, scratch string, m mutant) (string, error) {
	dir := filepath.Join(scratch, m.name)
	for _, part := range []string{".", "cmd/workqueue"} {
		if err := os.MkdirAll(filepath.Join(dir, part), 0o700); err != nil {
			return "", err
		}
		files, err := filepath.Glob(filepath.Join(lesson, part, "*"))
		if err != nil {
			return "", err
		}
		for _, file := range files {
			isSource := strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go")
			if base := filepath.Base(file); !isSource && base != "go.mod" && base != "go.sum" {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			if err := os.WriteFile(filepath.Join(dir, part, filepath.Base(file)), text, 0o600); err != nil {
				return "", err
			}
		}
	}
	commands := [][]string{{"go", "build", "-o", "controller", "./cmd/workqueue"}}
	if m.patch != "" {
		commands = append([][]string{{"git", "apply", m.patch}}, commands...)
	}
	for _, words := range commands {
		cmd := exec.CommandContext(ctx, words[0], words[1:]...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GIT_CEILING_DIRECTORIES="+scratch)
		proc.Group(cmd)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("mutant %s: %s: %w\n%s", m.name, strings.Join(words, " "), err, out)
		}
	}
	return filepath.Join(dir, "controller"), nil
}

// command runs a controller in the way of the scenario.
func command(scenario *torture.Scenario, program string) []string {
	return append([]string{program}, scenario.Controller.Args...)
}

// mostPlans is how many plans a mutant has to survive. It is some of each kind.
const mostPlans = 120

// judge puts a mutant to torture until something is found, and runs what found it again.
func judge(ctx context.Context, ring *torture.Ring, scenario *torture.Scenario, reference, program string, m mutant, replays int) (result, error) {
	begin := time.Now()
	options := torture.Options{
		Scenario: scenario, Command: command(scenario, program), Reference: command(scenario, reference), FirstOnly: true,
		Most: mostPlans, Parallel: 6, Progress: io.Discard,
	}
	found, err := ring.Run(ctx, options)
	if err != nil {
		return result{}, fmt.Errorf("mutant %s: %w", m.name, err)
	}
	r := result{mutant: m, took: time.Since(begin)}
	for _, failure := range found.Failures() {
		if failure.Verdict != torture.NotPossible {
			r.verdict, r.why, r.kind = failure.Verdict, failure.Why, failure.Plan.Kind
			options.Faults = failure.Plan.Faults
			break
		}
	}
	if replays == 0 || len(options.Faults) == 0 { // it was found without any
		return r, nil
	}
	options.FirstOnly, options.Most, options.Times = false, 0, replays
	again, err := ring.Run(ctx, options)
	if err != nil {
		return result{}, fmt.Errorf("mutant %s, again: %w", m.name, err)
	}
	for _, o := range again.Outcomes {
		r.replays++
		if o.Verdict == r.verdict {
			r.same++
		}
	}
	return r, nil
}

// judgeAll judges several at a time, and says how far it is.
func judgeAll(ctx context.Context, atOnce int, mutants []mutant, judge func(context.Context, mutant) (result, error)) ([]result, error) {
	results := make([]result, len(mutants))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, m := range mutants {
		group.Go(func() (err error) {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			if results[i], err = judge(ctx, m); err != nil {
				return err
			}
			r := results[i]
			word := "caught"
			if !r.caught() {
				word = "NOT caught"
			}
			fmt.Fprintf(os.Stderr, "mutants: %s: %s after %s: %s: %s: %s\n", r.name, word, r.took.Round(time.Second), r.kind, r.verdict, r.why)
			return nil
		})
	}
	return results, group.Wait()
}

// report prints the score. It is an error if a mutant was not caught, or not with the same verdict again.
func report(w io.Writer, results []result) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "MUTANT\tVERDICT\tFOUND BY\tSECONDS\tAGAIN")
	caught := 0
	var missed, differed []string
	for _, r := range results {
		verdict := string(r.verdict)
		switch {
		case r.caught():
			caught++
		case r.verdict == torture.Well:
			verdict = "NOT FOUND"
			missed = append(missed, r.name)
		default:
			verdict = fmt.Sprintf("WRONG CAUSE: %s (%s)", r.verdict, r.why)
			missed = append(missed, r.name)
		}
		again := ""
		if r.replays > 0 {
			again = fmt.Sprintf("%d of %d", r.same, r.replays)
		}
		if r.same < r.replays {
			differed = append(differed, r.name)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%.0f\t%s\n", r.name, verdict, r.kind, r.took.Seconds(), again)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%d of %d mutants caught, and the right cause named\n", caught, len(results))
	if len(missed) > 0 {
		return fmt.Errorf("not caught: %s", strings.Join(missed, ", "))
	}
	if len(differed) > 0 {
		return fmt.Errorf("not the same verdict each time: %s", strings.Join(differed, ", "))
	}
	return nil
}
