package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/exercise/inmemory"
	"example.com/controllers/harness/exercise/verdict"
	"example.com/controllers/harness/history"
)

// ControllerName is the name of a program that Start starts, in timelines and in the field Who of its requests.
const ControllerName = "controller"

// World is a cluster without controllers, in virtual time. Its methods must be called by the scene's own goroutine.
type World struct {
	// T is the scene's test. Report what the participant did wrong with Failf, and everything else, such as a mistake in
	// the check, with T.Fatal. Requests of the check need its context, T.Context(): that of the test around the scene does
	// not work in the scene's virtual time.
	T *testing.T
	// Client is a user's client. Its requests are in the timeline, and are not subject to faults.
	Client kubernetes.Interface
	// Server is the API server. Most scenes do not need it.
	Server *inmemory.Server

	out       *verdict.Writer
	start     time.Time
	recording history.Memory
	user      *inmemory.Client
	processes []*Process

	requests burst // of programs

	mu      sync.Mutex
	failure string      // the first failure; "" if there is none
	said    burst       // lines of say
	errors  []time.Time // when each error was logged
}

// burst counts what happens at one instant of virtual time.
type burst struct {
	instant time.Time
	count   int
}

// add counts one more, and returns how many there are at this instant.
func (b *burst) add() int {
	if now := time.Now(); !now.Equal(b.instant) {
		*b = burst{instant: now}
	}
	b.count++
	return b.count
}

func newWorld(t *testing.T, out *verdict.Writer) *World {
	w := &World{T: t, out: out, start: time.Now()}
	w.Server = inmemory.New(w.record)
	w.Server.OnBlindWrite(w.blindWrite)
	w.Server.OnChange(func(e history.Event) { out.Record(history.Record{Seen: &e}) })
	w.user = w.Server.NewClient("user", true, nil)
	w.Client = kubernetes.NewForConfigOrDie(w.user.Config())
	return w
}

// Config returns the configuration of a user's client, for clientsets of custom resources.
func (w *World) Config() *rest.Config { return w.user.Config() }

// Given adds objects to the world, as they are, with their status. An object of the same name is replaced. It needs no
// request, so it is not in the timeline. An object of a custom resource must have its TypeMeta set.
func (w *World) Given(objects ...apiruntime.Object) {
	w.T.Helper()
	for _, object := range objects {
		gvk := object.GetObjectKind().GroupVersionKind()
		if gvk.Empty() {
			kinds, _, err := scheme.Scheme.ObjectKinds(object)
			if err != nil {
				w.T.Fatalf("Given: %v", err)
			}
			gvk = kinds[0]
		}
		resource, _ := meta.UnsafeGuessKindToResource(gvk)
		stored, err := apiruntime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			w.T.Fatalf("Given: %v", err)
		}
		stored["kind"], stored["apiVersion"] = gvk.Kind, gvk.GroupVersion().String()
		if err := w.Server.Put(resource, withoutNulls(stored)); err != nil {
			w.T.Fatalf("Given: %v", err)
		}
	}
}

// withoutNulls removes the creationTimestamp that the conversion of a new object makes null.
func withoutNulls(object inmemory.Object) inmemory.Object {
	if metadata, ok := object["metadata"].(inmemory.Object); ok && metadata["creationTimestamp"] == nil {
		delete(metadata, "creationTimestamp")
	}
	return object
}

// Must ends the check if a user's request has failed: check.Must(client.Update(...)). Either the participant's controller has
// deleted or changed what the check works with, or the check has a mistake.
func Must[T any](object T, err error) T {
	if err != nil {
		_, file, line, _ := runtime.Caller(1)
		panic(brokenError(fmt.Sprintf("%s:%d: a request of the check failed: %v", filepath.Base(file), line, err)))
	}
	return object
}

// brokenError is why a check could not go on.
type brokenError string

