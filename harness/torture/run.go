package torture

import (
	"cmp"
	"context"
	"encoding/json"
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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/environ"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/oracle"
)

// Verdict is how a run went wrong, in the words of the table; "" for well.
type Verdict string

// The verdicts, the most telling first.
const (
	Well        Verdict = ""
	Died        Verdict = "died"
	NoStop      Verdict = "does not stop"
	Lost        Verdict = "change lost"
	Different   Verdict = "ends differently"
	RuleBroken  Verdict = "rule broken"
	TooMuch     Verdict = "did too much"
	TooLittle   Verdict = "did too little"
	NoRest      Verdict = "does not come to rest"
	NotPossible Verdict = "could not be run" // it is nobody's fault but ours or the scenario's
)

// Outcome is what came of a run.
type Outcome struct {
	Plan    Plan
	Verdict Verdict
	Why     string // in a sentence
	// Missed says that nothing was done to any request: what the plan aims at did not come.
	Missed   bool
	History  *history.History
	Log      string // of the controller
	Duration time.Duration
}

// observed is what the oracles compare.
type observed struct {
	end     []string // normalized
	effects oracle.Effects
	quiet   int             // requests while nothing happens
	events  int             // of them, writes of Events that are not looked at
	hears   map[string]bool // the resources of which it is sent events
}

// arena is a control plane that runs are on.
type arena struct {
	cluster *cluster.Cluster
	clients *clients
	crash   func() // kills it and brings it back; nil where it is shared
}

// runner runs plans.
type runner struct {
	ring     *Ring
	scenario *Scenario
	rules    rules
	command  []string // with {kubeconfig} and {namespace}
	text     string   // manifests, for namespace placeholder
	// outsideCommands are those of the programs beside the cluster, by name.
	outsideCommands map[string][]string
	scratch         string
	want            observed // of the undisturbed run
}

// run is one.
type run struct {
	*runner
	arena      *arena
	plan       Plan
	namespace  string
	resources  []schema.GroupVersionResource
	states     *oracle.States
	proxy      *apiproxy.Proxy
	outside    []*outside
	recording  history.Memory
	controller *controller
	since      contact     // the controller's last start
	failed     chan string // how the controller ended by itself
	stopFault  string      // what was wrong when a fault told it to stop
	stopping   sync.WaitGroup
	exits      int
	mu         sync.Mutex
	parts      []time.Time // when a step began
}

// verdict is an error that is a verdict.
type verdict struct {
	Verdict
	why string
}

func (v verdict) Error() string { return string(v.Verdict) + ": " + v.why }

// do runs a plan. The error is for what ends all of it, such as Ctrl-C.
func (r *runner) do(ctx context.Context, a *arena, plan Plan) (Outcome, observed, error) {
	start := time.Now()
	namespace := cmp.Or(r.scenario.Namespace, fmt.Sprintf("torture-%d", r.ring.number.Add(1)))
	one := &run{runner: r, arena: a, plan: plan, namespace: namespace, failed: make(chan string, 1)}
	seen, err := one.do(ctx)
	outcome := Outcome{Plan: plan, History: one.recording.History(), Duration: time.Since(start)}
	if one.controller != nil {
		outcome.Log = one.controller.Log()
	}
	outcome.Missed = len(plan.Faults) > 0 && !slices.ContainsFunc(outcome.History.Requests, history.Request.IsDisturbed)
	var v verdict
	switch silent := (*SilentError)(nil); {
	case ctx.Err() != nil:
		return outcome, seen, context.Cause(ctx)
	case errors.As(err, &silent):
		return outcome, seen, silent
	case errors.As(err, &v):
		outcome.Verdict, outcome.Why = v.Verdict, v.why
	case err != nil:
		outcome.Verdict, outcome.Why = NotPossible, err.Error()
	}
	return outcome, seen, nil
}

