// Package mutants puts bugs into a controller, one at a time, and looks whether torture finds them and names the
// right cause. The bugs are patches. Each says what is wrong, when that shows, and which verdicts are right.
package mutants

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/controllers/harness/proc"
	"example.com/controllers/harness/torture"
)

// Mutant is a bug.
type Mutant struct {
	Name   string
	Expect []torture.Verdict // any of them is right
	bug    string            // what is wrong
	patch  string            // its path; "" for no bug
}

// Result is what came of one.
type Result struct {
	Mutant
	verdict torture.Verdict // of the first failure; "" if nothing was found
	why     string
	kind    string // of the plan that found it
	took    time.Duration

	replays, same int // how often that plan was run again, and how often the verdict was the same
}

// String says what was found.
func (r Result) String() string {
	return fmt.Sprintf("%s: %q (%s), expected one of %q", r.Name, r.verdict, r.why, r.Expect)
}

// Caught says whether it was found, and the right cause named.
func (r Result) Caught() bool { return slices.Contains(r.Expect, r.verdict) }

// Options say how mutants are put to torture.
type Options struct {
	// Scenario has the controller without bugs.
	Scenario *torture.Scenario
	Mutants  []Mutant
	// Baseline is what is known of the scenario's controller; nil: it is found out first.
	Baseline *torture.Baseline
	// Plans are those that show a mutant, by its name. For a mutant that is not among them, all are tried.
	Plans map[string]torture.Plan
	// AtOnce is how many of them there are at a time; 0 for what the machine allows.
	AtOnce int
	// Replays is how often the plan that finds a mutant is run again, to see whether the verdict is the same.
	Replays  int
	Progress io.Writer
}

// Run puts mutants to torture on control planes of its own.
func Run(ctx context.Context, o Options) ([]Result, error) {
	ring, err := torture.Open(ctx, 6, o.Progress)
	if err != nil {
		return nil, err
	}
	results, err := RunOn(ctx, ring, o)
	return results, errors.Join(err, ring.Close())
}

// RunOn is Run on control planes that are there.
func RunOn(ctx context.Context, ring *torture.Ring, o Options) ([]Result, error) {
	scratch, err := os.MkdirTemp("", "workshop-mutants-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	defer os.RemoveAll(scratch)
	reference, err := build(ctx, o.Scenario, scratch, Mutant{Name: "none"})
	if err != nil {
		return nil, err
	}
	if o.AtOnce == 0 {
		o.AtOnce = max(1, torture.Capacity()/runsEach)
	}
	if o.Baseline == nil {
		if o.Baseline, err = ring.Learn(ctx, torture.Options{Scenario: o.Scenario, Command: command(o.Scenario, reference)}); err != nil {
			return nil, err
		}
	}
	return o.judgeAll(ctx, func(ctx context.Context, m Mutant) (Result, error) {
		program, err := build(ctx, o.Scenario, scratch, m)
		if err != nil {
			return Result{}, err
		}
		options := torture.Options{
			Scenario: o.Scenario, Command: command(o.Scenario, program), Reference: command(o.Scenario, reference), Baseline: o.Baseline,
			FirstOnly: true, Most: mostPlans, Parallel: runsEach, Progress: io.Discard,
		}
		if plan, ok := o.Plans[m.Name]; ok {
			options.Plans = []torture.Plan{plan}
		}
		return judge(ctx, ring, options, m, o.Replays)
	})
}

// Read reads the patches of a directory: all, or those with the names in only, which has commas between them.
func Read(dir, only string) ([]Mutant, error) {
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
	var mutants []Mutant
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
func read(name, text string) (Mutant, error) {
	m := Mutant{Name: name}
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
				m.Expect = append(m.Expect, torture.Verdict(word))
			}
		}
	}
	if m.bug == "" || len(m.Expect) == 0 {
		return m, errors.New("its head must have a line that begins with \"Bug:\", and one with \"Expect:\"")
	}
	return m, nil
}

