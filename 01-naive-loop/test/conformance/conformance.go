// Package conformance tests what the controllers of lessons 1 to 3 have in common, however they are built: they
// replace the Pods of the frontend when their config changes. It runs a controller against a real API server, with
// the permissions of its lesson's manifests, and records its requests.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/clustertest"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/testinput"
)

// Subject is the controller under test.
type Subject struct {
	Manifests string // directory of the kustomization, relative to the test's directory
	Account   string // name of the ServiceAccount in it
	Frontend  string // file with the ConfigMap and the Deployment

	// Start runs the controller in a namespace until ctx is cancelled, and returns once it has stopped.
	Start func(ctx context.Context, config *rest.Config, namespace string)

	// KnownFailures names the tests that the controller must fail, because its page says that it does.
	KnownFailures []string
}

// tests maps what a controller must do to a test of it, which returns an error that says how the controller failed.
var tests = map[string]func(*fixture) error{
	"replaces the Pods when the config changes":       replacesPods,
	"acts on a change made while it was down":         actsAfterDowntime,
	"keeps Pods created after the change":             keepsNewPods,
	"deletes only Pods of its frontend":               deletesOnlyFrontend,
	"does nothing without a config":                   doesNothingWithoutConfig,
	"makes no writes at rest":                         makesNoWritesAtRest,
	"replaces each Pod once after a burst of changes": replacesOnce,
	"retries a deletion that failed":                  retriesDeletion,
}

// Run runs the suite. Each test gets its own namespace, frontend and controller.
func Run(t *testing.T, subject Subject) {
	for _, name := range subject.KnownFailures {
		if tests[name] == nil {
			t.Errorf("KnownFailures names %q, but there is no such test", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			known := slices.Contains(subject.KnownFailures, name)
			patience := timeout
			if known {
				patience = 5 * time.Second
			}
			switch err := tests[name](newFixture(t, subject, patience)); {
			case err != nil && !known:
				t.Error(err)
			case err == nil && known:
				t.Error("the page says that the controller fails this test, but it passed")
			case err != nil:
				t.Log("known failure:", err)
			}
		})
	}
}

// Test runs one test of the suite. It returns a recording of the controller's requests, and how the controller failed, or
// nil. A change is lost if the controller has not acted on it, and nothing has happened for that long.
func Test(t *testing.T, subject Subject, name string, patience time.Duration) (*history.History, error) {
	test := tests[name]
	if test == nil {
		t.Fatalf("there is no test %q in the suite", name)
	}
	f := newFixture(t, subject, patience)
	err := test(f)
	return f.recording.History(), err
}

// fixture is a namespace with a frontend of three Pods, and a controller that can be started in it.
type fixture struct {
	*clustertest.Env
	Subject
	t         *testing.T
	recording *history.Memory  // all requests of the controller, and the watch events that it received
	faults    []apiproxy.Fault // injected into the controller's requests; set before start
	patience  int              // number of checks in a row that find nothing new, after which a change counts as lost
}

const (
	// pollInterval is the pause between two checks whether the Pods have been replaced.
	pollInterval = 20 * time.Millisecond
	// timeout ends the wait for a controller that never comes to rest.
	timeout = 2 * time.Minute
)

func newFixture(t *testing.T, subject Subject, patience time.Duration) *fixture {
	f := &fixture{Env: clustertest.New(t), Subject: subject, t: t, recording: &history.Memory{}, patience: int(patience / pollInterval)}
	f.Install(subject.Manifests)
	testinput.Declare(subject.Frontend)
	f.Kubectl("apply", "-f", subject.Frontend)
	f.Kubectl("rollout", "status", "deployment/frontend")

	// A controller may replace a Pod that was created in the same second as its config. Start with newer Pods.
	created := time.Now().Truncate(time.Second)
	f.Eventually("wait for the second after the config's creation", func(context.Context) string {
		if time.Now().Truncate(time.Second).After(created) {
			return ""
		}
		return "not yet"
	})
	f.Kubectl("delete", "pods", "--selector=app=frontend")
	f.Eventually("wait for three new Pods", func(context.Context) string { // the Deployment's status may still be about the old ones
		if now := f.pods("frontend"); len(now) != 3 {
			return fmt.Sprintf("there are %d", len(now))
		}
		return ""
	})
	f.Kubectl("rollout", "status", "deployment/frontend")
	return f
}

