package torture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/environ"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/oracle"
)

// subject is a controller and all that its runs share. It does not change.
type subject struct {
	lab       *Lab
	scenario  *Scenario
	rules     rules
	command   []string // with {kubeconfig} and {namespace} to be replaced
	manifests string   // YAML, for the namespace placeholder
	// outsideCommands are the programs beside the cluster, by name.
	outsideCommands map[string][]string
	scratch         string // a directory that is removed with the Lab
}

// run is one run of the scenario.
type run struct {
	*subject
	controlPlane *controlPlane
	plan         Plan
	namespace    string
	// watched are the resources of which the controller must be sent events before the first step; nil for none.
	watched map[string]bool

	resources  []schema.GroupVersionResource // of the scenario, in its order
	states     *oracle.States                // of those resources
	outside    []*outside
	proxy      *apiproxy.Proxy
	controller *process
	recording  history.Memory // of all proxies
	stepStarts []time.Time

	died    chan *Failure  // receives how the controller ended by itself
	stops   sync.WaitGroup // stops that a fault has asked for and that are not over
	contact contact        // the latest start of the controller

	mu        sync.Mutex
	stopFault *Failure // how the controller did not stop when a fault asked it to
	exits     int      // how often the controller was allowed to end by itself
}

// run runs one plan on a control plane, and judges it by a baseline, or by itself if that is nil. The error is one that
// ends everything, such as Ctrl-C; that this run could not be carried out is part of the outcome.
func (s *subject) run(ctx context.Context, p *controlPlane, plan Plan, b *Baseline) (Outcome, *observation, error) {
	start := time.Now()
	r := &run{
		subject: s, controlPlane: p, plan: plan, died: make(chan *Failure, 1),
		namespace: cmp.Or(s.scenario.Namespace, fmt.Sprintf("torture-%d", s.lab.runs.Add(1))),
	}
	if b != nil {
		r.watched = b.watched
	}
	seen, err := r.execute(ctx)
	outcome := Outcome{Plan: plan, History: r.recording.History()}
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
	if r.controller != nil {
		outcome.Log = r.controller.Log()
	}
	if len(r.stepStarts) > 0 {
		outcome.FailedAt = r.stepStarts[len(r.stepStarts)-1]
	}
	outcome.NotMet = len(plan.Faults) > 0 && !slices.ContainsFunc(outcome.History.Requests, history.Request.IsDisturbed)
	outcome.Duration = time.Since(start)
	var failure *Failure
	switch silent := (*SilentError)(nil); {
	case ctx.Err() != nil:
		return outcome, seen, context.Cause(ctx)
	case errors.As(err, &silent):
		return outcome, seen, silent
	case errors.As(err, &failure):
		outcome.Verdict, outcome.Cause, outcome.Message = failure.Verdict, failure.Cause, failure.Message
	case err != nil:
		outcome.Verdict, outcome.Message = NotRun, err.Error()
	}
	return outcome, seen, nil
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
	if r.states, err = oracle.Watch(ctx, r.controlPlane.clients.dynamic, r.namespace, r.resources); err != nil {
		return nil, err
	}
	defer r.states.Stop()
	if err := r.setUp(ctx); err != nil {
		return nil, err
	}
	r.states.Mark()
	if err := r.launch(ctx); err != nil {
		return nil, err
	}
	defer func() {
		r.stops.Wait()
		r.controller.kill()
		err = errors.Join(err, r.proxy.Stop(), r.stopOutside())
	}()
	if err := r.play(ctx); err != nil {
		return nil, err
	}
	if err := r.awaitOutput(ctx); err != nil {
		return nil, err
	}
	seen = new(observation)
	if seen.rest, err = r.awaitRest(ctx); err != nil {
		return nil, err
	}
	if failure := r.stopController(); failure != nil {
		return nil, failure
	}
	return seen, r.observe(ctx, seen)
}

// prepareNamespace creates the namespace of the run. clean removes what the run has created.
func (r *run) prepareNamespace(ctx context.Context) (clean func(context.Context) error, err error) {
	if r.scenario.Namespace != "" {
		return r.cleanNamespace, nil
	}
	namespaces := r.controlPlane.clients.CoreV1().Namespaces()
	_, err = namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create namespace %s: %w", r.namespace, err)
	}
	return func(ctx context.Context) error { // nobody waits until it is gone: the next run has another one
		err := namespaces.Delete(ctx, r.namespace, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete namespace %s: %w", r.namespace, err)
		}
		return nil
	}, nil
}

