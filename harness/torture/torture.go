package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/oracle"
)

// Options say how a controller is put to torture.
type Options struct {
	Scenario *Scenario
	// Command is the controller. {kubeconfig} in it becomes the path of the kubeconfig that it has to use, and
	// {namespace} the namespace of the run. One that is not told its namespace sees those of other runs, so
	// then there is only one run at a time.
	Command []string
	// Faults, if there are any, are the only plan, run Times times.
	Faults []apiproxy.Fault
	Times  int
	// Seeds, if more than 0, is how many plans to draw, from the seeds from Seed on. Otherwise there is a plan
	// for each fault that is possible.
	Seed  uint64
	Seeds int
	// Parallel is how many runs there are at a time; 0 for a number that suits the machine.
	Parallel int
	// FirstOnly ends it at the first failure.
	FirstOnly bool
	Nodes     int
	// Progress is told how far it is.
	Progress io.Writer
}

// Report is what came of all.
type Report struct {
	Outcomes []Outcome
	// Undisturbed is the recording of the run in which nothing goes wrong.
	Undisturbed *history.History
	Duration    time.Duration
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

// ErrUndisturbed is the error of a controller that fails although nothing goes wrong, or does it differently
// each time.
var ErrUndisturbed = errors.New("nothing can be said of what faults do to it")

// errEnough ends the work after the first failure.
var errEnough = errors.New("enough")

// Run runs all plans. The error says why it could not; what the controller does wrong is in the report.
func Run(ctx context.Context, o Options) (report *Report, err error) {
	begin := time.Now()
	path, err := exec.LookPath(o.Command[0])
	if err != nil {
		return nil, fmt.Errorf("the controller: %w", err)
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	c, err := cluster.Start(ctx, cluster.Options{Nodes: o.Nodes, Progress: o.Progress})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	r := &runner{scenario: o.Scenario, command: append([]string{path}, o.Command[1:]...), scratch: c.Dir()}
	if r.rules, err = o.Scenario.compile(); err != nil {
		return nil, err
	}
	if r.text, err = o.Scenario.render(ctx, c.Kubectl, r.scratch); err != nil {
		return nil, err
	}
	shared := &arena{cluster: c}
	if shared.clients, err = newClients(c); err != nil {
		return nil, err
	}
	report = &Report{}
	fmt.Fprintln(o.Progress, "torture: two runs in which nothing goes wrong, to see what is right")
	if report.Undisturbed, err = r.undisturbed(ctx, shared); err != nil {
		return nil, err
	}

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
		if o.FirstOnly && outcome.Verdict != Well {
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
				outcome, _, err := r.do(workCtx, shared, plan)
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
	if len(alone) > 0 {
		group.Go(func() error { return r.alone(workCtx, o, alone, keep) })
	}
	err = group.Wait()
	report.Duration = time.Since(begin)
	if errors.Is(err, errEnough) {
		err = nil
	}
	return report, err
}

// undisturbed learns from two runs what is right.
func (r *runner) undisturbed(ctx context.Context, a *arena) (*history.History, error) {
	var outcomes [2]Outcome
	var seen [2]observed
	for i := range outcomes {
		var err error
		if outcomes[i], seen[i], err = r.do(ctx, a, Plan{Kind: "undisturbed"}); err != nil {
			return nil, err
		}
		if o := outcomes[i]; o.Verdict != Well {
			return nil, fmt.Errorf("with nothing going wrong, the controller fails: %s: %s; %w\n%s", o.Verdict, o.Why, ErrUndisturbed, tail(o.Log))
		}
	}
	if different := oracle.Compare(seen[0].end, seen[1].end); different != "" {
		return nil, fmt.Errorf("two runs in which nothing goes wrong end differently: %s; %w, unless the scenario says under mayDiffer.fields that it may", different, ErrUndisturbed)
	}
	tooMuch, tooLittle := oracle.CompareEffects(seen[0].effects, seen[1].effects, r.scenario.MayDiffer.Writes)
	if tooMuch+tooLittle != "" {
		return nil, fmt.Errorf("two runs in which nothing goes wrong write differently: %s%s; %w, unless the scenario says under mayDiffer.writes that it may", tooMuch, tooLittle, ErrUndisturbed)
	}
	r.want = seen[0]
	return outcomes[0].History, nil
}

// tail is the end of a log.
func tail(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	const last = 10
	return "its last lines:\n  " + strings.Join(lines[max(0, len(lines)-last):], "\n  ")
}

// alone runs the plans that kill the control plane, on one of their own, one after the other.
func (r *runner) alone(ctx context.Context, o Options, plans []Plan, keep func(Outcome) error) (err error) {
	options := cluster.Options{Nodes: o.Nodes, Progress: o.Progress}
	c, err := cluster.Start(ctx, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	a := &arena{cluster: c}
	if a.clients, err = newClients(c); err != nil {
		return err
	}
	var mu sync.Mutex
	var crashErr error
	a.crash = func() {
		mu.Lock()
		defer mu.Unlock()
		crashErr = errors.Join(crashErr, c.Crash(ctx, options))
	}
	for _, plan := range plans {
		outcome, _, err := r.do(ctx, a, plan)
		if err != nil {
			return err
		}
		mu.Lock()
		err = crashErr
		mu.Unlock()
		if err != nil {
			return err
		}
		if err := keep(outcome); err != nil {
			return err
		}
	}
	return nil
}

func (o Options) plans(undisturbed *history.History) []Plan {
	if len(o.Faults) > 0 {
		var plans []Plan
		for range max(1, o.Times) {
			plans = append(plans, Plan{Kind: "replay", Faults: o.Faults})
		}
		return plans
	}
	all := Exhaustive(undisturbed)
	if o.Seeds > 0 {
		return Random(all, o.Seed, o.Seeds)
	}
	return all
}

func (o Options) parallel() int {
	switch {
	case !strings.Contains(strings.Join(o.Command, " "), "{namespace}"):
		return 1
	case o.Parallel > 0:
		return o.Parallel
	}
	return 12
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
