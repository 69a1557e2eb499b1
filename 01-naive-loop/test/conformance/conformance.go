// Package conformance says what a controller must do that has the job of lessons 1 to 3, whatever it is
// made of: replace the Pods of the frontend when their config changes. It runs one against a real API
// server, with the rights of its lesson's manifests, and looks at its requests on the wire.
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

// Subject is what the suite is run against.
type Subject struct {
	Manifests string // directory of the kustomization, from the test's directory
	Account   string // name of the ServiceAccount in it
	Frontend  string // file with the ConfigMap and the Deployment

	// Start runs the controller in a namespace until ctx ends, and returns when it has stopped.
	Start func(ctx context.Context, config *rest.Config, namespace string)

	// Fails names the tests that it is known to fail, because its page says so. It must fail them.
	Fails []string
}

// tests are what a controller must do. They return an error that says in a sentence what it did not.
var tests = map[string]func(*scene) error{
	"replaces the Pods when the config changes":     replacesPods,
	"acts on a change made while it was down":       actsAfterDowntime,
	"leaves a Pod alone that started afterwards":    leavesNewPodAlone,
	"touches nothing but its frontend":              touchesNothingElse,
	"does nothing when there is no config":          doesNothingWithoutConfig,
	"writes nothing at rest":                        writesNothingAtRest,
	"replaces each Pod once, however often changed": replacesOnce,
	"tries again when a deletion is refused":        triesAgain,
}

// Run runs the suite. Each test has a namespace, a frontend and a controller of its own.
func Run(t *testing.T, subject Subject) {
	for _, name := range subject.Fails {
		if tests[name] == nil {
			t.Errorf("there is no test %q that could fail", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			known := slices.Contains(subject.Fails, name)
			switch err := tests[name](newScene(t, subject, known)); {
			case err != nil && !known:
				t.Error(err)
			case err == nil && known:
				t.Error("its page says that it fails this, but it did not")
			case err != nil:
				t.Log("as its page says:", err)
			}
		})
	}
}

// scene is a namespace with a frontend of three Pods, and a controller that can be started in it.
type scene struct {
	*clustertest.Env
	Subject
	t        *testing.T
	wire     *history.Memory
	faults   []apiproxy.Fault
	patience time.Duration // after which a change counts as lost
}

func newScene(t *testing.T, subject Subject, known bool) *scene {
	s := &scene{Env: clustertest.New(t), Subject: subject, t: t, wire: &history.Memory{}, patience: 2 * time.Minute}
	if known {
		s.patience = 5 * time.Second // it is no surprise, so there is no need to wait for a slow machine
	}
	s.Install(subject.Manifests)
	testinput.Declare(subject.Frontend)
	s.Kubectl("apply", "-f", subject.Frontend)
	s.Kubectl("rollout", "status", "deployment/frontend")

	// A Pod of the same second as its config may be replaced once. Begin with Pods of a later one.
	made := time.Now().Truncate(time.Second)
	s.Eventually("the second of the config is over", func(context.Context) string {
		if time.Now().Truncate(time.Second).After(made) {
			return ""
		}
		return "not yet"
	})
	s.Kubectl("delete", "pods", "--selector=app=frontend")
	s.Kubectl("rollout", "status", "deployment/frontend")
	return s
}

// run starts the controller as its ServiceAccount, behind a proxy, and returns what stops it. It is
// stopped at the end of the test at the latest.
func (s *scene) run() (stop func()) {
	s.t.Helper()
	upstream, err := s.ServiceAccountConfig(s.t.Context(), s.Namespace, s.Account)
	if err != nil {
		s.t.Fatal(err)
	}
	proxy, err := apiproxy.Start(context.Background(), apiproxy.Options{
		Upstream: upstream, Record: s.wire.Record, Faults: s.faults,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Start(ctx, proxy.Config(), s.Namespace)
	}()
	stop = func() {
		cancel()
		<-done
		if err := proxy.Stop(); err != nil {
			s.t.Error(err)
		}
	}
	s.t.Cleanup(stop)
	return stop
}

// pods returns the Pods of an app that are not being deleted.
func (s *scene) pods(app string) map[types.UID]string {
	s.t.Helper()
	list, err := s.Client.CoreV1().Pods(s.Namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		s.t.Fatal(err)
	}
	pods := map[types.UID]string{}
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			pods[pod.UID] = pod.Name
		}
	}
	return pods
}

// change changes the config.
func (s *scene) change(greeting string) {
	s.t.Helper()
	s.Kubectl("patch", "configmap", "frontend-config", "--type=merge", "--patch", fmt.Sprintf(`{"data":{"greeting":%q}}`, greeting))
}

