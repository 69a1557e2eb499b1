// Package mutants puts bugs into a controller, one at a time, and checks that torture finds them.
//
//   - A bug is a patch, whose header says what is wrong, when that shows, and which verdicts are right.
//   - A mutant is caught when a plan fails on it twice with the same verdict, the verdict is one that its header expects,
//     and the controller without the bug passes the same plan on the same machine.
//   - A mutant that does not build is one row of the report, not the end of it.
package mutants

import (
	"cmp"
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

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/proc"
	"example.com/controllers/harness/torture"
)

// Mutant is a controller with a bug.
type Mutant struct {
	Name   string            // of the patch, without ".patch"
	Expect []torture.Verdict // those that are right
	Bug    string            // what is wrong, in a sentence
	// Faults are tried before all others, each in a run of its own; none if none is known to show the bug, or none is needed.
	// Where a fault is aimed at the nth request, and that is not the same one in each run, several numbers may be given.
	Faults []apiproxy.Fault
	patch  string // its path; "" for the controller without a bug
}

// Result is what torture said about a mutant.
type Result struct {
	Mutant
	buildErr error           // why it does not build, or nil
	verdict  torture.Verdict // of the failure that was found, or Passed
	message  string
	kind     string           // of the plan that failed
	rank     int              // of that plan: 0 without faults, or from 1 in the order of all plans; -1 for one that the patch names
	control  *torture.Verdict // of the controller without the bug, in the same plan; nil if it was not compared
	duration time.Duration

	replays, same int // how often that plan was run again, and how often the verdict was the same
}

// String says what was found, if it is not what was expected, with the bug.
func (r Result) String() string {
	found := fmt.Sprintf("%q (%s)", r.verdict, r.message)
	switch {
	case r.buildErr != nil:
		found = fmt.Sprintf("does not build: %v", r.buildErr)
	case r.verdict == torture.Passed:
		found = "no plan failed twice"
	case r.control == nil:
		found += ", but the controller without the bug could not be run in the same plan, or never met its fault"
	case *r.control != torture.Passed:
		found += fmt.Sprintf(", but the controller without the bug fails too: %q", *r.control)
	}
	return fmt.Sprintf("%s: %s; expected one of %q. The bug: %s", r.Name, found, r.Expect, r.Bug)
}

// Caught reports whether the mutant was found, the right cause was named, and the controller without the bug passes the plan
// that shows it.
func (r Result) Caught() bool {
	return r.buildErr == nil && slices.Contains(r.Expect, r.verdict) && r.control != nil && *r.control == torture.Passed
}

// Options say which mutants are put to torture, and how.
type Options struct {
	// Scenario names the controller without bugs.
	Scenario *torture.Scenario
	Mutants  []Mutant
	// Baseline is that of the controller without bugs; nil to learn it first.
	Baseline *torture.Baseline
	// Commands start the programs of the controller without bugs; nil to build them.
	Commands torture.Commands
	// Plans are plans that show a mutant, by its name. A mutant that is not among them is tried with all plans.
	// Where the plan is known, the mutant and the controller without the bug run at the same time.
	Plans map[string]torture.Plan
	// AtOnce is how many mutants are put to torture at a time; 0 for what the machine allows.
	AtOnce int
	// Replays is how often the plan that found a mutant is repeated, to see whether the verdict is always the same.
	Replays  int
	Progress io.Writer
	// MaxPlans is how many plans a mutant has to survive to count as not found; 0 for 200, which is some of each kind.
	MaxPlans int
	// Unaided leaves out what the patches say about the faults that show them: how early is a bug found of which nothing is known?
	Unaided bool
}

// Run puts mutants to torture in a Lab of their own. With an error, the results are those of the mutants that were judged
// until then.
func Run(ctx context.Context, o Options) ([]Result, error) {
	lab, err := torture.Open(ctx, 6, o.Progress)
	if err != nil {
		return nil, err
	}
	results, err := RunIn(ctx, lab, o)
	return results, errors.Join(err, lab.Close())
}

