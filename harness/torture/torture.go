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
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shirou/gopsutil/v4/mem"
	"golang.org/x/sync/errgroup"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/oracle"
)

// Options say how a controller is put to torture.
type Options struct {
	Scenario *Scenario
	// Command is the controller. {kubeconfig} in it becomes the path of the kubeconfig that it has to use, and
	// {namespace} the namespace of the run. One that is not told its namespace, and asks for all, is told of
	// that one alone, as far as the scenario's resources go.
	Command []string
	// Reference, if there is one, is the controller that shows what is right, in place of Command itself.
	Reference []string
	// Baseline is what [Ring.Learn] has found out about Reference, or Command. It is found out first if it is nil.
	Baseline *Baseline
	// Plans, if there are any, are the only ones.
	Plans []Plan
	// Faults, if there are any, are the only plan, run Times times.
	Faults []apiproxy.Fault
	Times  int
	// Seeds, if more than 0, is how many plans to draw, from the seeds from Seed on. Otherwise there is a plan
	// for each fault that is possible.
	Seed  uint64
	Seeds int
	// Parallel is how many runs there are at a time; 0 for [Capacity].
	Parallel int
	// FirstOnly ends it at the first failure.
	FirstOnly bool
	// Most is the most plans to run, the first of each kind before the second; 0 for all.
	Most  int
	Nodes int
	// Progress is told how far it is.
	Progress io.Writer
}

// Report is what came of all.
type Report struct {
	Outcomes []Outcome
	// Undisturbed is the recording of the run in which nothing goes wrong.
	Undisturbed *history.History
	// Again is what came of a plan of each cause that was run once more, by [Plan.String].
	Again    map[string]Verdict
	Duration time.Duration
}

// Failures returns the outcomes that are not well.
func (r *Report) Failures() []Outcome {
	var failures []Outcome
	for _, o := range r.Outcomes {
		if o.Verdict != Well {
			failures = append(failures, o)
		}
	}
	return failures
}

// UndisturbedError is the error of a controller that fails although nothing goes wrong, or does it differently
// each time. So nothing can be said of what faults do to it.
type UndisturbedError struct {
	Verdict Verdict
	why     string
}

func (e *UndisturbedError) Error() string { return e.why }

// errEnough ends the work after the first failure.
var errEnough = errors.New("enough")

// Run runs all plans on control planes of its own. The error says why it could not; what the controller does
// wrong is in the report.
func Run(ctx context.Context, o Options) (report *Report, err error) {
	ring, err := Open(ctx, o.Nodes, o.Progress)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ring.Close()) }()
	return ring.Run(ctx, o)
}

// Ring is where controllers are put to torture: control planes, which several can share.
type Ring struct {
	ctx     context.Context // ends when all is to end, but not with a single Run
	options cluster.Options
	shared  *arena
	number  atomic.Int64 // of the last run

	mu       sync.Mutex
	alone    *arena // for plans that kill it, one at a time; nil until there is one
	crashErr error
}

// Open starts a control plane.
func Open(ctx context.Context, nodes int, progress io.Writer) (*Ring, error) {
	r := &Ring{ctx: ctx, options: cluster.Options{Nodes: nodes, Progress: progress}}
	var err error
	r.shared, err = r.newArena(ctx)
	return r, err
}

func (r *Ring) newArena(ctx context.Context) (*arena, error) {
	c, err := cluster.Start(ctx, r.options)
	if err != nil {
		return nil, err
	}
	a := &arena{cluster: c}
	if a.clients, err = newClients(c); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return a, nil
}

// Close stops the control planes.
func (r *Ring) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.shared.cluster.Stop()
	if r.alone != nil {
		err = errors.Join(err, r.alone.cluster.Stop())
	}
	return err
}

// runAlone runs a plan that kills the control plane.
func (r *Ring) runAlone(ctx context.Context, do func(*arena) (Outcome, error)) (Outcome, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.alone == nil {
		a, err := r.newArena(r.ctx)
		if err != nil {
			return Outcome{}, err
		}
		var once sync.Mutex
		a.crash = func() {
			once.Lock()
			defer once.Unlock()
			if err := a.cluster.Crash(r.ctx, r.options); err != nil {
				r.crashErr = err
			}
		}
		r.alone = a
	}
	outcome, err := do(r.alone)
	return outcome, errors.Join(err, r.crashErr)
}

// Baseline is what is right: what was seen in runs in which nothing goes wrong.
type Baseline struct {
	want    observed
	history *history.History
}

// Learn runs the scenario with nothing going wrong, and returns what came of it. It serves all controllers that
// should do the same.
func (r *Ring) Learn(ctx context.Context, o Options) (*Baseline, error) {
	if o.Reference == nil {
		o.Reference = o.Command
	}
	t, err := r.prepare(ctx, o, o.Reference)
	if err != nil {
		return nil, err
	}
	return t.learn(ctx, r.shared)
}