// build builds the controller with a bug in it, and returns the path of the program.
func build(ctx context.Context, scenario *torture.Scenario, scratch string, m Mutant) (string, error) {
	if scenario.Controller == nil || !strings.HasPrefix(scenario.Controller.Package, ".") {
		return "", errors.New("the scenario has no controller of its own module that bugs could be put into")
	}
	dir := filepath.Join(scratch, m.Name)
	if err := copySources(scenario.Source(), dir); err != nil {
		return "", fmt.Errorf("copy the controller: %w", err)
	}
	commands := [][]string{{"go", "build", "-ldflags=-s", "-o", "controller", scenario.Controller.Package}}
	if m.patch != "" {
		commands = append([][]string{{"git", "apply", m.patch}}, commands...)
	}
	for _, words := range commands {
		cmd := exec.CommandContext(ctx, words[0], words[1:]...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GIT_CEILING_DIRECTORIES="+scratch)
		proc.Group(cmd)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("mutant %s: %s: %w\n%s", m.Name, strings.Join(words, " "), err, out)
		}
	}
	return filepath.Join(dir, "controller"), nil
}

// copySources copies a module, without its tests and the modules in it.
func copySources(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			_, err := os.Stat(filepath.Join(path, "go.mod"))
			if err == nil && inside != "." || strings.HasPrefix(entry.Name(), ".") && inside != "." {
				return filepath.SkipDir
			}
			return os.MkdirAll(filepath.Join(to, inside), 0o700)
		}
		isSource := strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go")
		if inside != "go.mod" && inside != "go.sum" && !isSource {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, inside), text, 0o600)
	})
}

// command runs a controller in the way of the scenario.
func command(scenario *torture.Scenario, program string) []string {
	return append([]string{program}, scenario.Controller.Args...)
}

// mostPlans is how many plans a mutant has to survive. It is some of each kind.
const mostPlans = 200

// runsEach is how many runs of one mutant there are at a time.
const runsEach = 6

// judge puts a mutant to torture until something is found, and runs what found it again.
func judge(ctx context.Context, ring *torture.Ring, options torture.Options, m Mutant, replays int) (Result, error) {
	begin := time.Now()
	found, err := ring.Run(ctx, options)
	if err != nil {
		return Result{}, fmt.Errorf("mutant %s: %w", m.Name, err)
	}
	r := Result{Mutant: m, took: time.Since(begin)}
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
	options.FirstOnly, options.Most, options.Plans, options.Times = false, 0, nil, replays
	again, err := ring.Run(ctx, options)
	if err != nil {
		return Result{}, fmt.Errorf("mutant %s, again: %w", m.Name, err)
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
func (o Options) judgeAll(ctx context.Context, judge func(context.Context, Mutant) (Result, error)) ([]Result, error) {
	results := make([]Result, len(o.Mutants))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(o.AtOnce)
	for i, m := range o.Mutants {
		group.Go(func() (err error) {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			if results[i], err = judge(ctx, m); err != nil {
				return err
			}
			r := results[i]
			word := "caught"
			if !r.Caught() {
				word = "NOT caught"
			}
			fmt.Fprintf(o.Progress, "mutants: %s: %s after %s: %s: %s: %s\n", r.Name, word, r.took.Round(time.Second), r.kind, r.verdict, r.why)
			return nil
		})
	}
	return results, group.Wait()
}

// Report prints the score. It is an error if a mutant was not caught, or not with the same verdict again.
func Report(w io.Writer, results []Result) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "MUTANT\tVERDICT\tFOUND BY\tSECONDS\tAGAIN")
	caught := 0
	var missed, differed []string
	for _, r := range results {
		verdict := string(r.verdict)
		switch {
		case r.Caught():
			caught++
		case r.verdict == torture.Well:
			verdict = "NOT FOUND"
			missed = append(missed, r.Name)
		default:
			verdict = fmt.Sprintf("WRONG CAUSE: %s (%s)", r.verdict, r.why)
			missed = append(missed, r.Name)
		}
		again := ""
		if r.replays > 0 {
			again = fmt.Sprintf("%d of %d", r.same, r.replays)
		}
		if r.same < r.replays {
			differed = append(differed, r.Name)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%.0f\t%s\n", r.Name, verdict, r.kind, r.took.Seconds(), again)
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
