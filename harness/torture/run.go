package torture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/client-go/rest"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/oracle"
)

// subject is what is put to torture, and all that its runs share. It does not change.
type subject struct {
	lab       *Lab
	scenario  *Scenario
	compiled  *rules   // of all runs; nil if each has its own, because they name its namespace
	commands  Commands // with {kubeconfig} and so on to be replaced
	manifests string   // YAML, for the namespace placeholder
	// outsideCommands are the programs outside of the cluster, by name.
	outsideCommands map[string][]string
	scratch         string          // a directory that is removed with the Lab
	wide            map[string]bool // see Baseline.wide
	workshop        string          // the program of rebootCommand, or ""
}

// run is one run of the scenario: it plays the steps to the programs, under the faults of a plan, and sees what comes of it.
type run struct {
	*processes
	job   job
	plan  Plan // of the job
	rules rules
	armed []armed // the faults of the plan
	// watched are the resources of which programs must be sent events before the first step; nil for none.
	watched map[watching]bool
	// seenAtStart are those of which they have been sent some.
	seenAtStart map[watching]bool
	machines    *machines
	learns      bool     // that this run is one of the baseline
	end         []string // of runs without faults, normalized; nil if it is not known
	steps       []stepBaseline
	launched    time.Time // when the programs began to be started
	stepStarts  []time.Time
	stepEnds    map[int][]string // of a run without faults
	restBegan   time.Time        // when the last step ended
	suspected   string           // what was unusual in a joint run, or ""
}

// result is what a run came to.
type result struct {
	Outcome
	seen *observation // nil if it ended before
	run  *run
}

// run runs a job on a control plane, and judges it by a baseline, or by itself if that is nil. The error is one that
// ends everything, such as Ctrl-C; that this run could not be carried out is part of the outcome.
func (s *subject) run(ctx context.Context, p *controlPlane, of job, b *Baseline) (result, error) {
	start := time.Now()
	plan := of.plan()
	w := &world{subject: s, number: s.lab.runs.Add(1), controlPlane: p}
	r := &run{processes: newProcesses(w), job: of, plan: plan, armed: of.arm(), stepEnds: map[int][]string{}}
	r.machines = newMachines(ctx, r.processes)
	defer r.machines.stop()
	r.namespace = w.nameNamespace()
	if r.learns = b == nil; !r.learns {
		r.watched, r.opened, r.end, r.steps = b.watched, b.opened, b.end, b.steps
	}
	var seen *observation
	err := r.compile()
	if err == nil {
		seen, err = r.execute(ctx)
	}
	r.recordStates()
	outcome := Outcome{Plan: plan, History: r.recording.History(), seen: seen, namespace: r.namespace}
	if r.learns {
		outcome.wide = r.wideIn(outcome.History)
	}
	if err == nil {
		var failure *Failure
		if b == nil {
			failure, outcome.Notes = s.scenario.judge(seen, r.namespace)
		} else {
			failure, outcome.Notes = s.scenario.judgeAgainst(b, seen, r.namespace)
		}
		if failure != nil {
			err = failure
		}
	}
	outcome.Log = r.log()
	if len(r.stepStarts) > 0 {
		outcome.FailedAt = r.stepStarts[len(r.stepStarts)-1]
	}
	outcome.NotMet = !plan.IsMet(outcome.History)
	outcome.Duration = time.Since(start)
	var failure *Failure
	switch silent := (*SilentError)(nil); {
	case ctx.Err() != nil:
		return result{outcome, seen, r}, context.Cause(ctx)
	case errors.As(err, &silent):
		return result{outcome, seen, r}, silent
	case errors.As(err, new(suspicion)):
		r.suspected = err.Error()
	case errors.As(err, &failure) && r.otherRun(failure.Message) != "":
		outcome.Verdict, outcome.Message = NotRun, fmt.Sprintf("the controller has met %s, which is of another run: what it looks at must be among the scenario's \"resources\", "+
			"or it needs --parallel 1, or \"scope: cluster\": %s: %s", r.otherRun(failure.Message), failure.Verdict, failure.Message)
	case errors.As(err, &failure):
		outcome.Verdict, outcome.Cause, outcome.Message = failure.Verdict, failure.Cause, failure.Message
	case err != nil:
		outcome.Verdict, outcome.Message = NotRun, err.Error()
	}
	return result{outcome, seen, r}, nil
}

// compile compiles the rules, unless all runs share them: that takes some milliseconds.
func (r *run) compile() (err error) {
	if r.compiled != nil {
		r.rules = *r.compiled
		return nil
	}
	r.rules, err = r.scenario.compile(r.namespace)
	return err
}

// execute plays the scenario and returns what it showed. The error is a *Failure if the controller failed on the way.
func (r *run) execute(ctx context.Context) (seen *observation, err error) {
	err = r.inWorld(ctx, func(ctx context.Context) (err error) {
		seen, err = r.playAll(ctx)
		return err
	})
	return seen, err
}

// inWorld prepares the objects on which the programs act, and watches them, while do runs. In the end, what the run has created is
// removed.
func (r *run) inWorld(ctx context.Context, do func(context.Context) error) (err error) {
	clean, err := r.prepareNamespace(ctx)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, clean(ctx))
	}()
	if err := r.prepareObjects(ctx); err != nil {
		return err
	}
	watcher, disconnect, err := r.controlPlane.clients.watcher()
	if err != nil {
		return err
	}
	defer disconnect()
	if r.states, err = oracle.Watch(ctx, watcher, r.scope(), gvrs(r.resources)); err != nil {
		return err
	}
	defer r.states.Stop()
	return do(ctx)
}

