// Package torture runs a controller again and again through the same scenario, each time with other faults between it
// and the API server, and reports what the controller did wrong.
//
//   - It works on any program that takes a kubeconfig: faults are injected by a proxy, see package
//     [example.com/controllers/harness/apiproxy], and judgement is from the outside, see package
//     [example.com/controllers/harness/oracle].
//   - Runs without faults come first. They are the baseline that all others are compared with, and they show the requests
//     and events at which faults can be aimed.
//   - A failure counts when it comes again in a second run. What fails once of several times is reported as that.
//   - The controller cannot reach any cluster but its own: see package [example.com/controllers/harness/environ].
package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/torture/plan"
)

// Options say which controller is put to torture, and how.
type Options struct {
	Scenario *Scenario
	// Commands are the programs under test. In their arguments, {kubeconfig} is replaced by the path of the program's
	// kubeconfig, and {namespace} by the namespace of the run; see [Controller]. A controller that is not told its namespace
	// and lists all of them sees that one alone, as far as the scenario's resources go.
	Commands Commands
	// Reference are correct programs to take the baseline from; nil for Commands themselves.
	Reference Commands
	// Baseline is what [Lab.Learn] has returned for Reference or Commands; nil to learn it first.
	Baseline *Baseline

	// Plans are the plans to run. If there are none, Faults are the only plan, which is run Replays times. If there are
	// no faults either, Seeds plans are drawn at random, the first of them from Seed. If that is 0, there is a plan for
	// each possible fault, but not more than MaxPlans if that is not 0: the most telling first.
	Plans    []Plan
	Faults   []apiproxy.Fault
	Replays  int
	Seed     uint64
	Seeds    int
	MaxPlans int
	// Budget is for how long plans begin, with the runs without faults; 0 for no limit. As soon as there is a failure, the last third of
	// it is for repeating it and for runs without its fault. What runs at the end of the budget comes to its end, and each failure is
	// repeated and compared at least once, so it may take longer.
	Budget time.Duration
	// Kinds selects the kinds of fault that plans are made of, such as "killed after"; nil for all. It has no effect on Plans
	// and Faults.
	Kinds *regexp.Regexp
	// Skip are plans that have been run already, by [Plan.Key].
	Skip map[string]bool

	// Parallel is how many runs there are at a time, in the baseline too; 0 for what the machine takes, which is more while its
	// processors have nothing to do.
	Parallel int
	// FirstOnly stops at the first failure that comes again, in the order of the plans.
	FirstOnly bool
	Nodes     int       // simulated nodes
	Progress  io.Writer // is told how far it is; nil for nobody
	// Finished is called for each plan that has been run, by one goroutine at a time; it may be nil.
	Finished func(Outcome)
	// Elsewhere runs plans on other machines, and calls finished for each, from any goroutine; it returns the error that
	// finished returns. nil to run them here. The baseline, and the repetitions of failed plans, are always here.
	Elsewhere func(ctx context.Context, plans []Plan, finished func(Outcome) error) error
	// Unconfirmed leaves it to the caller to repeat failed plans.
	Unconfirmed bool
	// Alone has each plan run by itself. Otherwise, plans whose faults come in different steps share runs that show that nothing is wrong;
	// all others are repeated alone.
	Alone bool

	budget *budget // nil for no limit
}

// Outcome is what one run came to.
type Outcome struct {
	Plan    Plan
	Verdict Verdict
	Cause   string   // see Failure.Cause
	Message string   // what went wrong, in a sentence; "" if the controller passed
	Notes   []string // what was unusual and may be right
	// NotMet says that the plan's faults did not occur: the requests that it aims at did not come, or the faults could not be
	// done to them.
	NotMet   bool
	History  *history.History
	Log      string    // of the controller
	FailedAt time.Time // when the failing step began
	Duration time.Duration

	seen      *observation    // what the run showed, as long as it may be judged again; nil if it ended before
	namespace string          // of the run
	wide      map[string]bool // see run.wideIn
}

// Report is what all runs came to. The outcomes of plans that passed are without History and Log in it, because those of
// thousands of plans would not fit in memory. [Options.Finished] gets them.
type Report struct {
	Baseline *Baseline
	Outcomes []Outcome
	// Retried are the runs that repeated a failed plan, by [Plan.Key], without those that say nothing.
	Retried map[string][]Outcome
	// Controls are runs without faults, with which failures are compared. There are none if there is no failure, or if it was said which
	// faults to inject.
	Controls []Outcome
	// Runs is how many runs the plans took, without repetitions; 0 if they ran elsewhere. See [Options.Alone].
	Runs int
	// Planned are the plans that were to be run, in their order.
	Planned  []Plan
	Duration time.Duration

	world    plan.World // that the plans were made for
	possible int        // how many plans there are; 0 if they were given, or drawn
}

