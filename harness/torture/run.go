package torture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
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

// run is one run of the scenario.
type run struct {
	*subject
	number       int64 // unique in the Lab
	controlPlane *controlPlane
	plan         Plan
	namespace    string
	rules        rules
	armed        []armed // the faults of the plan
	// watched are the resources of which programs must be sent events before the first step; nil for none.
	watched map[watching]bool
	// opened are the resources whose watches programs must open again after an outage; nil for none. It includes those without
	// objects, of which no events are sent.
	opened map[watching]bool

	resources  []resource     // of the scenario, in its order
	states     *oracle.States // of those resources
	outside    []*outside
	programs   []*program
	machines   *machines      // nil if no program runs on them, and in setup
	recording  history.Memory // of all proxies
	learns     bool           // that this run is one of the baseline
	end        []string       // of runs without faults, normalized; nil if it is not known
	active     atomic.Int64   // records, without those that only keep a Lease
	stepStarts []time.Time

	died    chan *Failure  // receives how a program ended by itself
	stops   sync.WaitGroup // stops that a fault has asked for and that are not over
	holdUps holdUps        // by faults, of any program

	mu        sync.Mutex
	stopFault *Failure // how a program did not stop when a fault asked it to
}

// run runs one plan on a control plane, and judges it by a baseline, or by itself if that is nil. The error is one that
// ends everything, such as Ctrl-C; that this run could not be carried out is part of the outcome.
func (s *subject) run(ctx context.Context, p *controlPlane, plan Plan, b *Baseline) (Outcome, *observation, error) {
	start := time.Now()
	r := &run{subject: s, number: s.lab.runs.Add(1), controlPlane: p, plan: plan, armed: arm(plan), died: make(chan *Failure, 1)}
	switch {
	case s.scenario.Namespace != "":
		r.namespace = s.scenario.Namespace
	case s.scenario.isCluster():
		r.namespace = "torture"
	default:
		r.namespace = fmt.Sprintf("torture-%d", r.number)
	}
	if r.learns = b == nil; !r.learns {
		r.watched, r.opened, r.end = b.watched, b.opened, b.end
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
		return outcome, seen, context.Cause(ctx)
	case errors.As(err, &silent):
		return outcome, seen, silent
	case errors.As(err, &failure) && r.otherRun(failure.Message) != "":
		outcome.Verdict, outcome.Message = NotRun, fmt.Sprintf("the controller has met %s, which is of another run: what it looks at must be among the scenario's \"resources\", "+
			"or it needs --parallel 1, or \"scope: cluster\": %s: %s", r.otherRun(failure.Message), failure.Verdict, failure.Message)
	case errors.As(err, &failure):
		outcome.Verdict, outcome.Cause, outcome.Message = failure.Verdict, failure.Cause, failure.Message
	case err != nil:
		outcome.Verdict, outcome.Message = NotRun, err.Error()
	}
	return outcome, seen, nil
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
	clean, err := r.prepareNamespace(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, clean(ctx))
	}()
	if err := r.prepareObjects(ctx); err != nil {
		return nil, err
	}
	watcher, disconnect, err := r.controlPlane.clients.watcher()
	if err != nil {
		return nil, err
	}
	defer disconnect()
	if r.states, err = oracle.Watch(ctx, watcher, r.scope(), gvrs(r.resources)); err != nil {
		return nil, err
	}
	defer r.states.Stop()
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
	r.recordStep(time.Now(), "the quiet time")
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

// prepareObjects applies the manifests and finds the scenario's resources.
func (r *run) prepareObjects(ctx context.Context) error {
	if err := r.controlPlane.applyManifests(ctx, r.manifests, r.namespace); err != nil {
		return err
	}
	for _, name := range r.scenario.Resources {
		resource, err := r.controlPlane.clients.find(ctx, name)
		if err == nil {
			err = r.controlPlane.clients.checkScope(resource.GroupVersionResource, resource.namespaced, "", r.namespace)
		}
		if err != nil {
			return err
		}
		r.resources = append(r.resources, resource)
	}
	return nil
}

