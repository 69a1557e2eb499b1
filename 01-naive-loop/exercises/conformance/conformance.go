// Package conformance says what a controller that does the job of lesson 1 must do, whatever it is
// made of. It runs one against a real API server, with the rights of the lesson's manifests.
package conformance

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/clustertest"
)

// Start runs a controller in a namespace until ctx ends, and returns when it has stopped.
type Start func(ctx context.Context, config *rest.Config, namespace string)

// Files are the lesson's files that the suite needs, as paths from the test's directory.
type Files struct {
	Manifests string // the kustomization with the ServiceAccount naive-loop
	Frontend  string // the ConfigMap and the Deployment
}

// Run runs the suite. Each test has a namespace, a frontend and a controller of its own.
func Run(t *testing.T, files Files, start Start) {
	tests := map[string]func(*scene){
		"replaces the Pods when the config changes":     replacesPods,
		"acts on a change made while it was down":       actsAfterDowntime,
		"leaves a Pod alone that started afterwards":    leavesNewPodAlone,
		"touches nothing but its frontend":              touchesNothingElse,
		"does nothing when there is no config":          doesNothingWithoutConfig,
		"writes nothing at rest":                        writesNothingAtRest,
		"replaces each Pod once, however often changed": replacesOnce,
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tests[name](newScene(t, files, start))
		})
	}
}

// scene is a namespace with a frontend of three Pods, and a controller that can be started in it.
type scene struct {
	*clustertest.Env
	t     *testing.T
	start Start
	wire  *wire
}

func newScene(t *testing.T, files Files, start Start) *scene {
	s := &scene{Env: clustertest.New(t), t: t, start: start, wire: &wire{}}
	s.Install(files.Manifests)
	s.Kubectl("apply", "-f", files.Frontend)
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

// run starts the controller as its ServiceAccount and returns what stops it. It is stopped at the end
// of the test at the latest.
func (s *scene) run() (stop func()) {
	s.t.Helper()
	config, err := s.ServiceAccountConfig(s.t.Context(), s.Namespace, "naive-loop")
	if err != nil {
		s.t.Fatal(err)
	}
	config.Wrap(s.wire.wrap)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.start(ctx, config, s.Namespace)
	}()
	stop = func() {
		cancel()
		<-done
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
func (s *scene) replaced(old map[types.UID]string) {
	s.t.Helper()
	s.Eventually("Pods that are older than their config are replaced", func(context.Context) string {
		now := s.pods("frontend")
		for uid, name := range old {
			if now[uid] != "" {
				return fmt.Sprintf("change lost: Pod %s still runs the old config", name)
			}
		}
		if len(now) != 3 {
			return fmt.Sprintf("there are %d Pods instead of 3", len(now))
		}
		return ""
	})
}

// settle waits until the controller has looked at the world three more times. One that does not ask
// any more, because it is told, has nothing to look at; then it is enough that it was quiet.
func (s *scene) settle() {
	s.t.Helper()
	begin := s.wire.reads.Load()
	s.Eventually("the controller goes on", func(context.Context) string {
		if passes := s.wire.reads.Load() - begin; passes < 12 {
			return fmt.Sprintf("it has asked %d times", passes)
		}
		return ""
	})
}

func replacesPods(s *scene) {
	s.run()
	old := s.pods("frontend")
	s.change("good morning")
	s.replaced(old)
}

func actsAfterDowntime(s *scene) {
	stop := s.run()
	s.settle()
	stop()
	old := s.pods("frontend")
	s.change("good morning")
	s.run()
	s.replaced(old)
}

func leavesNewPodAlone(s *scene) {
	s.run()
	old := s.pods("frontend")
	s.change("good morning")
	s.replaced(old)
	s.Kubectl("scale", "deployment/frontend", "--replicas=4")
	s.Kubectl("rollout", "status", "deployment/frontend")
	before := s.pods("frontend")
	s.settle()
	if after := s.pods("frontend"); !maps.Equal(before, after) {
		s.t.Errorf("Pods that started after the change were replaced: %v, now %v", before, after)
	}
}

func touchesNothingElse(s *scene) {
	s.Kubectl("create", "deployment", "backend", "--image=backend", "--replicas=2")
	s.Kubectl("rollout", "status", "deployment/backend")
	elsewhere := clustertest.New(s.t)
	elsewhere.Kubectl("run", "frontend", "--image=frontend", "--labels=app=frontend")
	backend := s.pods("backend")

	s.run()
	old := s.pods("frontend")
	s.change("good morning")
	s.replaced(old)
	s.settle()
	if after := s.pods("backend"); !maps.Equal(backend, after) {
		s.t.Errorf("Pods of another app were replaced: %v, now %v", backend, after)
	}
	if out := elsewhere.Kubectl("get", "pods", "--output=name"); strings.TrimSpace(out) != "pod/frontend" {
		s.t.Errorf("the Pod of another namespace is gone; there is %q", out)
	}
}

func doesNothingWithoutConfig(s *scene) {
	s.Kubectl("delete", "configmap", "frontend-config")
	before := s.pods("frontend")
	s.run()
	s.settle()
	if after := s.pods("frontend"); !maps.Equal(before, after) {
		s.t.Errorf("Pods were replaced although there is no config: %v, now %v", before, after)
	}
}

func writesNothingAtRest(s *scene) {
	s.run()
	old := s.pods("frontend")
	s.change("good morning")
	s.replaced(old)
	s.settle()
	writes := s.wire.writes()
	if len(writes) != len(old) {
		s.t.Errorf("%d writes to replace %d Pods: %v", len(writes), len(old), writes)
	}
	s.settle()
	if more := s.wire.writes(); len(more) > len(writes) {
		s.t.Errorf("writes at rest: %v", more[len(writes):])
	}
}

func replacesOnce(s *scene) {
	old := s.pods("frontend")
	for i := range 20 {
		s.change(fmt.Sprint("greeting ", i))
	}
	s.run()
	s.replaced(old)
	s.settle()
	if writes := s.wire.writes(); len(writes) != len(old) {
		s.t.Errorf("20 changes at once took %d writes to replace %d Pods: %v", len(writes), len(old), writes)
	}
}

// wire sees the requests of a controller.
type wire struct {
	reads   atomic.Int64
	mu      sync.Mutex
	written []string
}

func (w *wire) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if request.Method == http.MethodGet {
			w.reads.Add(1)
		} else {
			w.mu.Lock()
			w.written = append(w.written, request.Method+" "+request.URL.Path)
			w.mu.Unlock()
		}
		return next.RoundTrip(request)
	})
}

func (w *wire) writes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.written)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