// UnfitError is the error of a controller that fails without faults, or does something else each time. What faults do
// to it cannot be said then.
type UnfitError struct {
	Verdict Verdict
	Differs MayDiffer // what would have to be in the scenario, if the runs only differ and may do so
	message string
	run     *Outcome // that failed without faults; nil if the runs only differ
}

func (e *UnfitError) Error() string { return e.message }

// errEnough ends the work after the first failure.
var errEnough = errors.New("one failure is enough")

// Run runs a controller's plans in a Lab of their own. What the controller does wrong is in the report; the error says
// why it could not be put to torture. A report that comes with an error has what was known until then; it may be nil.
func Run(ctx context.Context, o Options) (report *Report, err error) {
	lab, err := Open(ctx, o.Nodes, o.Progress)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	return lab.Run(ctx, o)
}

// Run is like the function [Run], in this Lab.
func (l *Lab) Run(ctx context.Context, o Options) (*Report, error) {
	begin := time.Now()
	o.Progress = inTurn(o.Progress)
	s, err := l.prepare(ctx, o, o.Commands)
	if err != nil {
		return nil, err
	}
	isControlled := o.Baseline == nil && o.Reference == nil && len(o.Faults) == 0 && !o.Unconfirmed
	o.budget = newBudget(o.Budget)
	defer o.budget.stop()
	if o.Baseline == nil {
		if o.Baseline, err = l.Learn(ctx, o); err != nil {
			return nil, err
		}
	}
	s.wide = o.Baseline.wide
	report := &Report{Baseline: o.Baseline, Retried: map[string][]Outcome{}, world: o.world(o.Baseline)}
	plans := o.plans(o.Baseline)
	if len(o.Plans) == 0 && len(o.Faults) == 0 && o.Seeds == 0 {
		all := o
		all.MaxPlans = 0
		report.possible = len(all.plans(o.Baseline))
	}
	if len(plans) == 0 && o.Kinds != nil {
		kinds := map[string]bool{}
		for _, plan := range o.possible(o.Baseline) {
			kinds[plan.Kind] = true
		}
		return nil, fmt.Errorf("no kind of fault matches %q; the kinds are: %s", o.Kinds, strings.Join(slices.Sorted(maps.Keys(kinds)), "; "))
	}
	plans = slices.DeleteFunc(plans, func(p Plan) bool { return o.Skip[p.Key()] })
	p := &progress{out: o.Progress, total: len(plans), parallel: o.Runs(), begin: time.Now(), budget: o.budget}
	var mu sync.Mutex
	executeAll := o.Elsewhere
	if executeAll == nil {
		executeAll = func(ctx context.Context, plans []Plan, finished func(Outcome) error) error {
			return s.executeAll(ctx, o, plans, finished)
		}
	}
	finished := func(outcome Outcome) error {
		enough := false
		if o.FirstOnly && outcome.counts() {
			repeated, confirmed, err := s.repeat(ctx, o, outcome.Plan, outcome.Verdict)
			if err != nil {
				return err
			}
			enough = confirmed
			mu.Lock()
			for _, again := range repeated {
				report.retried(again)
			}
			mu.Unlock()
		}
		mu.Lock()
		defer mu.Unlock()
		report.Outcomes = append(report.Outcomes, outcome.forReport())
		p.finished(outcome)
		if outcome.counts() {
			o.budget.failed()
		}
		if o.Finished != nil {
			o.Finished(outcome)
		}
		if enough {
			return errEnough
		}
		return nil
	}
	report.Planned = plans
	before := l.runs.Load()
	for pending := plans; len(pending) > 0 && err == nil; pending = report.pending() {
		err = without(executeAll(ctx, pending, finished), errEnough) // the other runs were cancelled
		if !o.FirstOnly {
			break
		}
	}
	if o.Elsewhere == nil {
		report.Runs = int(l.runs.Load() - before)
	}
	if err == nil && len(report.Outcomes) == 0 && len(plans) > 0 && o.Budget > 0 {
		err = fmt.Errorf("no plan was run: the runs without faults took the whole budget of %s; give a longer one", o.Budget)
	}
	if err == nil && !o.FirstOnly && !o.Unconfirmed {
		err = s.confirm(ctx, o, report)
	}
	if err == nil && isControlled {
		err = s.control(ctx, o, report)
	}
	report.Duration = time.Since(begin)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return report, err
}