// Delete deletes an object as the user.
func (w *World) Delete(resource, namespace, name string) {
	w.T.Helper()
	client := dynamic.NewForConfigOrDie(w.user.Config())
	if err := client.Resource(w.resource(resource)).Namespace(namespace).Delete(w.T.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.T.Fatalf("delete %s %s/%s: %v", resource, namespace, name, err)
	}
}

// Exists says whether there is an object.
func (w *World) Exists(resource, namespace, name string) bool {
	return slices.ContainsFunc(w.Server.Objects(w.resource(resource).GroupResource()), func(o inmemory.Object) bool {
		accessor := o["metadata"].(inmemory.Object)
		objectNamespace, _ := accessor["namespace"].(string)
		return accessor["name"] == name && objectNamespace == namespace
	})
}

// resource returns the resource that a name such as "pods" or "deployments.apps" stands for.
func (w *World) resource(name string) schema.GroupVersionResource {
	resource, group, _ := strings.Cut(name, ".")
	found, err := w.Server.Resource(schema.GroupResource{Group: group, Resource: resource})
	if err != nil {
		w.T.Fatal(err)
	}
	return found
}

// Process is a program that runs in the world.
type Process struct {
	w      *World
	name   string
	client *inmemory.Client
	cancel context.CancelFunc
	done   chan struct{}
	err    error // returned by the program, once done
	killed bool  // by Kill or a fault
	asked  bool  // to stop
}

// Start starts the participant's controller.
func (w *World) Start(run func(ctx context.Context, client kubernetes.Interface) error) *Process {
	return w.StartNamed(ControllerName, func(ctx context.Context, config *rest.Config) error {
		return run(ctx, kubernetes.NewForConfigOrDie(config))
	})
}

// StartNamed starts a program under a name for the timeline, such as "agent". A program that returns before it has been
// asked to stop fails the check.
func (w *World) StartNamed(name string, run func(ctx context.Context, config *rest.Config) error) *Process {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Process{w: w, name: name, cancel: cancel, done: make(chan struct{})}
	p.client = w.Server.NewClient(name, false, func() {
		w.say("world", "kills the "+name, "")
		p.mark(&p.killed)
		p.becomes(history.Killed, "by a fault")
		cancel()
	})
	w.processes = append(w.processes, p)
	w.say("world", "starts the "+name, "")
	p.becomes(history.Running, "")
	go func() {
		defer close(p.done)
		p.err = run(ctx, p.client.Config())
		if !p.is(&p.killed) {
			p.becomes(history.Ended, "")
		}
	}()
	return p
}

// becomes records what the program does from now on, and why if it was made to.
func (p *Process) becomes(state history.ProcessState, why string) {
	p.w.out.Record(history.Record{Process: &history.Process{Time: time.Now(), Program: p.name, State: state, Why: why}})
}

func (p *Process) mark(flag *bool) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	*flag = true
}

func (p *Process) is(flag *bool) bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return *flag
}

// stopLimit is how long, in virtual time, a program may take to stop.
const stopLimit = time.Minute

// Stop asks the program to stop, as SIGTERM does, and waits until it has. If that takes longer than a minute, the check
// fails.
func (p *Process) Stop() {
	if p.ended() {
		return
	}
	p.w.say("world", "asks the "+p.name+" to stop", "")
	p.mark(&p.asked)
	p.becomes(history.Stopping, "")
	p.cancel()
	select {
	case <-p.done:
	case <-time.After(stopLimit):
		p.w.Failf("The %s was still running %s after its context had been cancelled.", p.name, stopLimit)
	}
}

// Kill kills the program: its requests in flight fail, and so do all later ones.
func (p *Process) Kill() {
	p.w.say("world", "kills the "+p.name, "")
	p.mark(&p.killed)
	p.becomes(history.Killed, "")
	p.client.Disconnect()
	p.cancel()
	synctest.Wait()
}