// start starts the controller with the credentials of its ServiceAccount, behind a recording proxy, and returns a
// function that stops it. The end of the test stops it, too.
func (f *fixture) start() (stop func()) {
	f.t.Helper()
	upstream, err := f.ServiceAccountConfig(f.t.Context(), f.Namespace, f.Account)
	if err != nil {
		f.t.Fatal(err)
	}
	proxy, err := apiproxy.Start(context.Background(), apiproxy.Options{
		Upstream: upstream, Record: f.recording.Record, Faults: f.faults,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Start(ctx, proxy.Config(), f.Namespace)
	}()
	stop = func() {
		cancel()
		<-done
		if err := proxy.Stop(); err != nil {
			f.t.Error(err)
		}
	}
	f.t.Cleanup(stop)
	return stop
}

// pods returns the names of the Pods of an app that are not being deleted, by UID.
func (f *fixture) pods(app string) map[types.UID]string {
	f.t.Helper()
	list, err := f.Client.CoreV1().Pods(f.Namespace).List(f.t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		f.t.Fatal(err)
	}
	pods := map[types.UID]string{}
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			pods[pod.UID] = pod.Name
		}
	}
	return pods
}

func (f *fixture) changeConfig(greeting string) {
	f.t.Helper()
	f.Kubectl("patch", "configmap", "frontend-config", "--type=merge", "--patch", fmt.Sprintf(`{"data":{"greeting":%q}}`, greeting))
}

