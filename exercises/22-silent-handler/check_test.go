//go:build exercise

package silenthandler

import (
	"context"
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
		check.Scene{Name: "the registry fails once", Play: func(w *check.World) {
			registry := cloud.NewRegistry(w)
			registry.FailNext(1)
			w.Given(pod("web-0", "10.0.0.1"))
			start(w, registry)
			w.Advance(time.Hour)
			if registry.CIDR("web-0") == "" {
				w.Failf("The registry failed once to register Pod shop/web-0. An hour later, the Pod is not registered, although the registry works.")
			}
			registry.FailNext(1)
			w.Delete("pods", "shop", "web-0")
			w.Advance(time.Hour)
			if registry.CIDR("web-0") != "" {
				w.Failf("Pod shop/web-0 was deleted, and the registry failed once to deregister it. An hour later, it is still registered.")
			}
		}},
		check.Scene{Name: "the registry is down for a while", Play: func(w *check.World) {
			registry := cloud.NewRegistry(w)
			registry.SetDown(true)
			w.Given(pod("web-0", "10.0.0.1"))
			start(w, registry)
			w.Advance(10 * time.Minute)
			if registry.Calls() > 200 {
				w.Failf("The registry was down for ten minutes, and the controller called it %d times.", registry.Calls())
			}
			registry.SetDown(false)
			w.Advance(time.Hour)
			if registry.CIDR("web-0") == "" {
				w.Failf("The registry was down for ten minutes. An hour after its return, Pod shop/web-0 has not been registered.")
			}
		}},
		check.Scene{Name: "the registry refuses one Pod", Play: func(w *check.World) {
			registry := cloud.NewRegistry(w)
			w.Given(pod("web-0", "10.0.0.1"))
			controller := w.Start(func(ctx context.Context, client kubernetes.Interface) error {
				return (&Controller{Client: client, Namespace: "shop", Registry: picky{registry}}).Run(ctx)
			})
			w.Advance(time.Minute)
			w.Given(pod("web-1", "10.0.0.2"))
			w.Advance(time.Minute)
			if registry.CIDR("web-1") == "" {
				w.Failf("The registry refuses Pod shop/web-0, and no other one. Pod shop/web-1 was created a minute ago, and is not registered.")
			}
			if w.Errors() == 0 {
				w.Failf("The registry refuses Pod shop/web-0, and no error was logged: nobody will know.")
			}
			controller.Stop()
		}},
		check.Scene{Name: "a Pod is deleted, and the registry fails before or after that", Play: func(w *check.World) {
			registry := cloud.NewRegistry(w)
			start(w, registry)
			registry.FailNext(1)
			w.Given(pod("web-0", "10.0.0.1"))
			w.Advance(10 * time.Second)
			w.Delete("pods", "shop", "web-0")
			w.Advance(time.Hour)
			if registry.CIDR("web-0") != "" {
				w.Failf("The registry failed once to register Pod shop/web-0, which was deleted ten seconds later. An hour later, it is registered.")
			}
			w.Given(pod("web-1", "10.0.0.2"))
			w.Advance(67 * time.Second)
			registry.FailNext(3)
			w.Delete("pods", "shop", "web-1")
			w.Advance(time.Hour)
			if registry.CIDR("web-1") != "" {
				w.Failf("Pod shop/web-1 was deleted, and the registry failed three times to deregister it. An hour later, it is still registered.")
			}
			before := registry.Calls()
			w.Advance(3 * time.Hour)
			if calls := registry.Calls() - before; calls > 2 {
				w.Failf("Pod shop/web-1 was deleted and is no longer registered. In the next three hours, the controller called the registry %d times.", calls)
			}
		}},
	)
}

func pod(name, address string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Status: corev1.PodStatus{PodIP: address}}
}

// picky is a registry that refuses web-0.
type picky struct{ *cloud.Cloud }

// Ensure implements Registry.
func (p picky) Ensure(ctx context.Context, name, address string) error {
	if name == "web-0" {
		return cloud.ErrUnavailable
	}
	return p.Cloud.Ensure(ctx, name, address)
}

func start(w *check.World, registry *cloud.Cloud) {
	w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return (&Controller{Client: client, Namespace: "shop", Registry: registry}).Run(ctx)
	})
	w.Advance(time.Minute)
}