// RunIn is like [Run], in a Lab that is open.
func RunIn(ctx context.Context, lab *torture.Lab, o Options) ([]Result, error) {
	scratch, err := os.MkdirTemp("", "workshop-mutants-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	defer os.RemoveAll(scratch)
	if o.Commands == nil {
		if o.Commands, err = build(ctx, o.Scenario, scratch, Mutant{Name: "none"}); err != nil {
			return nil, err
		}
	}
	correct := torture.Options{Scenario: o.Scenario, Commands: o.Commands, Progress: o.Progress}
	runsEach := 0
	o.AtOnce, runsEach = share(correct.Runs(), o.AtOnce)
	if o.Baseline == nil {
		if o.Baseline, err = lab.Learn(ctx, correct); err != nil {
			return nil, err
		}
	}
	correct.Baseline, correct.Parallel, correct.Progress = o.Baseline, runsEach, io.Discard
	t := &trial{Options: o, correct: correct, run: lab.Run, build: func(ctx context.Context, m Mutant) (torture.Commands, error) {
		return build(ctx, o.Scenario, scratch, m)
	}}
	return o.judgeAll(ctx, t.judge)
}

// trial is what it takes to judge a mutant.
type trial struct {
	Options
	correct torture.Options // for the controller without a bug
	build   func(context.Context, Mutant) (torture.Commands, error)
	run     func(context.Context, torture.Options) (*torture.Report, error)
}

// maxPlans is how many plans a mutant has to survive to count as not found. It is some of each kind.
const maxPlans = 200

// share divides the runs that the machine takes at a time among mutants. It returns how many mutants are put to torture at a
// time, which is atOnce unless that is 0, and how many runs each of them has at a time.
func share(runs, atOnce int) (mutants, runsEach int) {
	// With more, too many are for nothing, because the first that fails ends the search.
	const most = 6
	mutants = atOnce
	if mutants == 0 {
		mutants = max(runs/most, min(2, runs)) // two, because the plans that are tried first run alone
	}
	return mutants, min(most, max(1, runs/mutants))
}

// judge builds a mutant and puts it to torture. One that does not build is a result, too.
func (t *trial) judge(ctx context.Context, m Mutant) (Result, error) {
	begin := time.Now()
	result := Result{Mutant: m}
	commands, err := t.build(ctx, m)
	if ctx.Err() != nil {
		return result, context.Cause(ctx)
	}
	if err != nil {
		result.buildErr = err
		return result, nil
	}
	mutant, correct := t.correct, t.correct
	mutant.Commands, mutant.Reference = commands, correct.Commands
	var comparison errgroup.Group
	compare := func(plan torture.Plan) {
		comparison.Go(func() (err error) {
			result.control, err = t.control(ctx, correct, plan)
			return err
		})
	}
	known, isKnown := t.Plans[m.Name]
	if isKnown {
		compare(known)
	}
	plan, err := t.find(ctx, mutant, &result)
	result.duration = time.Since(begin)
	if !isKnown && err == nil && result.verdict != torture.Passed {
		compare(plan)
	}
	if err := errors.Join(err, comparison.Wait()); err != nil || result.verdict == torture.Passed || t.Replays == 0 {
		return result, err
	}
	mutant.Plans = slices.Repeat([]torture.Plan{plan}, t.Replays)
	again, err := t.run(ctx, mutant)
	if err != nil {
		return result, fmt.Errorf("mutant %s, again: %w", m.Name, err)
	}
	for _, outcome := range again.Outcomes {
		result.replays++
		if outcome.Verdict == result.verdict && !outcome.NotMet {
			result.same++
		}
	}
	return result, nil
}

// control runs the controller without the bug in a plan, and returns its verdict; nil if the plan could not be run, or its
// fault was never met.
func (t *trial) control(ctx context.Context, correct torture.Options, plan torture.Plan) (*torture.Verdict, error) {
	correct.Plans = []torture.Plan{plan}
	const attempts = 3 // to run it at all
	for range attempts {
		report, err := t.run(ctx, correct)
		if err != nil {
			return nil, fmt.Errorf("the controller without the bug: %w", err)
		}
		if outcome := report.Outcomes[0]; outcome.Verdict != torture.NotRun && !outcome.NotMet {
			return &outcome.Verdict, nil
		}
	}
	return nil, nil
}

// find returns the plan that shows a mutant, and notes what it showed. The simplest comes first: no fault at all. Then come
// the faults that the patch names, because with several programs there are more kinds of plans than maxPlans.
func (t *trial) find(ctx context.Context, mutant torture.Options, result *Result) (torture.Plan, error) {
	mutant.FirstOnly = true
	attempts := [][]torture.Plan{{torture.NoFault}}
	if len(result.Faults) > 0 && !t.Unaided {
		var named []torture.Plan
		for _, fault := range result.Faults {
			named = append(named, torture.Plan{Kind: fault.String(), Faults: []apiproxy.Fault{fault}})
		}
		attempts = append(attempts, named)
	}
	attempts = append(attempts, nil) // all
	if plan, ok := t.Plans[result.Name]; ok {
		attempts = [][]torture.Plan{{plan}}
	}
	for _, plans := range attempts {
		mutant.Plans, mutant.MaxPlans = plans, cmp.Or(t.MaxPlans, maxPlans)
		report, err := t.run(ctx, mutant)
		if err != nil {
			return torture.Plan{}, fmt.Errorf("mutant %s: %w", result.Name, err)
		}
		if first, found := report.First(); found {
			result.verdict, result.message, result.kind, result.rank = first.Verdict, first.Message, first.Plan.Kind, rank(report, first.Plan, plans == nil)
			return first.Plan, nil
		}
	}
	return torture.Plan{}, nil
}

// rank returns the position of a plan among all, from 1; 0 for that without faults, and -1 if the plans were not all.
func rank(report *torture.Report, plan torture.Plan, isOfAll bool) int {
	if len(plan.Faults) == 0 {
		return 0
	}
	if !isOfAll {
		return -1
	}
	planned := slices.DeleteFunc(slices.Clone(report.Planned), func(p torture.Plan) bool { return len(p.Faults) == 0 })
	return 1 + slices.IndexFunc(planned, func(p torture.Plan) bool { return p.Key() == plan.Key() })
}

// Read reads the patches in a directory: all of them, or those whose names are in only, separated by commas.
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

// read reads the header of a patch.
func read(name, text string) (Mutant, error) {
	m := Mutant{Name: name}
	head, _, ok := strings.Cut(text, "\n\n--- ")
	if !ok {
		return m, errors.New("a patch must have a header, an empty line, and then the diff")
	}
	for line := range strings.SplitSeq(head, "\n") {
		switch key, value, _ := strings.Cut(line, ": "); key {
		case "Bug":
			m.Bug = value
		case "Fault":
			fault, err := apiproxy.ParseFault(value)
			if err != nil {
				return m, err
			}
			m.Faults = append(m.Faults, fault)
		case "Expect":
			for word := range strings.SplitSeq(value, ", ") {
				if !slices.Contains(torture.Verdicts, torture.Verdict(word)) {
					return m, fmt.Errorf("there is no verdict %q", word)
				}
				m.Expect = append(m.Expect, torture.Verdict(word))
			}
		}
	}
	if m.Bug == "" || len(m.Expect) == 0 {
		return m, errors.New("its header must have a line that begins with \"Bug:\", and one with \"Expect:\"")
	}
	return m, nil
}

// build builds a mutant's programs in a copy of their module, and returns their commands.
func build(ctx context.Context, scenario *torture.Scenario, scratch string, m Mutant) (torture.Commands, error) {
	if scenario.Source() == "" {
		return nil, errors.New("the scenario has no module with the sources of its programs, into which a bug could be put")
	}
	dir := filepath.Join(scratch, m.Name)
	if err := copySources(scenario.Source(), dir); err != nil {
		return nil, fmt.Errorf("copy the controller: %w", err)
	}
	run := func(words ...string) error {
		cmd := exec.CommandContext(ctx, words[0], words[1:]...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GIT_CEILING_DIRECTORIES="+scratch)
		proc.Group(cmd)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("mutant %s: %s: %w\n%s", m.Name, strings.Join(words, " "), err, out)
		}
		return nil
	}
	if m.patch != "" {
		if err := run("git", "apply", m.patch); err != nil {
			return nil, err
		}
	}
	commands := torture.Commands{}
	for name, pkg := range scenario.Packages() {
		program := filepath.Join(dir, "program-"+name)
		if err := run("go", "build", "-ldflags=-s", "-o", program, pkg); err != nil {
			return nil, err
		}
		commands[name] = append([]string{program}, scenario.Args(name)...)
	}
	return commands, nil
}

// copySources copies a module without its tests, and without the modules below it.
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

// judgeAll judges several mutants at a time, and prints how far it is. With an error, it returns the results until then.
func (o Options) judgeAll(ctx context.Context, judge func(context.Context, Mutant) (Result, error)) ([]Result, error) {
	results := make([]*Result, len(o.Mutants)) // nil for a mutant that has not been judged
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(o.AtOnce)
	for i, m := range o.Mutants {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			r, err := judge(ctx, m)
			if err != nil {
				return err
			}
			results[i] = &r
			word := "caught"
			if !r.Caught() {
				word = "NOT caught"
			}
			fmt.Fprintf(o.Progress, "mutants: %s: %s after %s: %s: %s: %s\n", r.Name, word, r.duration.Round(time.Second), r.kind, r.verdict, r.message)
			return nil
		})
	}
	err := group.Wait()
	var judged []Result
	for _, r := range results {
		if r != nil {
			judged = append(judged, *r)
		}
	}
	return judged, err
}