// replaced waits until none of the old Pods is left and three others are there.
func (s *scene) replaced(old map[types.UID]string) error {
	s.t.Helper()
	begin := time.Now()
	var why error
	err := wait.PollUntilContextTimeout(s.t.Context(), 20*time.Millisecond, s.patience, true, func(context.Context) (bool, error) {
		now := s.pods("frontend")
		for uid, name := range old {
			if now[uid] != "" {
				why = fmt.Errorf("change lost: Pod %s still runs the old config %s after it was edited", name, time.Since(begin).Round(time.Second))
				return false, nil
			}
		}
		if len(now) != 3 {
			why = fmt.Errorf("there are %d Pods instead of 3", len(now))
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		return why
	}
	return nil
}

// settle waits until the controller must have seen how the world is now: until the wire has delivered news
// to it that is newer, or it has asked three more times.
func (s *scene) settle() {
	s.t.Helper()
	begin := time.Now()
	sentinel, err := s.Client.CoreV1().Pods(s.Namespace).Create(s.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "sentinel-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "sentinel", Image: "sentinel"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.Eventually("the controller sees what is new", func(context.Context) string {
		seen := s.wire.History()
		if slices.ContainsFunc(seen.Events, func(e history.Event) bool { return e.Name == sentinel.Name }) {
			return ""
		}
		asked := seen.Between(begin, time.Time{}).Where(func(r history.Request) bool { return r.Verb == "list" && r.Resource == "pods" })
		if len(asked.Requests) >= 3 {
			return ""
		}
		return fmt.Sprintf("it has asked %d times", len(asked.Requests))
	})
	s.Kubectl("delete", "pod", sentinel.Name)
	// It may still be at work on it. That cannot be seen, so look for what it would do: write.
	for quiet := time.Now(); time.Since(quiet) < 300*time.Millisecond; time.Sleep(20 * time.Millisecond) {
		if writes := s.writes(); len(writes) > 0 && writes[len(writes)-1].End().After(quiet) {
			quiet = writes[len(writes)-1].End()
		}
	}
}

// inStep waits until a controller that was just started has asked for Pods and for the config.
func (s *scene) inStep() {
	s.t.Helper()
	s.Eventually("the controller begins", func(context.Context) string {
		asked := map[string]bool{}
		for _, request := range s.wire.History().Requests {
			if request.Status == 200 {
				asked[request.Resource] = true
			}
		}
		if asked["pods"] && asked["configmaps"] {
			return ""
		}
		return fmt.Sprintf("it has asked for %v", slices.Sorted(maps.Keys(asked)))
	})
	s.settle()
}

// writes returns what the controller has written, but for Events.
func (s *scene) writes() []history.Request {
	return s.wire.History().Where(func(r history.Request) bool { return r.Resource != "events" }).Writes()
}

func describe(writes []history.Request) string {
	var lines []string
	for _, write := range writes {
		lines = append(lines, fmt.Sprintf("%s %s %s: %d", write.Verb, write.What(), write.Object(), write.Status))
	}
	return strings.Join(lines, ", ")
}

func replacesPods(s *scene) error {
	s.run()
	s.inStep()
	old := s.pods("frontend")
	s.change("good morning")
	return s.replaced(old)
}

func actsAfterDowntime(s *scene) error {
	stop := s.run()
	s.inStep()
	stop()
	old := s.pods("frontend")
	s.change("good morning")
	s.run()
	return s.replaced(old)
}

func leavesNewPodAlone(s *scene) error {
	if err := replacesPods(s); err != nil {
		return err
	}
	s.Kubectl("scale", "deployment/frontend", "--replicas=4")
	s.Kubectl("rollout", "status", "deployment/frontend")
	before := s.pods("frontend")
	s.settle()
	if after := s.pods("frontend"); !maps.Equal(before, after) {
		return fmt.Errorf("it replaced Pods that started after the change: %v, now %v", before, after)
	}
	return nil
}

func touchesNothingElse(s *scene) error {
	s.Kubectl("create", "deployment", "backend", "--image=backend", "--replicas=2")
	s.Kubectl("rollout", "status", "deployment/backend")
	elsewhere := clustertest.New(s.t)
	elsewhere.Kubectl("run", "frontend", "--image=frontend", "--labels=app=frontend")
	backend := s.pods("backend")

	if err := replacesPods(s); err != nil {
		return err
	}
	s.settle()
	if after := s.pods("backend"); !maps.Equal(backend, after) {
		return fmt.Errorf("it replaced Pods of another app: %v, now %v", backend, after)
	}
	if out := elsewhere.Kubectl("get", "pods", "--output=name"); strings.TrimSpace(out) != "pod/frontend" {
		return fmt.Errorf("the Pod of another namespace is gone; there is %q", out)
	}
	return nil
}

func doesNothingWithoutConfig(s *scene) error {
	s.Kubectl("delete", "configmap", "frontend-config")
	before := s.pods("frontend")
	s.run()
	s.settle()
	if after := s.pods("frontend"); !maps.Equal(before, after) {
		return fmt.Errorf("it replaced Pods although there is no config: %v, now %v", before, after)
	}
	return nil
}

func writesNothingAtRest(s *scene) error {
	old := s.pods("frontend")
	if err := replacesPods(s); err != nil {
		return err
	}
	s.settle()
	writes := s.writes()
	if len(writes) != len(old) {
		return fmt.Errorf("%d writes to replace %d Pods: %s", len(writes), len(old), describe(writes))
	}
	s.settle()
	if more := s.writes(); len(more) > len(writes) {
		return fmt.Errorf("writes at rest: %s", describe(more[len(writes):]))
	}
	return nil
}

func replacesOnce(s *scene) error {
	old := s.pods("frontend")
	for i := range 20 {
		s.change(fmt.Sprint("greeting ", i))
	}
	s.run()
	if err := s.replaced(old); err != nil {
		return err
	}
	s.settle()
	if writes := s.writes(); len(writes) != len(old) {
		return fmt.Errorf("20 changes at once took %d writes to replace %d Pods: %s", len(writes), len(old), describe(writes))
	}
	return nil
}

func triesAgain(s *scene) error {
	s.faults = []apiproxy.Fault{{Match: apiproxy.Match{Verb: "delete", Resource: "pods", From: 2, To: 2}, Effect: apiproxy.Effect{Refuse: 500}}}
	if err := replacesPods(s); err != nil {
		return err
	}
	if !slices.ContainsFunc(s.writes(), history.Request.IsDisturbed) {
		return errors.New("no deletion was refused, so nothing was tried again")
	}
	return nil
}