// cleanNamespace deletes what a run has created in a namespace that stays.
func (r *run) cleanNamespace(ctx context.Context) error {
	if r.states == nil {
		return nil
	}
	for i, name := range r.scenario.Resources {
		client := r.controlPlane.clients.dynamic.Resource(r.resources[i]).Namespace(r.namespace)
		before := r.states.Before(r.resources[i].Resource)
		err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
			list, err := client.List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, nil // the control plane may have been killed just now
			}
			left := 0
			for _, item := range list.Items {
				if !before[item.GetName()] {
					left++
					_ = client.Delete(ctx, item.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}) // the next List tells
				}
			}
			return left == 0, nil
		})
		if err != nil {
			return fmt.Errorf("delete the %s of %s: %w", name, r.namespace, err)
		}
	}
	return nil
}

// prepareObjects applies the manifests and finds the scenario's resources.
func (r *run) prepareObjects(ctx context.Context) error {
	if err := r.controlPlane.clients.apply(ctx, r.manifests, r.namespace); err != nil {
		return err
	}
	for _, name := range r.scenario.Resources {
		resource, err := r.controlPlane.clients.find(ctx, name)
		if err != nil {
			return err
		}
		r.resources = append(r.resources, resource)
	}
	return nil
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

// launch starts the proxy, what is outside of the cluster, and the controller.
func (r *run) launch(ctx context.Context) (err error) {
	upstream, err := r.controlPlane.cluster.Config()
	if err != nil {
		return err
	}
	if r.scenario.Account != "" {
		if upstream, err = r.controlPlane.cluster.ServiceAccountConfig(ctx, r.namespace, r.scenario.Account); err != nil {
			return err
		}
	} else {
		upstream.QPS = 0 // client-go's default limit, which the controller has too
	}
	kubeconfig := filepath.Join(r.scratch, r.namespace+".kubeconfig")
	env, err := environ.Isolated(filepath.Join(r.scratch, r.namespace+".home"), r.scenario.Env...)
	if err != nil {
		return err
	}
	replace := strings.NewReplacer("{kubeconfig}", kubeconfig, "{namespace}", r.namespace)
	r.controller = &process{
		env:     append(env, "KUBECONFIG="+kubeconfig, "KUBE_CACHE_MUTATION_DETECTOR=true"),
		died:    r.died,
		mayExit: r.mayExit, starting: r.noteStart,
	}
	for _, word := range r.command {
		r.controller.command = append(r.controller.command, replace.Replace(word))
	}
	options := apiproxy.Options{
		Upstream: upstream, Record: r.recording.Record, Faults: r.plan.Faults,
		Kill: r.killAndRestart, Crash: r.controlPlane.crash, Stop: r.stopAndRestart,
	}
	if !isToldNamespace(r.command) && r.scenario.Namespace == "" {
		options.Namespace = r.namespace
		for _, resource := range r.resources {
			options.Within = append(options.Within, resource.GroupResource())
		}
	}
	// The proxy outlives the controller, whose last requests belong to the recording.
	if r.proxy, err = apiproxy.Start(context.WithoutCancel(ctx), options); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.stopOutside(), r.proxy.Stop())
		}
	}()
	for _, name := range slices.Sorted(maps.Keys(r.scenario.Outside)) {
		o, err := r.startOutside(ctx, name, options)
		if err != nil {
			return err
		}
		r.outside = append(r.outside, o)
		for key, value := range o.Env {
			r.controller.env = append(r.controller.env, key+"="+strings.ReplaceAll(value, "{url}", o.proxy.URL()))
		}
	}
	if err := cluster.WriteKubeconfig(kubeconfig, r.proxy.Config(), r.namespace); err != nil {
		return err
	}
	return r.controller.start()
}

// isToldNamespace reports whether a controller gets its namespace as an argument.
func isToldNamespace(command []string) bool {
	return strings.Contains(strings.Join(command, " "), "{namespace}")
}

// killAndRestart is what a fault calls to kill the controller.
func (r *run) killAndRestart() {
	r.controller.kill()
	r.restart()
}

// stopAndRestart is what a fault calls to stop the controller. It returns as soon as the controller has been told.
func (r *run) stopAndRestart() {
	r.stops.Go(func() {
		if failure := r.controller.stop(r.scenario.StopsWith); failure != nil {
			r.mu.Lock()
			r.stopFault = failure
			r.mu.Unlock()
		}
		r.restart()
	})
	r.controller.awaitStopping()
}