// without returns what is left of errors that were joined without one of them; nil if nothing is.
func without(err, unwanted error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	switch {
	case ok:
		var left []error
		for _, one := range joined.Unwrap() {
			left = append(left, without(one, unwanted))
		}
		return errors.Join(left...)
	case errors.Is(err, unwanted):
		return nil
	}
	return err
}

// prepare builds and checks all that the runs of some programs share.
func (l *Lab) prepare(ctx context.Context, o Options, commands Commands) (*subject, error) {
	s := &subject{lab: l, scenario: o.Scenario, commands: Commands{}, scratch: l.shared.cluster.Dir()}
	var err error
	for name := range o.Scenario.programs() {
		command, ok := commands[name]
		if !ok || len(command) == 0 {
			return nil, fmt.Errorf("the scenario has a program %s, and there is no command for it", name)
		}
		if command, err = lookUp(command); err != nil {
			return nil, err
		}
		if s.commands[name], err = pin(command, s.scratch); err != nil {
			return nil, err
		}
	}
	if err := s.buildWorkshop(ctx, o); err != nil {
		return nil, err
	}
	if !o.Scenario.rulesNameNamespace() {
		all, err := o.Scenario.compile("")
		if err != nil {
			return nil, err
		}
		s.compiled = &all
	}
	if s.manifests, err = o.Scenario.render(ctx, l.shared.cluster.Kubectl, s.scratch); err != nil {
		return nil, err
	}
	if s.outsideCommands, err = o.Scenario.buildOutside(ctx, o.Progress); err != nil {
		return nil, err
	}
	for name, command := range s.outsideCommands {
		if s.outsideCommands[name], err = pin(command, s.scratch); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// lookUp returns a command with the absolute path of its program.
func lookUp(command []string) ([]string, error) {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return nil, fmt.Errorf("the controller: %w", err)
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	return append([]string{path}, command[1:]...), nil
}

// pin returns a command whose program stays while runs need it. gobuild prunes its cache when other programs are built.
func pin(command []string, scratch string) ([]string, error) {
	cache, err := gobuild.CacheDir()
	if err != nil || !strings.HasPrefix(command[0], cache+string(filepath.Separator)) {
		return command, err
	}
	dir, err := os.MkdirTemp(scratch, "program-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	pinned := filepath.Join(dir, filepath.Base(command[0]))
	if err := os.Link(command[0], pinned); err != nil {
		program, err := os.ReadFile(command[0]) // it is on another file system
		if err == nil {
			err = os.WriteFile(pinned, program, 0o700)
		}
		if err != nil {
			return nil, fmt.Errorf("keep the program: %w", err)
		}
	}
	return append([]string{pinned}, command[1:]...), nil
}

// plans returns the plans to run. undisturbed is what runs without faults came to.
func (o Options) plans(undisturbed *Baseline) []Plan {
	if len(o.Plans) > 0 {
		return slices.Clone(o.Plans)
	}
	if len(o.Faults) > 0 {
		return slices.Repeat([]Plan{{Kind: "replay", Faults: o.Faults}}, max(1, o.Replays))
	}
	all := o.possible(undisturbed)
	if o.Kinds != nil {
		all = slices.DeleteFunc(all, func(p Plan) bool { return !o.Kinds.MatchString(p.Kind) })
	}
	if o.Seeds > 0 {
		plans := plan.Random(all, o.Seed, o.Seeds)
		if o.Kinds != nil { // from all kinds, the same seed draws another plan
			for i := range plans {
				plans[i].Kind += " of " + o.Kinds.String()
			}
		}
		return plans
	}
	if o.Reference != nil { // the programs themselves have not been run without faults
		all = append([]Plan{NoFault}, all...)
	}
	if o.MaxPlans > 0 {
		all = all[:min(o.MaxPlans, len(all))]
	}
	return all
}

// possible returns a plan for each fault that is possible in a run like the undisturbed ones, the most telling first.
func (o Options) possible(undisturbed *Baseline) []Plan { return plan.Possible(o.world(undisturbed)) }

// world returns what plans are made for.
func (o Options) world(undisturbed *Baseline) plan.World {
	return plan.World{
		Baseline: o.Scenario.byTarget(undisturbed.History), Resources: o.Scenario.plurals(), Outside: slices.Sorted(maps.Keys(o.Scenario.Outside)),
		ReachesMachine: o.Scenario.reachesMachine, Lease: undisturbed.lease, MostHeldUp: maxHeldUp, Steps: undisturbed.stepStarts,
	}
}