func (r *run) do(ctx context.Context) (seen observed, err error) {
	k := r.arena.clients
	clean, err := r.makeRoom(ctx)
	if err != nil {
		return seen, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, clean(ctx))
	}()
	if err := k.apply(ctx, r.text, r.namespace); err != nil {
		return seen, err
	}
	for _, name := range r.scenario.Resources {
		resource, err := k.find(ctx, name)
		if err != nil {
			return seen, err
		}
		r.resources = append(r.resources, resource)
	}
	if r.states, err = oracle.Watch(ctx, k.dynamic, r.namespace, r.resources); err != nil {
		return seen, err
	}
	defer r.states.Stop()
	if err := r.await(ctx, r.rules.ready); err != nil {
		return seen, fmt.Errorf("the scenario's world does not get ready: %w", err)
	}
	for i, step := range r.scenario.Setup {
		if err := r.await(ctx, r.rules.setup[i]); err != nil {
			return seen, fmt.Errorf("setup %q cannot begin: %w", step.Name, err)
		}
		if err := r.doAll(ctx, step); err != nil {
			return seen, err
		}
		if err := r.await(ctx, r.rules.ready); err != nil {
			return seen, fmt.Errorf("the scenario's world does not get ready: %w", err)
		}
	}
	r.states.Mark()
	if err := r.launch(ctx); err != nil {
		return seen, err
	}
	defer func() {
		r.stopping.Wait()
		r.controller.kill()
		err = errors.Join(err, r.proxy.Stop(), r.stopOutside())
	}()
	if err := r.play(ctx); err != nil {
		return seen, err
	}
	if err := r.said(ctx); err != nil {
		return seen, err
	}
	if seen.quiet, seen.events, err = r.rest(ctx); err != nil {
		return seen, err
	}
	r.stopping.Wait()
	if r.stopFault != "" {
		return seen, verdict{NoStop, r.stopFault}
	}
	if wrong := r.controller.stop(r.scenario.StopsWith); wrong != "" {
		return seen, verdict{NoStop, wrong}
	}
	for _, q := range r.recording.History().Requests {
		if q.Status == 0 && q.Error != "" && q.OnlyToldToStop() && !r.isAside(q.Resource) {
			return seen, verdict{NoStop, fmt.Sprintf("it cuts off what it is at when it is told to stop (%s %s %s)", q.Verb, q.What(), within(q.Object(), r.namespace))}
		}
	}
	if err := r.states.Err(); err != nil {
		return seen, err
	}
	state, _, err := r.now(ctx)
	if err != nil {
		return seen, err
	}
	seen.end = oracle.Normalize(state, r.namespace, r.scenario.mayDiffer)
	seen.effects = oracle.EffectsOf(r.recording.History(), r.namespace, r.scenario.plurals(), classes(r.states.Classes()))
	seen.hears = map[string]bool{}
	for _, e := range r.recording.History().Events {
		seen.hears[e.Resource] = true
	}
	if r.states.Gaps() == 0 {
		seen.effects.Changes = r.states.Counts()
	}
	return seen, r.judge(seen)
}

// makeRoom makes the namespace of the run. clean removes what the run has made.
func (r *run) makeRoom(ctx context.Context) (clean func(context.Context) error, err error) {
	k := r.arena.clients
	if r.scenario.Namespace == "" {
		_, err = k.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}}, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("make namespace %s: %w", r.namespace, err)
		}
		return func(ctx context.Context) error { // it goes by itself; the next run has another
			err := k.CoreV1().Namespaces().Delete(ctx, r.namespace, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("delete namespace %s: %w", r.namespace, err)
			}
			return nil
		}, nil
	}
	return func(ctx context.Context) error {
		if r.states == nil {
			return nil
		}
		for i, name := range r.scenario.Resources {
			client := k.dynamic.Resource(r.resources[i]).Namespace(r.namespace)
			old := r.states.Before(r.resources[i].Resource)
			err := wait.PollUntilContextCancel(ctx, look, true, func(ctx context.Context) (bool, error) {
				list, err := client.List(ctx, metav1.ListOptions{})
				if err != nil {
					return false, nil // the control plane may have just been killed
				}
				left := 0
				for _, item := range list.Items {
					if !old[item.GetName()] {
						left++
						_ = client.Delete(ctx, item.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
					}
				}
				return left == 0, nil
			})
			if err != nil {
				return fmt.Errorf("delete the %s of %s: %w", name, r.namespace, err)
			}
		}
		return nil
	}, nil
}