// playAll plays the scenario in its world.
func (r *run) playAll(ctx context.Context) (seen *observation, err error) {
	if err := r.setUp(ctx); err != nil {
		return nil, err
	}
	r.states.Mark()
	defer func() { err = errors.Join(err, r.stopAll()) }()
	if err := r.launch(ctx); err != nil {
		return nil, err
	}
	if err := r.play(ctx); err != nil {
		return nil, err
	}
	if err := r.awaitOutput(ctx); err != nil {
		return nil, err
	}
	seen = new(observation)
	if r.job.isJoint() {
		r.pauseFaults(true)
	}
	r.restBegan = time.Now()
	r.recordStep(r.restBegan, "the quiet time")
	if seen.rest, err = r.awaitRest(ctx); err != nil {
		return nil, err
	}
	if r.learns { // before they release it
		if seen.lease, err = r.longestLease(ctx); err != nil {
			return nil, err
		}
	}
	if seen.endAtRest, err = r.normalized(ctx); err != nil {
		return nil, err
	}
	r.recordStep(time.Now(), "the end: SIGTERM")
	if failure := r.stopPrograms(); failure != nil {
		return nil, failure
	}
	return seen, r.observe(ctx, seen)
}

// setUp brings the world into the state in which the controller finds it.
func (r *run) setUp(ctx context.Context) error {
	if err := r.await(ctx, r.rules.ready); err != nil {
		return fmt.Errorf("the scenario does not get ready: %w", err)
	}
	for i, step := range r.scenario.Setup {
		if err := r.await(ctx, r.rules.setup[i]); err != nil {
			return fmt.Errorf("setup %q cannot begin: %w", step.Name, err)
		}
		if err := r.applyStep(ctx, step); err != nil {
			return err
		}
		if err := r.await(ctx, r.rules.ready); err != nil {
			return fmt.Errorf("the scenario does not get ready: %w", err)
		}
	}
	return nil
}

// launch starts what is outside of the cluster, and the programs, each behind a proxy.
func (r *run) launch(ctx context.Context) error {
	r.launched = time.Now()
	proxies := 0
	for _, name := range slices.Sorted(maps.Keys(r.scenario.Outside)) {
		proxies++
		o, err := r.startOutside(ctx, name, proxies)
		if err != nil {
			return err
		}
		r.outside = append(r.outside, o)
	}
	instances, err := r.scenario.instances(ctx, r.controlPlane.clients)
	if err != nil {
		return err
	}
	for _, one := range instances {
		proxies++
		p, err := r.launchProgram(ctx, one, proxies)
		if err != nil {
			return err
		}
		r.programs = append(r.programs, p)
	}
	for _, p := range r.programs {
		if err := p.start(); err != nil {
			return err
		}
	}
	if r.scenario.hasMachines() {
		return r.machines.follow(ctx)
	}
	return nil
}

// proxyOptions returns the options of a program's proxy.
func (r *run) proxyOptions(p *program, upstream *rest.Config, number int) apiproxy.Options {
	options := apiproxy.Options{
		Upstream: upstream, Record: r.recorder(p.label, number), Armed: faultsOf(r.armed, p.instance), Crash: r.crash(),
		Kill: func() { r.killAndRestart(p) }, Stop: func() bool { return r.stopAndRestart(p) }, Freeze: p.freeze,
		Hold: r.holder(p.label),
	}
	if r.scenario.hasMachines() {
		options.FailMachine = r.machines.fails(p)
	}
	if !r.looksAtOneNamespace(p.program) && r.scenario.Namespace == "" && !r.scenario.isCluster() {
		options.Namespace = r.namespace
		for _, resource := range r.resources {
			options.Within = append(options.Within, resource.GroupResource())
		}
	}
	return options
}

// stopAll ends whatever the run has started.
func (r *run) stopAll() (err error) {
	r.stops.Wait()
	r.machines.stop()
	for _, p := range r.programs {
		p.process.stopNoting() // what we clean up has not been killed by a fault
		p.kill()
		err = errors.Join(err, p.proxy.Stop())
	}
	return errors.Join(err, r.stopOutside())
}

// beginStep notes that a step begins.
func (r *run) beginStep(name string) {
	now := time.Now()
	r.stepStarts = append(r.stepStarts, now)
	if r.job.isJoint() {
		for i, p := range r.job {
			r.armed[i].SetPaused(p.Step != len(r.stepStarts)-1)
		}
	}
	r.recordStep(now, name)
}

// play waits until the controller has done its job, and takes the steps.
func (r *run) play(ctx context.Context) error {
	r.beginStep("the start")
	if err := r.awaitWatches(ctx); err != nil {
		return err
	}
	if err := r.settle(ctx); err != nil {
		return err
	}
	if err := r.converge(ctx, "the start"); err != nil {
		return err
	}
	r.seenAtStart = r.watchedIn(r.recording.History())
	if err := r.leaveStep(ctx); err != nil {
		return err
	}
	for i, step := range r.scenario.Steps {
		if err := r.awaitRestarts(ctx); err != nil {
			return err
		}
		if err := r.await(ctx, r.rules.when[i]); err != nil {
			return fmt.Errorf("step %q cannot begin: %w", step.Name, err)
		}
		r.beginStep(step.Name)
		if err := r.applyStep(ctx, step); err != nil {
			return err
		}
		if step.GoOn {
			continue
		}
		if err := r.converge(ctx, step.Name); err != nil {
			return err
		}
		if err := r.settle(ctx); err != nil {
			return err
		}
		if err := r.leaveStep(ctx); err != nil {
			return err
		}
	}
	return nil
}