// Done is closed when the program has returned. Err is then what it has returned.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns what the program has returned, or nil if it is still running.
func (p *Process) Err() error {
	if p.ended() {
		return p.err
	}
	return nil
}

func (p *Process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Advance lets time pass, and then waits until every goroutine is blocked.
func (w *World) Advance(d time.Duration) {
	w.T.Helper()
	time.Sleep(d)
	w.Settle()
}

// Settle waits, without letting time pass, until every goroutine is blocked.
func (w *World) Settle() {
	w.T.Helper()
	synctest.Wait()
	w.check()
}

// Eventually lets time pass until holds returns true. After the limit, the check fails with the message.
func (w *World) Eventually(limit time.Duration, holds func() bool, format string, args ...any) {
	w.T.Helper()
	for deadline := time.Now().Add(limit); ; w.Advance(min(limit, 100*time.Millisecond)) {
		w.Settle()
		if holds() {
			return
		}
		if !time.Now().Before(deadline) {
			w.Failf(format, args...)
		}
	}
}

// Never lets time pass, and fails the check with the message if happens returns true before it is over.
func (w *World) Never(during time.Duration, happens func() bool, format string, args ...any) {
	w.T.Helper()
	for end := time.Now().Add(during); ; w.Advance(min(during, 100*time.Millisecond)) {
		w.Settle()
		if happens() {
			w.Failf(format, args...)
		}
		if !time.Now().Before(end) {
			return
		}
	}
}

// Inject makes something go wrong with the requests of all programs but the user's, until Heal:
// "verb=delete,resource=pods,nth=2,refuse=500". See apiproxy.FaultUsage. Not all faults are available: see Server.Inject.
func (w *World) Inject(faults ...string) {
	w.T.Helper()
	for _, text := range faults {
		fault, err := apiproxy.ParseFault(text)
		if err != nil {
			w.T.Fatal(err)
		}
		w.InjectFault(fault)
	}
}

// InjectFault is Inject for faults that have no text, such as one with the effect Kill.
func (w *World) InjectFault(faults ...apiproxy.Fault) (remove func()) {
	w.T.Helper()
	remove, err := w.Server.Inject(faults...)
	if err != nil {
		w.T.Fatal(err)
	}
	return remove
}

// Heal ends all faults.
func (w *World) Heal() { w.Server.Heal() }

// BreakWatches breaks the watches of a resource while changes happen, so that informers miss the events in between and
// have to list the objects again.
func (w *World) BreakWatches(resource string, meanwhile func()) {
	w.T.Helper()
	gap := apiproxy.Fault{Effect: apiproxy.Effect{Refuse: 503}}
	gap.Resource = resource
	w.Say("breaks all watches of %s", resource)
	mend := w.InjectFault(gap)
	w.Server.CutWatches(resource)
	synctest.Wait()
	before := w.names(resource)
	meanwhile()
	after := w.names(resource)
	w.Server.ForgetChanges()
	mend()
	for _, name := range before {
		if !slices.Contains(after, name) {
			w.Say("lets watches work again; none saw %s %s go, so a cache that has it gets a tombstone", verdict.Singular(resource), name)
		}
	}
}

// names returns the names of all objects of a resource.
func (w *World) names(resource string) (names []string) {
	for _, object := range w.Server.Objects(w.resource(resource).GroupResource()) {
		metadata := object["metadata"].(inmemory.Object)
		namespace, _ := metadata["namespace"].(string)
		names = append(names, strings.TrimPrefix(fmt.Sprint(namespace, "/", metadata["name"]), "/"))
	}
	return names
}

// History returns the recording of all requests and watch events so far.
func (w *World) History() *history.History { return w.recording.History() }

// Requests returns the requests of a program so far.
func (w *World) Requests(program string) *history.History {
	return w.History().Where(func(r history.Request) bool { return r.Who == program })
}

// Writes returns the write requests of all programs but the user, in the order in which they were made. Events are left
// out.
func (w *World) Writes() []history.Request {
	return w.History().Where(func(r history.Request) bool { return r.Who != "user" && r.Resource != "events" }).Writes()
}

// Errors returns how many errors have been logged so far, without those of client-go about a watch that has failed.
func (w *World) Errors() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.errors)
}