func gvrs(resources []resource) (all []schema.GroupVersionResource) {
	for _, r := range resources {
		all = append(all, r.GroupVersionResource)
	}
	return all
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
	if r.scenario.hasMachines() {
		r.machines = newMachines(ctx)
	}
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
		return r.followMachines(ctx)
	}
	return nil
}

// upstream returns the configuration that the proxy of a program with this account uses.
func (r *run) upstream(ctx context.Context, account string) (*rest.Config, error) {
	if account == "" {
		upstream, err := r.controlPlane.cluster.Config()
		if err == nil {
			upstream.QPS = 0 // client-go's default limit, which the program has too
		}
		return upstream, err
	}
	namespace, name := r.qualify(account)
	return r.controlPlane.cluster.ServiceAccountConfig(ctx, namespace, name)
}

// qualify returns the namespace and the name of an account.
func (r *run) qualify(account string) (namespace, name string) {
	namespace, name, ok := strings.Cut(account, "/")
	if !ok {
		return r.namespace, account
	}
	return namespace, name
}

// proxyOptions returns the options of a program's proxy.
func (r *run) proxyOptions(p *program, upstream *rest.Config, number int) apiproxy.Options {
	options := apiproxy.Options{
		Upstream: upstream, Record: r.recorder(p.process.label, number), Armed: faultsOf(r.armed, p.instance), Crash: r.crash(),
		Kill: func() { r.killAndRestart(p) }, Stop: func() bool { return r.stopAndRestart(p) }, Freeze: p.freeze,
		Hold: r.holder(p.process.label),
	}
	if r.scenario.hasMachines() {
		options.FailMachine = r.failMachine(p)
	}
	if !r.looksAtOneNamespace(p.program) && r.scenario.Namespace == "" && !r.scenario.isCluster() {
		options.Namespace = r.namespace
		for _, resource := range r.resources {
			options.Within = append(options.Within, resource.GroupResource())
		}
	}
	return options
}

// crash returns a function that kills the control plane and starts it again. Until it is back, no program can connect. It
// returns nil if the control plane must not be killed.
func (r *run) crash() func() {
	if r.controlPlane.crash == nil {
		return nil
	}
	return func() {
		defer r.holdUps.begin("", history.Disconnected)()
		r.controlPlane.crash()
	}
}

// stopAll ends whatever the run has started.
func (r *run) stopAll() (err error) {
	r.stops.Wait()
	r.stopMachines()
	for _, p := range r.programs {
		p.process.stopNoting() // what we clean up has not been killed by a fault
		p.kill()
		err = errors.Join(err, p.proxy.Stop())
	}
	return errors.Join(err, r.stopOutside())
}

// killAndRestart is what a fault calls to kill a program. One that was to end anyway, or that a step ends, is not started
// again.
func (r *run) killAndRestart(p *program) {
	ending := p.isStopping()
	p.kill()
	if !ending {
		r.restart(p)
	}
}

// stopAndRestart is what a fault calls to stop a program. It returns as soon as the program has been told. One that has been
// told already, or that a step is about to end, is left alone, because many programs take a second signal for an order to
// exit at once; done is false then.
func (r *run) stopAndRestart(p *program) (done bool) {
	r.mu.Lock() // a step that calls setDown now waits for this stop in r.stops
	defer r.mu.Unlock()
	if p.isDown || p.isStopping() {
		return false
	}
	r.stops.Go(func() {
		if failure := p.stop(r.scenario.StopsWith); failure != nil {
			r.mu.Lock()
			r.stopFault = failure
			r.mu.Unlock()
		}
		r.restart(p)
	})
	p.awaitStopping()
	return true
}

// restart starts a program after a fault has ended it, as a Deployment would, unless a step has ended it meanwhile.
func (r *run) restart(p *program) {
	if err := r.startUnlessDown(p); err != nil {
		select {
		case r.died <- &Failure{Died, "start", err.Error()}:
		default: // one failure is enough
		}
	}
}