// restart starts the controller after a fault has ended it, as a Deployment would.
func (r *run) restart() {
	if err := r.controller.start(); err != nil {
		select {
		case r.died <- &Failure{Died, "start", err.Error()}:
		default: // it has failed already
		}
	}
}

// stopController stops the controller at the end of the run.
func (r *run) stopController() *Failure {
	r.stops.Wait()
	r.mu.Lock()
	failure := r.stopFault
	r.mu.Unlock()
	if failure != nil {
		return failure
	}
	return r.controller.stop(r.scenario.StopsWith)
}

func (r *run) stopOutside() (err error) {
	for _, o := range r.outside {
		err = errors.Join(err, o.stop())
	}
	r.outside = nil
	return err
}

// mayExit reports whether the controller may have ended by itself with this status, and is to be started again: with
// the status that the scenario allows, after a request that failed, and before it has written anything since its start.
func (r *run) mayExit(status int, started time.Time) bool {
	if r.scenario.MayExit == 0 || status != r.scenario.MayExit {
		return false
	}
	disturbed := false
	for _, q := range r.recording.History().Requests {
		if !q.Start.Before(started) && q.IsWrite() && !q.Failed() && !r.isIncidental(q.Resource) {
			return false
		}
		disturbed = disturbed || q.IsDisturbed() || q.Error != ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.exits++
	const limit = 50 // what is down for so long does not come back
	return disturbed && r.exits <= limit
}

// isIncidental reports whether requests for a resource are not the controller's job: those for Events and Leases, unless
// the scenario names them.
func (r *run) isIncidental(resource string) bool {
	return (resource == "events" || resource == "leases") && !slices.Contains(r.scenario.plurals(), resource)
}

// play waits until the controller has done its job, and takes the steps.
func (r *run) play(ctx context.Context) error {
	r.stepStarts = append(r.stepStarts, time.Now())
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
		if err := r.await(ctx, r.rules.when[i]); err != nil {
			return fmt.Errorf("step %q cannot begin: %w", step.Name, err)
		}
		r.stepStarts = append(r.stepStarts, time.Now())
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

// observe completes what the run showed, after the controller has stopped.
func (r *run) observe(ctx context.Context, seen *observation) error {
	if err := r.states.Err(); err != nil {
		return err
	}
	state, _, err := r.state(ctx)
	if err != nil {
		return err
	}
	recorded := r.recording.History()
	seen.end = oracle.Normalize(state, r.namespace, r.scenario.mayDiffer)
	seen.effects = oracle.EffectsOf(recorded, r.namespace, r.scenario.plurals(), outsideClasses(r.states.Classes()))
	if r.states.Gaps() == 0 {
		seen.effects.Changes = r.states.Counts()
	}
	seen.watched = map[string]bool{}
	for _, e := range recorded.Events {
		seen.watched[e.Resource] = true
	}
	for _, q := range recorded.Requests {
		if q.IsDisturbed() {
			seen.injected++
		}
		if q.Status == 0 && q.Error != "" && q.OnlyToldToStop() && !r.isIncidental(q.Resource) && !r.controller.killedWithin(q.Start, q.End()) {
			seen.cutOff = append(seen.cutOff, q)
		}
	}
	seen.attempts = r.attempts(recorded)
	seen.violation, seen.change = r.rules.invariants.CheckAll(r.states)
	return nil
}

// attempts counts the writes to each object, by step.
func (r *run) attempts(recorded *history.History) (all []map[string]int) {
	for i, from := range r.stepStarts {
		var to time.Time // the end
		if i+1 < len(r.stepStarts) {
			to = r.stepStarts[i+1]
		}
		byName := func(_, name string) string { return name }
		all = append(all, oracle.EffectsOf(recorded.Between(from, to), r.namespace, r.scenario.plurals(), byName).Attempts)
	}
	return all
}

// lateEvents is how many Events may be written late because they could not be written before.
func (r *run) lateEvents() (count int) {
	if r.plan.disconnects() {
		return math.MaxInt / 2 // requests that could not connect are not recorded
	}
	for _, q := range r.recording.History().Requests {
		if q.Resource == "events" && (q.Failed() || q.IsDisturbed()) {
			count++
		}
	}
	return count
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