// prepare makes a runner for a command.
func (r *Ring) prepare(ctx context.Context, o Options, command []string) (*runner, error) {
	t := &runner{ring: r, scenario: o.Scenario, scratch: r.shared.cluster.Dir()}
	command, err := found(command)
	if err != nil {
		return nil, err
	}
	if t.command, err = pinned(command, t.scratch); err != nil {
		return nil, err
	}
	if t.rules, err = o.Scenario.compile(); err != nil {
		return nil, err
	}
	if t.text, err = o.Scenario.render(ctx, r.shared.cluster.Kubectl, t.scratch); err != nil {
		return nil, err
	}
	if t.outsideCommands, err = o.Scenario.buildOutside(ctx, o.Progress); err != nil {
		return nil, err
	}
	for name, command := range t.outsideCommands {
		if t.outsideCommands[name], err = pinned(command, t.scratch); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Run is Run on these control planes. It may be called by several goroutines.
func (r *Ring) Run(ctx context.Context, o Options) (report *Report, err error) {
	begin := time.Now()
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	t, err := r.prepare(ctx, o, o.Command)
	if err != nil {
		return nil, err
	}
	if o.Baseline == nil {
		fmt.Fprintln(o.Progress, "torture: two runs in which nothing goes wrong, to see what is right")
		if o.Baseline, err = r.Learn(ctx, o); err != nil {
			return nil, err
		}
	}
	t.want = o.Baseline.want
	report = &Report{Undisturbed: o.Baseline.history}
	plans := o.plans(report.Undisturbed)
	var together, alone []Plan
	for _, plan := range plans {
		if plan.crashes() {
			alone = append(alone, plan)
		} else {
			together = append(together, plan)
		}
	}
	p := &progress{out: o.Progress, all: len(plans), begin: time.Now()}
	keep := func(outcome Outcome) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		report.Outcomes = append(report.Outcomes, outcome)
		p.say(outcome)
		if o.FirstOnly && outcome.Verdict != Well && outcome.Verdict != NotPossible {
			return errEnough
		}
		return nil
	}
	group, workCtx := errgroup.WithContext(ctx)
	queue := make(chan Plan)
	group.Go(func() error {
		defer close(queue)
		for _, plan := range together {
			select {
			case queue <- plan:
			case <-workCtx.Done():
				return context.Cause(workCtx)
			}
		}
		return nil
	})
	for range o.parallel() {
		group.Go(func() error {
			for plan := range queue {
				outcome, _, err := t.do(workCtx, r.shared, plan)
				if err == nil {
					err = keep(outcome)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	group.Go(func() error {
		for _, plan := range alone {
			outcome, err := r.runAlone(workCtx, func(a *arena) (Outcome, error) {
				outcome, _, err := t.do(workCtx, a, plan)
				return outcome, err
			})
			if err == nil {
				err = keep(outcome)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	err = group.Wait()
	if err == nil && !o.FirstOnly && len(o.Faults) == 0 && len(o.Plans) == 0 {
		fmt.Fprintf(o.Progress, "torture: one plan of each of %d causes once more\n", len(report.Groups()))
		err = r.confirm(ctx, t, report)
	}
	report.Duration = time.Since(begin)
	if ctx.Err() != nil {
		return report, context.Cause(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if errors.Is(err, errEnough) { // the others were broken off
		err = nil
	}
	return report, err
}

// confirm runs the first plan of each cause once more.
func (r *Ring) confirm(ctx context.Context, t *runner, report *Report) error {
	report.Again = map[string]Verdict{}
	for _, g := range report.Groups() {
		plan := g.Failures[0].Plan
		do := func(a *arena) (Outcome, error) {
			outcome, _, err := t.do(ctx, a, plan)
			return outcome, err
		}
		var again Outcome
		var err error
		if plan.crashes() {
			again, err = r.runAlone(ctx, do)
		} else {
			again, err = do(r.shared)
		}
		if err != nil {
			return err
		}
		report.Again[plan.String()] = again.Verdict
	}
	return nil
}

// found returns a command with the path of its program.
func found(command []string) ([]string, error) {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return nil, fmt.Errorf("the controller: %w", err)
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	return append([]string{path}, command[1:]...), nil
}

// pinned returns a command whose program stays for as long as we need it. What gobuild keeps is removed after a
// while if other builds come, and we may be at it for long.
func pinned(command []string, scratch string) ([]string, error) {
	cache, err := gobuild.CacheDir()
	if err != nil || !strings.HasPrefix(command[0], cache+string(filepath.Separator)) {
		return command, err
	}
	dir, err := os.MkdirTemp(scratch, "program-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	pin := filepath.Join(dir, filepath.Base(command[0]))
	if err := os.Link(command[0], pin); err != nil {
		program, err := os.ReadFile(command[0]) // it is on another file system
		if err == nil {
			err = os.WriteFile(pin, program, 0o700)
		}
		if err != nil {
			return nil, fmt.Errorf("keep the program: %w", err)
		}
	}
	return append([]string{pin}, command[1:]...), nil
}

// learn learns from two runs what is right.
func (r *runner) learn(ctx context.Context, a *arena) (*Baseline, error) {
	var outcomes [2]Outcome
	var seen [2]observed
	var group errgroup.Group
	for i := range outcomes {
		group.Go(func() (err error) {
			if !r.alone() {
				outcomes[i], seen[i], err = r.do(ctx, a, Plan{Kind: "undisturbed"})
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i := range outcomes {
		if r.alone() { // one after the other
			var err error
			if outcomes[i], seen[i], err = r.do(ctx, a, Plan{Kind: "undisturbed"}); err != nil {
				return nil, err
			}
		}
		if o := outcomes[i]; o.Verdict != Well {
			return nil, &UndisturbedError{o.Verdict, fmt.Sprintf("with nothing going wrong, the controller fails: %s: %s\n%s", o.Verdict, o.Why, tail(o.Log))}
		}
	}
	if different := oracle.Compare(seen[0].end, seen[1].end); different != "" {
		return nil, &UndisturbedError{Different, "two runs in which nothing goes wrong end differently: " + different +
			"; if that may be, the scenario has to say so under mayDiffer.fields"}
	}
	tooMuch, tooLittle := oracle.CompareEffects(seen[0].effects, seen[1].effects, r.scenario.MayDiffer.Writes)
	if tooMuch+tooLittle != "" {
		return nil, &UndisturbedError{Different, "two runs in which nothing goes wrong write differently: " + tooMuch + tooLittle +
			"; if that may be, the scenario has to say so under mayDiffer.writes"}
	}
	return &Baseline{want: seen[0], history: outcomes[0].History}, nil
}

// alone says whether there may be only one run at a time.
func (r *runner) alone() bool { return r.scenario.Namespace != "" }

// tail is the end of a log.
func tail(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	const last = 10
	return "its last lines:\n  " + strings.Join(lines[max(0, len(lines)-last):], "\n  ")
}

func (o Options) plans(undisturbed *history.History) []Plan {
	if len(o.Plans) > 0 {
		return o.Plans
	}
	if len(o.Faults) > 0 {
		var plans []Plan
		for range max(1, o.Times) {
			plans = append(plans, Plan{Kind: "replay", Faults: o.Faults})
		}
		return plans
	}
	all := Exhaustive(undisturbed, slices.Collect(maps.Keys(o.Scenario.Outside))...)
	if o.Seeds > 0 {
		return Random(all, o.Seed, o.Seeds)
	}
	if o.Reference != nil {
		all = append([]Plan{{Kind: "undisturbed"}}, all...)
	}
	if o.Most > 0 {
		all = all[:min(o.Most, len(all))]
	}
	return all
}

// isTold says whether a controller is told its namespace.
func isTold(command []string) bool {
	return strings.Contains(strings.Join(command, " "), "{namespace}")
}

func (o Options) parallel() int {
	switch {
	case o.Scenario.Namespace != "":
		return 1
	case o.Parallel > 0:
		return o.Parallel
	}
	return Capacity()
}

// Capacity is how many runs this machine takes at a time. A run mostly waits, so there may be several for each
// processor; each has a controller of its own, which needs memory.
func Capacity() int {
	const perProcessor, memory = 6, 200 << 20 // bytes
	runs := perProcessor * runtime.GOMAXPROCS(0)
	if free, err := mem.VirtualMemory(); err == nil {
		runs = min(runs, int(free.Available/memory))
	}
	return max(2, runs)
}

// progress says how far it is.
type progress struct {
	out    io.Writer
	all    int
	begin  time.Time
	mu     sync.Mutex
	done   int
	failed int
	said   time.Time
}

func (p *progress) say(o Outcome) {
	p.done++
	if o.Verdict != Well {
		p.failed++
		fmt.Fprintf(p.out, "torture: %s: %s: %s\n", o.Plan.Kind, o.Verdict, o.Why)
	}
	const every = 5 * time.Second
	if p.done < p.all && time.Since(p.said) < every {
		return
	}
	p.said = time.Now()
	left := time.Duration(float64(time.Since(p.begin)) / float64(p.done) * float64(p.all-p.done)).Round(time.Second)
	fmt.Fprintf(p.out, "torture: %d of %d plans done, %d failed, about %s left\n", p.done, p.all, p.failed, left)
}
