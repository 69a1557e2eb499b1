//go:build exercise

package fallsthrough

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/exercise/check"
	"example.com/controllers/harness/exercise/cloud"
)

func TestExercise(t *testing.T) {
	check.Run(t,
		check.Scene{Name: "Pods come and go", Play: func(w *check.World) {
			registry := cloud.NewRegistry(w)
			w.Given(pod("web-0", "10.0.0.1"), pod("web-1", "10.0.0.2"))
			start(w, registry)
			if registry.CIDR("web-0") != "10.0.0.1" || registry.CIDR("web-1") != "10.0.0.2" {
				w.Failf("There are two Pods, web-0 and web-1. A minute after the controller was started, the registry has %v.", registry.Names())
			}
			w.Delete("pods", "shop", "web-1")
			w.Advance(time.Minute)
			if registry.CIDR("web-1") != "" {
				w.Failf("Pod shop/web-1 was deleted. A minute later, it is still registered.")
			}
		}},
		check.Scene{Name: "the API server is overloaded", Play: func(w *check.World) {
			registry := cloud.NewRegistry(w)
			w.Given(pod("web-0", "10.0.0.1"))
			start(w, registry)
			registry.SetSlow(time.Second)
			w.Inject("verb=get,resource=pods,nth=1,refuse=500")
			w.Given(pod("web-0", "10.0.0.9"))
			w.Never(2*time.Minute, func() bool { return registry.CIDR("web-0") == "" },
				"Pod shop/web-0 is running. The API server could not return it once, and the controller deregistered it.")
			if got := registry.CIDR("web-0"); got != "10.0.0.9" {
				w.Failf("The address of Pod shop/web-0 has changed to 10.0.0.9, and the API server could not return the Pod once. Two minutes later, it is registered with %s.", got)
			}
			if got := registry.Names(); !slices.Equal(got, []string{"web-0"}) {
				w.Failf("Pod shop/web-0 is the only one, and the API server could not return it once. Two minutes later, the registry has %q.", got)
			}
		}},
		check.Scene{Name: "the API server fails in other ways", Play: func(w *check.World) {
			registry := cloud.NewRegistry(w)
			w.Given(pod("web-0", "10.0.0.1"))
			start(w, registry)
			for i, answer := range []string{"refuse=403", "refuse=429", "refuse=500", "refuse=503", "refuse=504", "lost=request"} {
				w.Inject("verb=get,resource=pods," + answer)
				before := len(w.Requests(check.ControllerName).Requests)
				address := fmt.Sprint("10.0.1.", i)
				w.Given(pod("web-0", address))
				w.Never(time.Minute, func() bool { return registry.CIDR("web-0") == "" },
					"Pod shop/web-0 is running. The API server could not return it for a minute (%s), and the controller deregistered it.", answer)
				if requests := len(w.Requests(check.ControllerName).Requests) - before; requests > 200 {
					w.Failf("The API server could not return Pod shop/web-0 for a minute (%s). The controller asked %d times.", answer, requests)
				}
				w.Heal()
				w.Advance(10 * time.Minute) // more than the backoff of the last failure
				if got := registry.CIDR("web-0"); got != address {
					w.Failf("The API server could not return Pod shop/web-0 for a minute (%s), and then worked for ten minutes. The Pod has the address %s, and is registered with %q.", answer, address, got)
				}
			}
		}},
		check.Scene{Name: "one Pod cannot be read, and then the registry fails", Play: func(w *check.World) {
			registry := cloud.NewRegistry(w)
			w.Given(pod("web-0", "10.0.0.1"), pod("web-1", "10.0.0.2"))
			start(w, registry)
			w.Inject("verb=get,resource=pods,name=web-0,refuse=500")
			w.Given(pod("web-0", "10.0.0.8"))
			w.Advance(time.Second)
			w.Given(pod("web-1", "10.0.0.9"))
			w.Advance(10 * time.Second)
			if got := registry.CIDR("web-1"); got != "10.0.0.9" {
				w.Failf("The API server can return Pod shop/web-1, and cannot return web-0. The address of web-1 has changed to 10.0.0.9. Ten seconds later, it is registered with %q.", got)
			}
			registry.FailNext(2)
			w.Given(pod("web-1", "10.0.0.3"))
			w.Advance(time.Minute)
			if got := registry.CIDR("web-1"); got != "10.0.0.3" {
				w.Failf("The address of Pod shop/web-1 has changed to 10.0.0.3, and the registry failed twice. A minute later, the Pod is registered with %q.", got)
			}
		}},
		check.Scene{Name: "the controller is stopped while the API server does not answer", Play: func(w *check.World) {
			registry := cloud.NewRegistry(w)
			w.Given(pod("web-0", "10.0.0.1"))
			controller := start(w, registry)
			w.Inject("verb=get,resource=pods,hang=1h")
			w.Given(pod("web-0", "10.0.0.9"))
			w.Advance(time.Minute)
			controller.Stop()
		}},
	)
}

func pod(name, address string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Status: corev1.PodStatus{PodIP: address}}
}

func start(w *check.World, registry *cloud.Cloud) *check.Process {
	controller := w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return (&Controller{Client: client, Namespace: "shop", Registry: registry}).Run(ctx)
	})
	w.Advance(time.Minute)
	return controller
}