// said waits until the controller has printed what it must.
func (r *run) said(ctx context.Context) error {
	for begin := time.Now(); ; {
		log := r.controller.Log()
		missing := slices.IndexFunc(r.scenario.Says, func(text string) bool { return !strings.Contains(log, text) })
		if missing < 0 {
			return nil
		}
		if time.Since(begin) > r.scenario.Patience.Duration {
			if err := r.silence(0); err != nil {
				return err
			}
			return verdict{Lost, fmt.Sprintf("it does not say %q, %s after the last change", r.scenario.Says[missing], r.scenario.Patience.Duration)}
		}
		if err := r.pass(ctx, nil, look); err != nil {
			return err
		}
	}
}

// launch starts the proxy and the controller.
func (r *run) launch(ctx context.Context) error {
	upstream, err := r.arena.cluster.Config()
	if err != nil {
		return err
	}
	if r.scenario.Account != "" {
		if upstream, err = r.arena.cluster.ServiceAccountConfig(ctx, r.namespace, r.scenario.Account); err != nil {
			return err
		}
	} else {
		upstream.QPS = 0 // client-go's own limit, as a controller has it
	}
	kubeconfig := filepath.Join(r.scratch, r.namespace+".kubeconfig")
	env, err := environ.Isolated(filepath.Join(r.scratch, r.namespace+".home"), r.scenario.Env...)
	if err != nil {
		return err
	}
	r.controller = &controller{
		env:  append(env, "KUBECONFIG="+kubeconfig, "KUBE_CACHE_MUTATION_DETECTOR=true"),
		fail: r.failed, excuse: r.excuse, started: r.begin,
	}
	options := apiproxy.Options{
		Upstream: upstream, Record: r.recording.Record, Faults: r.plan.Faults, Crash: r.arena.crash,
		Kill: func() {
			r.controller.kill()
			r.again()
		},
		Stop: func() {
			r.stopping.Go(func() {
				if wrong := r.controller.stop(r.scenario.StopsWith); wrong != "" {
					r.mu.Lock()
					r.stopFault = wrong
					r.mu.Unlock()
				}
				r.again()
			})
			r.controller.awaitLeaving()
		},
	}
	if !isTold(r.command) && r.scenario.Namespace == "" {
		options.Namespace = r.namespace
		for _, resource := range r.resources {
			options.Within = append(options.Within, resource.GroupResource())
		}
	}
	// It outlives the controller, whose last requests are part of the recording.
	if r.proxy, err = apiproxy.Start(context.WithoutCancel(ctx), options); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(r.scenario.Outside)) {
		o, err := r.startOutside(ctx, name, options)
		if err != nil {
			return errors.Join(err, r.stopOutside(), r.proxy.Stop())
		}
		r.outside = append(r.outside, o)
		for key, value := range o.Env {
			r.controller.env = append(r.controller.env, key+"="+strings.ReplaceAll(value, "{url}", o.proxy.URL()))
		}
	}
	if err := cluster.WriteKubeconfig(kubeconfig, r.proxy.Config(), r.namespace); err != nil {
		return errors.Join(err, r.proxy.Stop(), r.stopOutside())
	}
	fill := strings.NewReplacer("{kubeconfig}", kubeconfig, "{namespace}", r.namespace)
	for _, word := range r.command {
		r.controller.command = append(r.controller.command, fill.Replace(word))
	}
	if err := r.controller.start(); err != nil {
		return errors.Join(err, r.proxy.Stop(), r.stopOutside())
	}
	return nil
}

func (r *run) stopOutside() (err error) {
	for _, o := range r.outside {
		err = errors.Join(err, o.stop())
	}
	r.outside = nil
	return err
}

// now returns the last state that is known, and a channel that is closed when there is another in the cluster.
func (r *run) now(ctx context.Context) (oracle.State, <-chan struct{}, error) {
	state, changed := r.states.Now()
	for _, o := range r.outside {
		if err := o.look(ctx, state); err != nil {
			return nil, nil, err
		}
	}
	return state, changed, nil
}