// awaitReplacement waits until the old Pods are gone and there are three new ones, or until nothing happens any more. It
// counts checks and not seconds, so that a machine that stalls does not make a change lost: each check makes a request, which
// takes longer when the API server is slow.
func (f *fixture) awaitReplacement(old map[types.UID]string) error {
	f.t.Helper()
	changed := time.Now()
	var reason error
	var before activity
	idle := 0
	err := wait.PollUntilContextTimeout(f.t.Context(), pollInterval, timeout, true, func(context.Context) (bool, error) {
		now := f.pods("frontend")
		idle++
		if latest := f.activity(now); !latest.equal(before) {
			before, idle = latest, 0
		}
		if idle > f.patience {
			return false, reason
		}
		for uid, name := range old {
			if now[uid] != "" {
				reason = fmt.Errorf("change lost: Pod %s still runs the old config %s after the change", name, time.Since(changed).Round(time.Second))
				return false, nil
			}
		}
		if len(now) != 3 {
			reason = fmt.Errorf("%d Pods instead of 3", len(now))
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		return reason
	}
	return nil
}

// activity is what the controller has done and received so far, and the Pods of the frontend.
type activity struct {
	writes, events int
	pods           map[types.UID]string
}

func (f *fixture) activity(pods map[types.UID]string) activity {
	recorded := f.recording.History()
	return activity{len(recorded.Writes()), len(recorded.Events), pods}
}

func (a activity) equal(b activity) bool {
	return a.writes == b.writes && a.events == b.events && maps.Equal(a.pods, b.pods)
}

// settle waits until the controller must have seen the current state: until a watch has delivered a later event to
// it, or it has listed Pods three more times. Then it waits until the controller has stopped writing.
func (f *fixture) settle() {
	f.t.Helper()
	start := time.Now()
	sentinel, err := f.Client.CoreV1().Pods(f.Namespace).Create(f.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "sentinel-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "sentinel", Image: "sentinel"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	f.Eventually("wait for the controller to see the current state", func(context.Context) string {
		recorded := f.recording.History()
		if slices.ContainsFunc(recorded.Events, func(e history.Event) bool { return e.Name == sentinel.Name }) {
			return ""
		}
		lists := recorded.Between(start, time.Time{}).Where(func(r history.Request) bool { return r.Verb == "list" && r.Resource == "pods" })
		if len(lists.Requests) >= 3 {
			return ""
		}
		return fmt.Sprintf("no watch event, and %d lists of Pods", len(lists.Requests))
	})
	f.Kubectl("delete", "pod", sentinel.Name)
	// A reconcile may still be in flight. Only its writes show, so wait until there are none for a while.
	for quiet := time.Now(); time.Since(quiet) < 300*time.Millisecond; time.Sleep(20 * time.Millisecond) {
		if writes := f.writes(); len(writes) > 0 && writes[len(writes)-1].End().After(quiet) {
			quiet = writes[len(writes)-1].End()
		}
	}
}

// awaitSync waits until a controller that was just started has read the Pods and the config.
func (f *fixture) awaitSync() {
	f.t.Helper()
	f.Eventually("wait for the controller to read Pods and ConfigMaps", func(context.Context) string {
		read := map[string]bool{}
		recorded := f.recording.History()
		for _, request := range recorded.Requests {
			if request.Status == 200 && request.Verb != "watch" {
				read[request.Resource] = true
			}
		}
		for _, event := range recorded.Events { // a watch has an answer before it has delivered anything
			read[event.Resource] = true
		}
		if read["pods"] && read["configmaps"] {
			return ""
		}
		return fmt.Sprintf("it has read %v", slices.Sorted(maps.Keys(read)))
	})
	f.settle()
}

// writes returns the write requests of the controller, except those for Events.
func (f *fixture) writes() []history.Request {
	return f.recording.History().Where(func(r history.Request) bool { return r.Resource != "events" }).Writes()
}

func describe(writes []history.Request) string {
	var lines []string
	for _, write := range writes {
		lines = append(lines, fmt.Sprintf("%s %s %s: %d", write.Verb, write.What(), write.Object(), write.Status))
	}
	return strings.Join(lines, ", ")
}

func replacesPods(f *fixture) error {
	f.start()
	f.awaitSync()
	old := f.pods("frontend")
	f.changeConfig("good morning")
	return f.awaitReplacement(old)
}

func actsAfterDowntime(f *fixture) error {
	stop := f.start()
	f.awaitSync()
	stop()
	old := f.pods("frontend")
	f.changeConfig("good morning")
	f.start()
	return f.awaitReplacement(old)
}

func keepsNewPods(f *fixture) error {
	if err := replacesPods(f); err != nil {
		return err
	}
	f.Kubectl("scale", "deployment/frontend", "--replicas=4")
	f.Kubectl("rollout", "status", "deployment/frontend")
	before := f.pods("frontend")
	f.settle()
	if after := f.pods("frontend"); !maps.Equal(before, after) {
		return fmt.Errorf("it replaced Pods that were created after the change: before %v, after %v", before, after)
	}
	return nil
}

func deletesOnlyFrontend(f *fixture) error {
	f.Kubectl("create", "deployment", "backend", "--image=backend", "--replicas=2")
	f.Kubectl("rollout", "status", "deployment/backend")
	elsewhere := clustertest.New(f.t)
	elsewhere.Kubectl("run", "frontend", "--image=frontend", "--labels=app=frontend")
	backend := f.pods("backend")

	if err := replacesPods(f); err != nil {
		return err
	}
	f.settle()
	if after := f.pods("backend"); !maps.Equal(backend, after) {
		return fmt.Errorf("it replaced Pods of another app: before %v, after %v", backend, after)
	}
	if out := elsewhere.Kubectl("get", "pods", "--output=name"); strings.TrimSpace(out) != "pod/frontend" {
		return fmt.Errorf("it deleted the Pod in another namespace; the Pods there: %q", out)
	}
	return nil
}

func doesNothingWithoutConfig(f *fixture) error {
	f.Kubectl("delete", "configmap", "frontend-config")
	before := f.pods("frontend")
	f.start()
	f.settle()
	if after := f.pods("frontend"); !maps.Equal(before, after) {
		return fmt.Errorf("it replaced Pods although there is no config: before %v, after %v", before, after)
	}
	return nil
}

func makesNoWritesAtRest(f *fixture) error {
	old := f.pods("frontend")
	if err := replacesPods(f); err != nil {
		return err
	}
	f.settle()
	writes := f.writes()
	if len(writes) != len(old) {
		return fmt.Errorf("%d writes to replace %d Pods: %s", len(writes), len(old), describe(writes))
	}
	f.settle()
	if more := f.writes(); len(more) > len(writes) {
		return fmt.Errorf("writes at rest: %s", describe(more[len(writes):]))
	}
	return nil
}

func replacesOnce(f *fixture) error {
	old := f.pods("frontend")
	for i := range 20 {
		f.changeConfig(fmt.Sprint("greeting ", i))
	}
	f.start()
	if err := f.awaitReplacement(old); err != nil {
		return err
	}
	f.settle()
	if writes := f.writes(); len(writes) != len(old) {
		return fmt.Errorf("after 20 changes, it made %d writes to replace %d Pods: %s", len(writes), len(old), describe(writes))
	}
	return nil
}

func retriesDeletion(f *fixture) error {
	f.faults = []apiproxy.Fault{{Match: apiproxy.Match{Verb: "delete", Resource: "pods", From: 2, To: 2}, Effect: apiproxy.Effect{Refuse: 500}}}
	if err := replacesPods(f); err != nil {
		return err
	}
	if !slices.ContainsFunc(f.writes(), history.Request.IsDisturbed) {
		return errors.New("the proxy refused no deletion, so there was nothing to retry")
	}
	return nil
}
