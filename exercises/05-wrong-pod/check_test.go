//go:build exercise

package wrongpod

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/exercise/check"
)

func TestExercise(t *testing.T) {
	check.Run(t,
		check.Scene{Name: "a Node needs maintenance", Play: func(w *check.World) {
			w.Given(node("node-1", true), node("node-2", false), pod("db-0", "node-1"), pod("web-0", "node-2"))
			start(w)
			w.Advance(10 * time.Minute)
			if w.Exists("pods", "shop", "db-0") {
				w.Failf("Node node-1 needs maintenance, and ten minutes later Pod shop/db-0 is still running on it.")
			}
			if !w.Exists("pods", "shop", "web-0") {
				w.Failf("Pod shop/web-0 was deleted, although its Node needs no maintenance.")
			}
		}},
		check.Scene{Name: "a Pod moves during a reconcile", Play: func(w *check.World) {
			moves(w, "verb=get,resource=nodes,nth=1,delay=10s", "verb=list,resource=nodes,nth=1,delay=10s")
		}},
		check.Scene{Name: "a Pod moves while the request to delete it is on its way", Play: func(w *check.World) {
			moves(w, "verb=delete,resource=pods,nth=1,delay=10s", "verb=create,resource=pods,subresource=eviction,nth=1,delay=10s")
		}},
		check.Scene{Name: "one Node after the other needs maintenance", Play: func(w *check.World) {
			w.Given(node("node-1", true), node("node-2", false), pod("db-0", "node-1"), pod("web-0", "node-2"))
			start(w)
			w.Advance(10 * time.Minute)
			w.Say("the StatefulSet creates Pod shop/db-0 again, on node-2; then node-2 needs maintenance, and node-1 no longer")
			w.Given(pod("db-0", "node-2"))
			w.Advance(10 * time.Minute)
			if !w.Exists("pods", "shop", "db-0") {
				w.Failf("Pod shop/db-0 runs on node-2 now, which needs no maintenance. The controller deleted it.")
			}
			w.Given(node("node-1", false), node("node-2", true))
			w.Advance(10 * time.Minute)
			for _, name := range []string{"db-0", "web-0"} {
				if w.Exists("pods", "shop", name) {
					w.Failf("Node node-2 needs maintenance since node-1 has been repaired. Ten minutes later, Pod shop/%s is still running on node-2.", name)
				}
			}
			w.Given(pod("db-0", "node-1"))
			w.Never(10*time.Minute, func() bool { return !w.Exists("pods", "shop", "db-0") },
				"Node node-1 no longer needs maintenance. The controller deleted Pod shop/db-0, which runs on it again.")
		}},
		check.Scene{Name: "one Node cannot be read", Play: func(w *check.World) {
			w.Given(node("node-0", true), node("node-1", true), pod("a-0", "node-0"), pod("db-0", "node-1"))
			w.Inject("verb=get,resource=nodes,name=node-0,refuse=500")
			start(w)
			w.Advance(10 * time.Minute)
			if w.Exists("pods", "shop", "db-0") {
				w.Failf("Node node-1 needs maintenance, and node-0 cannot be read. Ten minutes later, Pod shop/db-0 is still running on node-1.")
			}
		}},
		check.Scene{Name: "one Pod cannot be deleted", Play: func(w *check.World) {
			w.Given(node("node-1", true), pod("a-0", "node-1"), pod("db-0", "node-1"))
			w.Inject("verb=delete,resource=pods,name=a-0,refuse=500", "verb=create,resource=pods,subresource=eviction,name=a-0,refuse=500")
			start(w)
			w.Advance(10 * time.Minute)
			if w.Exists("pods", "shop", "db-0") {
				w.Failf("Node node-1 needs maintenance, and the API server refuses to delete Pod shop/a-0. Ten minutes later, Pod shop/db-0 is still running on node-1.")
			}
		}},
		check.Scene{Name: "a Pod needs time to stop", Play: func(w *check.World) {
			w.Given(node("node-1", true), pod("db-0", "node-1"))
			requests := &noGrace{}
			w.StartNamed(check.ControllerName, func(ctx context.Context, config *rest.Config) error {
				config.Wrap(func(next http.RoundTripper) http.RoundTripper {
					requests.RoundTripper = next
					return requests
				})
				return run(ctx, kubernetes.NewForConfigOrDie(config))
			})
			w.Advance(10 * time.Minute)
			if requests.seen.Load() {
				w.Failf("The controller deleted Pod shop/db-0 without a grace period. Its database could not stop in order, and a second one with the same identity may have been started while it was still running.")
			}
		}},
	)
}

// moves replaces a Pod while faults delay a request of the controller. It fails the check if the new Pod is deleted.
func moves(w *check.World, faults ...string) {
	w.Given(node("node-1", true), node("node-2", false), pod("db-0", "node-1"))
	w.Inject(faults...)
	start(w)
	w.Advance(5 * time.Second)
	w.Say("somebody else moves Pod shop/db-0 from node-1 to node-2")
	w.Delete("pods", "shop", "db-0")
	moved := pod("db-0", "node-2")
	check.Must(w.Client.CoreV1().Pods("shop").Create(context.Background(), moved, metav1.CreateOptions{}))
	w.Never(3*time.Minute, func() bool { return !w.Exists("pods", "shop", "db-0") },
		"Pod shop/db-0 had been replaced by a new Pod on node-2, which needs no maintenance. The controller deleted the new one.")
}

func node(name string, maintenance bool) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if maintenance {
		n.Labels = map[string]string{Maintenance: ""}
	}
	return n
}

func pod(name, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{NodeName: node}}
}

func start(w *check.World) {
	w.Start(run)
}

func run(ctx context.Context, client kubernetes.Interface) error {
	return (&Mover{Client: client, Namespace: "shop", Interval: time.Minute}).Run(ctx)
}

// noGrace is true after a request to delete something without a grace period has passed through it.
type noGrace struct {
	http.RoundTripper
	seen atomic.Bool
}

func (g *noGrace) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		if regexp.MustCompile(`"gracePeriodSeconds":0\b`).Match(body) {
			g.seen.Store(true)
		}
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	return g.RoundTripper.RoundTrip(r)
}