// excuse says whether the controller may have ended by itself, and is to be started again: with the status that
// the scenario allows, and before any of its requests since its start was answered well.
func (r *run) excuse(status int, started time.Time) bool {
	if r.scenario.MayExit == 0 || status != r.scenario.MayExit {
		return false
	}
	disturbed := false
	for _, q := range r.recording.History().Requests {
		if !q.Start.Before(started) && !q.Failed() {
			return false
		}
		disturbed = disturbed || q.IsDisturbed() || q.Error != ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.exits++
	const most = 50 // what is down that long does not come back
	return disturbed && r.exits <= most
}

// again starts the controller after a fault has ended it, as a Deployment would.
func (r *run) again() {
	if err := r.controller.start(); err != nil {
		select {
		case r.failed <- err.Error():
		default:
		}
	}
}

// play plays the steps.
func (r *run) play(ctx context.Context) error {
	r.parts = append(r.parts, time.Now())
	if err := r.hear(ctx); err != nil {
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
		r.parts = append(r.parts, time.Now())
		if err := r.doAll(ctx, step); err != nil {
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

// doAll does what is to be done in a step, and waits until we have heard of it ourselves.
func (r *run) doAll(ctx context.Context, step Step) error {
	for _, action := range step.Do {
		var writes []write
		// Where the control plane is killed, what we do ourselves may have to wait until it is back.
		for begin := time.Now(); ; {
			var err error
			if writes, err = r.act(ctx, action); err == nil {
				break
			}
			isDown := r.arena.crash != nil && (utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err))
			if !isDown || time.Since(begin) > time.Minute {
				return err
			}
			if err := r.pass(ctx, nil, 4*look); err != nil {
				return err
			}
		}
		for _, w := range writes {
			for !r.states.Seen(w.resource, w.resourceVersion) && r.states.Err() == nil {
				if err := r.pass(ctx, nil, look/10); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// pass waits for a time, or until the controller ends by itself.
func (r *run) pass(ctx context.Context, changed <-chan struct{}, long time.Duration) error {
	select {
	case <-changed:
		return r.silence(silenceLimit)
	case <-time.After(long):
		return r.silence(silenceLimit)
	case why := <-r.failed:
		return verdict{Died, why}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// look is how often it is looked at what does not tell us when it changes.
const look = 50 * time.Millisecond

// await waits until conditions hold that are not for the controller to bring about.
func (r *run) await(ctx context.Context, rules *oracle.Rules) error {
	const limit = 20 * time.Second
	for begin := time.Now(); ; {
		state, changed, err := r.now(ctx)
		if err != nil {
			return err
		}
		broken := rules.Broken(state, nil)
		if broken == "" {
			return nil
		}
		if time.Since(begin) > limit {
			return fmt.Errorf("%s, after %s", broken, limit)
		}
		if err := r.pass(ctx, changed, 4*look); err != nil {
			return err
		}
	}
}

// settle waits until nothing has passed between the controller and the API server for a moment: it has heard
// of everything, and has nothing to do. Where it does not settle, that is for others to judge.
func (r *run) settle(ctx context.Context) error {
	const moment, limit = 400 * time.Millisecond, 5 * time.Second
	count, since := -1, time.Now()
	for begin := time.Now(); time.Since(begin) < limit; {
		if now := r.recording.Len(); now != count {
			count, since = now, time.Now()
		}
		if count > 0 && time.Since(since) > moment {
			return nil
		}
		if err := r.pass(ctx, nil, look); err != nil {
			return err
		}
	}
	return nil
}

// hear waits until the controller has heard of each resource that it watches undisturbed. It may be long in
// coming, so it is not waited for ever.
func (r *run) hear(ctx context.Context) error {
	const limit = 5 * time.Second
	for begin := time.Now(); time.Since(begin) < limit; {
		missing := maps.Clone(r.want.hears)
		for _, e := range r.recording.History().Events {
			delete(missing, e.Resource)
		}
		if len(missing) == 0 {
			return nil
		}
		if err := r.pass(ctx, nil, look); err != nil {
			return err
		}
	}
	return nil
}

// converge waits until the controller has done its job.
func (r *run) converge(ctx context.Context, what string) error {
	for begin := time.Now(); ; {
		state, changed, err := r.now(ctx)
		if err != nil {
			return err
		}
		broken := r.rules.converged.Broken(state, nil)
		if broken == "" {
			return nil
		}
		if err := r.states.Err(); err != nil {
			return err
		}
		if time.Since(begin) > r.scenario.Patience.Duration {
			if err := r.silence(0); err != nil {
				return err
			}
			return verdict{Lost, fmt.Sprintf("%s, %s after %s", within(broken, r.namespace), r.scenario.Patience.Duration, what)}
		}
		if err := r.pass(ctx, changed, 4*look); err != nil {
			return err
		}
	}
}

func within(text, namespace string) string { return strings.ReplaceAll(text, namespace+"/", "") }

// isAside says whether requests for a resource are not what a controller is about, unless it is looked at.
func (r *run) isAside(resource string) bool {
	return (resource == "events" || resource == "leases") && !slices.Contains(r.scenario.plurals(), resource)
}

// quiet waits for the quiet time, and returns what passed in it. Where a controller asks now and then, it may be then
// that something goes wrong, or what is done late may come then. In that case it begins again.
func (r *run) quiet(ctx context.Context) (*history.History, error) {
	const enough = 4
	for try := 1; ; try++ {
		if err := r.settle(ctx); err != nil {
			return nil, err
		}
		if try > 1 || r.plan.doneLate() {
			if err := r.converge(ctx, "the end"); err != nil {
				return nil, err
			}
			if err := r.settle(ctx); err != nil {
				return nil, err
			}
		}
		from := time.Now()
		if err := r.pass(ctx, nil, r.scenario.Quiet.Duration); err != nil {
			return nil, err
		}
		quiet := r.recording.History().Between(from, time.Time{})
		if try == enough || !slices.ContainsFunc(quiet.Requests, history.Request.IsDisturbed) {
			return quiet, nil
		}
	}
}

// rest waits for the quiet time, in which nothing may be written.
func (r *run) rest(ctx context.Context) (requests, events int, err error) {
	quiet, err := r.quiet(ctx)
	if err != nil {
		return 0, 0, err
	}
	for _, w := range quiet.Writes() {
		if r.isAside(w.Resource) {
			if w.Resource == "events" {
				events++
			}
			continue
		}
		if oracle.MayDiffer(fmt.Sprintf("%s %s", w.Verb, w.What()), r.scenario.MayDiffer.AtRest) {
			continue
		}
		return 0, 0, verdict{NoRest, fmt.Sprintf("%d writes in %s in which nothing happens, such as: %s %s %s",
			len(quiet.Writes()), r.scenario.Quiet.Duration, w.Verb, w.What(), within(w.Object(), r.namespace))}
	}
	state, _, err := r.now(ctx)
	if err != nil {
		return 0, 0, err
	}
	if broken := r.rules.converged.Broken(state, nil); broken != "" {
		return 0, 0, verdict{NoRest, "it was done, and then it was not any more: " + broken}
	}
	for _, q := range quiet.Requests {
		if q.Resource != "leases" {
			requests++
		}
	}
	return requests, events, nil
}

// lateEvents is how many Events may come late: those that could not be written before.
func (r *run) lateEvents() (count int) {
	if slices.ContainsFunc(r.plan.Faults, func(f apiproxy.Fault) bool { return f.Down != 0 || f.Crash != "" }) {
		return math.MaxInt / 2 // who cannot connect is not heard of
	}
	for _, q := range r.recording.History().Requests {
		if q.Resource == "events" && (q.Failed() || q.IsDisturbed()) {
			count++
		}
	}
	return count
}

// judge compares what was seen with the undisturbed run, and with the rules.
func (r *run) judge(seen observed) error {
	if broken, change := r.rules.invariants.BrokenEver(r.states); broken != "" {
		return verdict{RuleBroken, fmt.Sprintf("%s (%s %s %s)", broken, change.Type, change.Resource, change.Name())}
	}
	if err := r.judgeTries(); err != nil {
		return err
	}
	if r.want.end == nil { // this is the undisturbed run
		return nil
	}
	if different := oracle.Compare(r.want.end, seen.end); different != "" {
		return verdict{Different, different}
	}
	// A controller that asks now and then may do so by chance more often, and two watches may begin anew.
	if most := 2*r.want.quiet + 2; seen.quiet > most {
		return verdict{NoRest, fmt.Sprintf("%d requests in %s in which nothing happens; undisturbed there are %d",
			seen.quiet, r.scenario.Quiet.Duration, r.want.quiet)}
	}
	// Who looks again because of what went wrong may say so.
	if most := r.want.events + seen.effects.Excused + r.lateEvents(); seen.events > most {
		return verdict{NoRest, fmt.Sprintf("%d Events in %s in which nothing happens; undisturbed there are %d",
			seen.events, r.scenario.Quiet.Duration, r.want.events)}
	}
	tooMuch, tooLittle := oracle.CompareEffects(r.want.effects, seen.effects, r.scenario.MayDiffer.Writes)
	switch {
	case tooMuch != "":
		return verdict{TooMuch, tooMuch}
	case tooLittle != "":
		return verdict{TooLittle, tooLittle}
	}
	return nil
}

// judgeTries looks for an object that was tried to be written too often between two steps.
func (r *run) judgeTries() error {
	most := r.scenario.MostTries
	if most == 0 {
		return nil
	}
	all := r.recording.History()
	for i, from := range r.parts {
		var to time.Time
		if i+1 < len(r.parts) {
			to = r.parts[i+1]
		}
		tries := oracle.EffectsOf(all.Between(from, to), r.namespace, r.scenario.plurals(), func(_, name string) string { return name }).Tries
		for _, what := range slices.Sorted(maps.Keys(tries)) {
			if tries[what] > most {
				return verdict{NoRest, fmt.Sprintf("%s: tried %d times, should be %d at most", what, tries[what], most)}
			}
		}
	}
	return nil
}

// act does one action of a step.
func (r *run) act(ctx context.Context, a Action) (writes []write, err error) {
	k := r.arena.clients
	switch {
	case a.Pause.Duration != 0:
		return nil, r.pass(ctx, nil, a.Pause.Duration)
	case a.Controller == "stop":
		r.stopping.Wait()
		if wrong := r.controller.stop(r.scenario.StopsWith); wrong != "" {
			return nil, verdict{NoStop, wrong}
		}
		return nil, nil
	case a.Controller == "start":
		return nil, r.controller.start()
	case a.Request != nil:
		at := slices.IndexFunc(r.outside, func(o *outside) bool { return o.name == a.Request.To })
		if at < 0 {
			return nil, fmt.Errorf("request: %s does not run yet; it is started with the controller", a.Request.To)
		}
		return nil, r.outside[at].do(ctx, a.Request)
	case a.Apply != nil:
		wrote, err := k.applyOne(ctx, &unstructured.Unstructured{Object: a.Apply}, r.namespace)
		return []write{wrote}, err
	}
	ref := a.reference()
	if ref == nil {
		ref = a.Delete
	}
	resource, err := k.find(ctx, ref.Resource)
	if err != nil {
		return nil, err
	}
	client := k.dynamic.Resource(resource).Namespace(r.namespace)
	names := []string{ref.Name}
	if ref.Selector != "" {
		list, err := client.List(ctx, metav1.ListOptions{LabelSelector: ref.Selector})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", ref.Resource, err)
		}
		names = nil
		for _, item := range list.Items {
			names = append(names, item.GetName())
		}
	}
	for _, name := range names {
		if a.Delete != nil {
			old, err := client.Get(ctx, name, metav1.GetOptions{})
			if err == nil {
				err = client.Delete(ctx, name, metav1.DeleteOptions{})
			}
			if err != nil {
				return nil, fmt.Errorf("delete %s %s: %w", ref.Resource, name, err)
			}
			if err := r.gone(ctx, resource.Resource, old); err != nil {
				return nil, err
			}
			continue
		}
		merge, err := json.Marshal(a.Patch.Merge)
		if err != nil {
			return nil, err
		}
		patched, err := client.Patch(ctx, name, types.MergePatchType, merge, metav1.PatchOptions{FieldManager: fieldManager})
		if err != nil {
			return nil, fmt.Errorf("patch %s %s: %w", ref.Resource, name, err)
		}
		writes = append(writes, write{resource.Resource, patched.GetResourceVersion()})
	}
	return writes, nil
}

// gone waits until we have heard that an object is being deleted or is no more.
func (r *run) gone(ctx context.Context, resource string, old *unstructured.Unstructured) error {
	if !slices.Contains(r.scenario.plurals(), resource) {
		return nil
	}
	for {
		state, changed := r.states.Now()
		object, ok := state[resource][old.GetName()]
		now := unstructured.Unstructured{Object: object}
		if !ok || now.GetUID() != old.GetUID() || now.GetDeletionTimestamp() != nil {
			return r.states.Err()
		}
		if err := r.pass(ctx, changed, 4*look); err != nil {
			return err
		}
	}
}