// Report prints the results. Its error names the mutants that were not caught, or not with the same verdict each time.
func Report(w io.Writer, results []Result) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "MUTANT\tVERDICT\tFOUND BY\tPLAN\tSECONDS\tAGAIN")
	caught := 0
	var missed []Result
	var unsteady []string
	for _, r := range results {
		verdict := string(r.verdict)
		switch {
		case r.Caught():
			caught++
		case r.buildErr != nil:
			verdict = "DOES NOT BUILD"
		case r.verdict == torture.Passed:
			verdict = "NOT FOUND"
		case r.control == nil:
			verdict = fmt.Sprintf("%s, NOT COMPARED", r.verdict)
		case *r.control != torture.Passed:
			verdict = fmt.Sprintf("%s, AS WITHOUT THE BUG", r.verdict)
		default:
			verdict = "WRONG CAUSE: " + string(r.verdict)
		}
		if !r.Caught() {
			missed = append(missed, r)
		}
		again := ""
		if r.replays > 0 {
			again = fmt.Sprintf("%d of %d", r.same, r.replays)
		}
		if r.same < r.replays {
			unsteady = append(unsteady, r.Name)
		}
		number := ""
		if r.verdict != torture.Passed && r.rank >= 0 {
			number = fmt.Sprint(r.rank)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%.0f\t%s\n", r.Name, verdict, r.kind, number, r.duration.Seconds(), again)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%d of %d mutants caught, with the right cause\n", caught, len(results))
	var names []string
	for _, r := range missed {
		fmt.Fprintf(w, "\n%s\n", r)
		names = append(names, r.Name)
	}
	if len(missed) > 0 {
		return fmt.Errorf("not caught: %s", strings.Join(names, ", "))
	}
	if len(unsteady) > 0 {
		return fmt.Errorf("not the same verdict each time: %s", strings.Join(unsteady, ", "))
	}
	return nil
}