// startUnlessDown starts a program, unless a step has ended it. After setDown, no call of it starts the program.
func (r *run) startUnlessDown(p *program) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.isDown {
		return nil
	}
	return p.start()
}

// stopPrograms stops the programs at the end of the run, all at once.
func (r *run) stopPrograms() *Failure {
	r.stops.Wait()
	failures := make([]*Failure, len(r.programs))
	var stopping sync.WaitGroup
	for i, p := range r.programs {
		stopping.Go(func() { failures[i] = p.stop(r.scenario.StopsWith) })
	}
	stopping.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, failure := range append([]*Failure{r.stopFault}, failures...) {
		if failure != nil {
			return failure
		}
	}
	return nil
}

// named returns the instances that a name in a step stands for; all of them for "".
func (r *run) named(name string) []*program {
	return slices.DeleteFunc(slices.Clone(r.programs), func(p *program) bool { return name != "" && name != p.name && name != p.program })
}

// names returns the names of the instances.
func (r *run) names() (names []string) {
	for _, p := range r.programs {
		names = append(names, p.name)
	}
	return names
}

// log returns what the programs have printed.
func (r *run) log() string {
	var text strings.Builder
	for _, p := range r.programs {
		if len(r.programs) > 1 {
			fmt.Fprintf(&text, "==> %s <==\n", p.name)
		}
		text.WriteString(p.Log())
	}
	return text.String()
}

// scope returns which objects belong to the run.
func (r *run) scope() oracle.Scope {
	return oracle.Scope{Namespace: r.namespace, Cluster: r.scenario.isCluster(), Names: r.scenario.names}
}

func (r *run) stopOutside() (err error) {
	for _, o := range r.outside {
		err = errors.Join(err, o.stop())
	}
	r.outside = nil
	return err
}

// mayExit returns a function that reports whether a program may have ended by itself with this status, and is to be
// started again: with the status that the scenario allows, after a request that failed, and before it has written anything
// since its start.
func (r *run) mayExit(p *program) func(status int, started time.Time) bool {
	return func(status int, started time.Time) bool {
		if r.mayHaveLostLease(p, started) {
			return true
		}
		if r.scenario.MayExit == 0 || status != r.scenario.MayExit {
			return false
		}
		disturbed := false
		for _, q := range r.recording.History().Requests {
			if q.Program != p.process.label {
				continue
			}
			if !q.Start.Before(started) && q.IsWrite() && !q.Failed() && !r.isIncidental(q.Resource) {
				return false
			}
			disturbed = disturbed || q.IsDisturbed() || q.Error != ""
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.holdUps.outageSince(p.process.label, started) {
			return disturbed // it comes back
		}
		p.exits++
		const limit = 50 // what is down for so long does not come back
		return disturbed && p.exits <= limit
	}
}

// isIncidental reports whether requests for a resource are not the controller's job: those for Events and Leases, unless
// the scenario names them.
func (r *run) isIncidental(resource string) bool {
	return (resource == "events" || resource == "leases") && !slices.Contains(r.scenario.plurals(), resource)
}

// beginStep notes that a step begins.
func (r *run) beginStep(name string) {
	now := time.Now()
	r.stepStarts = append(r.stepStarts, now)
	r.recordStep(now, name)
}

func (r *run) recordStep(at time.Time, name string) {
	r.recording.Record(history.Record{Step: &history.Step{Time: at, Name: name}})
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
	}
	return nil
}

// state returns the latest state of the cluster and of what is outside of it, and a channel that is closed when the
// cluster changes.
func (r *run) state(ctx context.Context) (oracle.State, <-chan struct{}, error) {
	state, changed := r.states.Now()
	for _, o := range r.outside {
		if err := o.list(ctx, state); err != nil {
			return nil, nil, err
		}
	}
	return state, changed, nil
}