// Since returns how much time has passed in the world.
func (w *World) Since() time.Duration { return time.Since(w.start) }

// Say adds a line to the timeline: something that the check did or found out. It is a step of the recording, too, so it should
// name objects, but not quote what is in them.
func (w *World) Say(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	w.out.Record(history.Record{Step: &history.Step{Time: time.Now(), Name: what}})
	w.say("world", what, "")
}

// Call adds a line to the timeline: what became of a program's call of something outside of the cluster. It is no step of the
// recording, so it may quote what the program has sent.
func (w *World) Call(format string, args ...any) { w.say("world", fmt.Sprintf(format, args...), "") }

func (w *World) say(who, what, note string) {
	w.out.Line(verdict.Line{At: w.Since(), Who: who, What: what, Note: note})
	w.mu.Lock()
	count := w.said.add()
	w.mu.Unlock()
	if count > maxAtOnce {
		w.fail(fmt.Sprintf("%d things happened without any time passing, the last one: %s. The controller never waits.", maxAtOnce, what))
		leave()
	}
}

// Failf ends the check. The message says in one or two sentences what went wrong in the world, to somebody who has not
// read the check, and not how to repair it.
func (w *World) Failf(format string, args ...any) {
	w.T.Helper()
	w.fail(fmt.Sprintf(format, args...))
	w.T.FailNow()
}

func (w *World) fail(message string) {
	w.mu.Lock()
	first := w.failure == ""
	if first {
		w.failure = message
	}
	w.mu.Unlock()
	if first {
		w.out.Fail(message)
	}
}

// hasFailed reports whether the verdict is known already.
func (w *World) hasFailed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failure != ""
}

// check fails the check if a program has ended by itself, or if a rule was broken meanwhile.
func (w *World) check() {
	w.T.Helper()
	if w.hasFailed() {
		w.T.FailNow()
	}
	for _, p := range w.processes {
		if !p.ended() || p.is(&p.killed) || p.is(&p.asked) {
			continue
		}
		if p.err != nil && !errors.Is(p.err, context.Canceled) {
			w.Failf("The %s exited with an error: %v.", p.name, p.err)
		}
		w.Failf("The %s returned although nobody had asked it to stop.", p.name)
	}
}

// end stops all programs. When a scene has failed already, they may not stop, which the bubble would report as a deadlock
// after the verdict.
func (w *World) end() {
	failed := w.T.Failed()
	w.Heal()
	for _, p := range w.processes {
		if p.ended() {
			continue
		}
		if failed {
			p.becomes(history.Stopping, "the check is over")
			p.client.Disconnect()
			p.cancel()
			select {
			case <-p.done:
			case <-time.After(stopLimit):
				leave()
			}
			continue
		}
		p.Stop()
	}
	w.user.Disconnect()
}

// leave ends the program after a failure has been reported.
func leave() {
	os.Exit(1)
}

// maxAtOnce is how many requests may be made, and how many other things may happen, at one instant of virtual time. With a
// controller that never waits, there are more.
const maxAtOnce = 3000

// record adds a request or an event to the recording and the timeline. It is called by the server, one at a time.
func (w *World) record(r history.Record) {
	w.recording.Record(r)
	w.out.Record(r)
	if line, ok := verdict.OfRecord(r); ok {
		line.At = w.Since()
		w.out.Line(line)
	}
	if r.Request == nil || r.Request.Who == "user" {
		return
	}
	if w.requests.add() > maxAtOnce {
		w.fail(fmt.Sprintf("The %s made %d requests without ever waiting: it never came to rest.", r.Request.Who, maxAtOnce))
		leave()
	}
}
