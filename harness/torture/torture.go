// Package torture runs a controller again and again through the same scenario, each time with another fault between it
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
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/shirou/gopsutil/v4/mem"
	"golang.org/x/sync/errgroup"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/oracle"
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
	// Budget is for how long plans begin, with the runs without faults; 0 for no limit. Those that run then come to their ends, and failures
	// are repeated.
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

	until time.Time // no plan begins after it; the zero time for no limit
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
	message string
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
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	s, err := l.prepare(ctx, o, o.Commands)
	if err != nil {
		return nil, err
	}
	isControlled := o.Baseline == nil && o.Reference == nil && len(o.Faults) == 0 && !o.Unconfirmed
	if o.Budget > 0 {
		o.until = time.Now().Add(o.Budget)
	}
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
	p := &progress{out: o.Progress, total: len(plans), parallel: o.Runs(), begin: time.Now(), until: o.until}
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
		if o.Finished != nil {
			o.Finished(outcome)
		}
		if enough {
			return errEnough
		}
		return nil
	}
	report.Planned = plans
	for pending := plans; len(pending) > 0 && err == nil; pending = report.pending() {
		err = without(executeAll(ctx, pending, finished), errEnough) // the other runs were cancelled
		if !o.FirstOnly {
			break
		}
	}
	if err == nil && len(report.Outcomes) == 0 && len(plans) > 0 && o.Budget > 0 {
		err = fmt.Errorf("no plan was run: the runs without faults took the whole budget of %s; give a longer one", o.Budget)
	}
	if err == nil && !o.FirstOnly && !o.Unconfirmed {
		err = s.confirm(ctx, o, report)
	}
	if err == nil && isControlled {
		o.until = time.Time{}
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

// maxBaselineRuns is how many runs without faults there are at most.
const maxBaselineRuns = 10

// maxUnfitRuns is how many there are at most of a controller that does something else each time.
const maxUnfitRuns = 4

// Learn runs the scenario without faults until two runs in a row bring nothing new, and returns what they came to. The
// result can be used for every controller that should do the same.
func (l *Lab) Learn(ctx context.Context, o Options) (*Baseline, error) {
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if o.Reference == nil {
		o.Reference = o.Commands
	}
	s, err := l.prepare(ctx, o, o.Reference)
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(o.Progress, "torture: baseline: runs without faults, until two in a row bring nothing new")
	b := &Baseline{}
	var unfit *UnfitError // it takes more than one run to know all that differs
	for settled := 0; settled < 2 && b.Runs < maxBaselineRuns && (unfit == nil || b.Runs < maxUnfitRuns); {
		outcomes := make([]Outcome, min(2, o.Runs()))
		seen := make([]*observation, len(outcomes))
		var group errgroup.Group
		for i := range outcomes {
			group.Go(func() (err error) {
				outcomes[i], seen[i], err = s.execute(ctx, nil, NoFault)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
		if wide := wideOf(outcomes); len(wide) > 0 && b.wide == nil {
			// These runs have seen each other. From now on, each program is shown its own run.
			fmt.Fprintf(o.Progress, "torture: baseline: told its namespace, and looks at all of them all the same, so it is shown its own only: %s\n", strings.Join(slices.Sorted(maps.Keys(wide)), ", "))
			b.wide, s.wide = wide, wide
			continue
		}
		for i, outcome := range outcomes {
			if outcome.Verdict == NotRun {
				return nil, errors.New(outcome.Message)
			}
			if outcome.Verdict != Passed {
				return nil, &UnfitError{outcome.Verdict, fmt.Sprintf("the controller fails without faults: %s: %s\n%s", outcome.Verdict, outcome.Message, tail(outcome.Log))}
			}
			if settled++; b.add(outcome, seen[i]) {
				settled = 0
			}
		}
		unfit = b.unfit(o.Scenario.MayDiffer.Writes)
	}
	if unfit != nil {
		return nil, unfit
	}
	if b.Runs >= maxBaselineRuns {
		fmt.Fprintf(o.Progress, "torture: baseline: the last of %d runs still brought something new; what is right may differ by more\n", b.Runs)
	}
	if b.lease+apiproxy.DefaultFreeze-plan.UsualLease >= maxHeldUp {
		fmt.Fprintf(o.Progress, "torture: a Lease lasts %s, too long for plans in which it is lost; let the scenario start the controller with a shorter one\n", b.lease)
	}
	fmt.Fprintf(o.Progress, "torture: baseline: %d runs; writes in each: %s\n", b.Runs, b.writes())
	return b, nil
}

// wideOf returns the programs that are wide in any of the runs.
func wideOf(outcomes []Outcome) map[string]bool {
	all := map[string]bool{}
	for _, o := range outcomes {
		maps.Copy(all, o.wide)
	}
	return all
}

// add adds a run without faults. news says whether it was unlike the runs before.
func (b *Baseline) add(outcome Outcome, o *observation) (news bool) {
	b.Runs++
	news = b.Expected.Add(o.effects)
	if b.Runs == 1 {
		b.end, b.History, b.watched, b.opened = o.end, outcome.History, o.watched, o.opened
	}
	for _, d := range oracle.Compare(b.end, o.end) {
		if !slices.ContainsFunc(b.differences, func(known oracle.Difference) bool { return known.Cause() == d.Cause() }) {
			b.differences, news = append(b.differences, d), true
		}
	}
	b.lease = max(b.lease, o.lease)
	b.requests, b.events = max(b.requests, o.rest.requests), max(b.events, o.rest.events)
	maps.DeleteFunc(b.watched, func(w watching, _ bool) bool { return !o.watched[w] })
	maps.DeleteFunc(b.opened, func(w watching, _ bool) bool { return !o.opened[w] })
	return news
}

// writes names the writes of the controller and how often each came.
func (b *Baseline) writes() string {
	var texts []string
	for _, what := range slices.Sorted(maps.Keys(b.Expected.Did)) {
		texts = append(texts, fmt.Sprintf("%s (%s)", what, b.Expected.Did[what]))
	}
	if len(texts) == 0 {
		return "none"
	}
	return strings.Join(texts, ", ")
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

// executeAll runs plans, several at a time: three quarters of what the machine surely takes, or more while it has processor time
// to spare, unless we were told how many. finished is called for each of them, by several goroutines; its error ends all.
func (s *subject) executeAll(ctx context.Context, o Options, plans []Plan, finished func(Outcome) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for i, queue := range s.queues(o, plans) {
		next, over := make(chan Plan), make(chan struct{})
		group.Go(func() error {
			defer close(next)
			defer close(over)
			over := make(<-chan time.Time) // never
			if !o.until.IsZero() {
				timer := time.NewTimer(time.Until(o.until))
				defer timer.Stop()
				over = timer.C
			}
			for _, plan := range queue {
				select {
				case <-over:
					return nil
				default:
				}
				select {
				case next <- plan:
				case <-over:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			return nil
		})
		workers := o.Runs()
		always := workers // the others wait for processor time to spare
		if o.Parallel == 0 {
			always = max(1, workers*3/4)
			workers = max(workers, o.mostRuns())
		}
		if i > 0 {
			always = max(1, always/perControlPlane)
			workers = always
		}
		for n := range workers {
			group.Go(func() error {
				for {
					if n >= always {
						s.lab.stalls.awaitSpare(over)
					}
					plan, ok := <-next
					if !ok {
						return nil
					}
					outcome, _, err := s.execute(ctx, o.Baseline, plan)
					if err == nil {
						err = finished(outcome)
					}
					if err != nil {
						return err
					}
				}
			})
		}
	}
	return group.Wait()
}

// queues returns the plans that share a control plane, and those that run beside them, fewer at a time, as they kill a
// control plane. If only one run is asked for at a time, all plans are in one queue.
func (s *subject) queues(o Options, plans []Plan) [][]Plan {
	if o.Parallel == 1 {
		return [][]Plan{plans}
	}
	queues := make([][]Plan, 2)
	for _, plan := range plans {
		which := 0
		if s.needsExpendable(plan) {
			which = 1
		}
		queues[which] = append(queues[which], plan)
	}
	return queues
}

// needsExpendable reports whether a plan kills a control plane that other plans use.
func (s *subject) needsExpendable(plan Plan) bool { return plan.Crashes() && !s.scenario.isCluster() }

// execute runs one plan on the control plane that it needs: the shared one, one that it may kill, or one of its own.
func (s *subject) execute(ctx context.Context, b *Baseline, plan Plan) (outcome Outcome, seen *observation, err error) {
	switch {
	case s.scenario.isCluster():
		p, err := s.lab.newControlPlane(ctx, cmp.Or(s.scenario.Nodes, 3))
		if ctx.Err() != nil {
			return outcome, nil, context.Cause(ctx)
		}
		if err != nil {
			return Outcome{Plan: plan, Verdict: NotRun, Message: err.Error(), History: &history.History{}}, nil, nil
		}
		p.clients.alone = true
		s.lab.makeCrashable(p)
		outcome, seen, err = s.run(ctx, p, plan, b)
		return outcome, seen, errors.Join(err, p.restartErr(), p.cluster.Stop())
	case s.needsExpendable(plan):
		err = s.lab.withExpendable(func(p *controlPlane) (err error) {
			outcome, seen, err = s.run(ctx, p, plan, b)
			return err
		})
		return outcome, seen, err
	}
	return s.run(ctx, s.lab.shared, plan, b)
}

// maxRetries is how often a failed plan is repeated to see whether it fails again.
const maxRetries = 3

// confirm repeats plans of each group of failures that was seen only once, until one fails again or they have been repeated
// often enough.
func (s *subject) confirm(ctx context.Context, o Options, report *Report) error {
	groups := slices.DeleteFunc(report.Groups(), func(g Group) bool { return g.Confirmed() })
	if len(groups) == 0 {
		return nil
	}
	fmt.Fprintf(o.Progress, "torture: %s: repeating the plan, up to %d times\n", count(len(groups), "cause that was seen once", "causes that were seen once"), maxRetries)
	for _, g := range groups {
		for _, plan := range g.toRepeat() {
			repeated, confirmed, err := s.repeat(ctx, o, plan, g.Verdict)
			for _, again := range repeated {
				report.retried(again)
			}
			if err != nil {
				return err
			}
			if confirmed {
				break
			}
		}
	}
	return nil
}

// repeat runs a plan that has failed with this verdict up to maxRetries times, not counting the runs that say nothing. confirmed
// says that it has failed twice in the same way: with this verdict again, or twice with another one.
func (s *subject) repeat(ctx context.Context, o Options, plan Plan, verdict Verdict) (outcomes []Outcome, confirmed bool, err error) {
	seen := map[Verdict]int{verdict: 1}
	for tries := 0; tries < 2*maxRetries && len(outcomes) < maxRetries; tries++ {
		again, _, err := s.execute(ctx, o.Baseline, plan)
		if err != nil {
			return outcomes, false, err
		}
		if again.saysNothing() {
			continue
		}
		outcomes = append(outcomes, again)
		if seen[again.Verdict]++; again.counts() && seen[again.Verdict] > 1 {
			return outcomes, true, nil
		}
	}
	return outcomes, false, nil
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
		ReachesMachine: o.Scenario.reachesMachine, Lease: undisturbed.lease, MostHeldUp: maxHeldUp,
	}
}

// Runs is how many runs there are at a time: [Options.Parallel], or at most what the machine takes of this scenario's while its
// processors are busy.
func (o Options) Runs() int {
	switch {
	case o.Scenario.Namespace != "" && !o.Scenario.isCluster():
		return 1
	case o.Parallel > 0:
		return o.Parallel
	case o.Scenario.isCluster():
		return max(1, Capacity()/perControlPlane)
	}
	return Capacity()
}

// mostRuns is how many runs there are at most at a time while the processors have nothing to do.
func (o Options) mostRuns() int {
	if o.Scenario.Namespace != "" || o.Scenario.isCluster() {
		return o.Runs()
	}
	return capacity(2*runtime.GOMAXPROCS(0), availableMemory())
}

// perControlPlane is how many runs on a shared control plane cost as much as one with its own: that takes memory, and
// mostly starting it takes processors.
const perControlPlane = 4

// Capacity is how many runs this machine surely takes at a time. A run mostly waits, so there may be several for each
// processor; each has a controller of its own, which needs memory.
func Capacity() int { return capacity(runtime.GOMAXPROCS(0), availableMemory()) }

// availableMemory returns how many bytes there are for runs.
func availableMemory() uint64 {
	memory := uint64(math.MaxUint64)
	if free, err := mem.VirtualMemory(); err == nil {
		memory = free.Available
	}
	if limit, err := memlimit.FromCgroup(); err == nil { // of a container
		memory = min(memory, limit)
	}
	return memory
}

// capacity is [Capacity] on so many processors, with so many bytes of memory.
func capacity(processors int, memory uint64) int {
	const perProcessor, perRun = 18, 200 << 20 // bytes
	return int(max(2, min(uint64(perProcessor*processors), memory/perRun)))
}

// tail is the end of a log.
func tail(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	const last = 10
	return "its last lines:\n  " + strings.Join(lines[max(0, len(lines)-last):], "\n  ")
}

// progress prints how far a Run is.
type progress struct {
	out      io.Writer
	total    int // plans
	parallel int
	begin    time.Time
	until    time.Time // no plan begins after it; the zero time for no limit
	done     int
	failed   int
	printed  time.Time // when the last estimate was
}

// finished counts a plan.
func (p *progress) finished(o Outcome) {
	p.done++
	if o.Verdict != Passed {
		p.failed++
		fmt.Fprintf(p.out, "torture: %s: %s: %s\n", o.Plan.Kind, o.Verdict, o.Message)
	}
	const every = 5 * time.Second
	if p.done < p.total && time.Since(p.printed) < every {
		return
	}
	p.printed = time.Now()
	text := fmt.Sprintf("torture: %d of %d plans done, %d failed", p.done, p.total, p.failed)
	// Plans begin at the same time, so the first to end say nothing of how long the others take.
	if p.done >= 2*p.parallel && p.done < p.total {
		left := time.Duration(float64(time.Since(p.begin)) / float64(p.done) * float64(p.total-p.done))
		if !p.until.IsZero() {
			left = max(0, min(left, time.Until(p.until)))
		}
		text += fmt.Sprintf(", about %s left", left.Round(time.Second))
	}
	fmt.Fprintln(p.out, text)
}

// count is a number with its noun.
func count(n int, singular, plural string) string {
	if n == 1 {
		return "1 " + singular
	}
	return fmt.Sprintf("%d %s", n, plural)
}
