//go:build exercise

package neverupdated

import (
	"context"
	"fmt"
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
		check.Scene{Name: "a Pod gets its address", Play: func(w *check.World) {
			registry := cloud.NewRegistry(w)
			start(w, registry)
			w.Given(pod("web-0", ""))
			w.Advance(10 * time.Second)
			w.Given(pod("web-0", "10.0.0.1"))
			w.Advance(time.Minute)
			if got := registry.CIDR("web-0"); got != "10.0.0.1" {
				w.Failf("Pod shop/web-0 got the address 10.0.0.1 ten seconds after its creation. A minute later, it is registered with the address %q.", got)
			}
			w.Given(pod("web-0", "10.0.0.9"))
			w.Advance(time.Minute)
			if got := registry.CIDR("web-0"); got != "10.0.0.9" {
				w.Failf("The address of Pod shop/web-0 changed to 10.0.0.9. A minute later, it is registered with the address %q.", got)
			}
		}},
		check.Scene{Name: "the registry fails once", Play: func(w *check.World) {
			registry := cloud.NewRegistry(w)
			start(w, registry)
			w.Given(pod("web-0", ""))
			w.Advance(10 * time.Second)
			registry.FailNext(1)
			w.Given(pod("web-0", "10.0.0.1"))
			w.Advance(time.Minute)
			if got := registry.CIDR("web-0"); got != "10.0.0.1" {
				w.Failf("Pod shop/web-0 got the address 10.0.0.1, and the registry failed once to register it. A minute later, it is registered with the address %q.", got)
			}
		}},
		check.Scene{Name: "a Pod is created again with the same address", Play: func(w *check.World) {
			registry := cloud.NewRegistry(w)
			w.Given(pod("web-0", "10.0.0.1"))
			start(w, registry)
			w.Delete("pods", "shop", "web-0")
			w.Advance(time.Minute)
			w.Given(pod("web-0", "10.0.0.1"))
			w.Advance(time.Minute)
			if got := registry.CIDR("web-0"); got != "10.0.0.1" {
				w.Failf("Pod shop/web-0 was deleted, and created again with the same address, 10.0.0.1. A minute later, it is registered with the address %q.", got)
			}
		}},
		check.Scene{Name: "a Pod loses its address", Play: func(w *check.World) {
			registry := cloud.NewRegistry(w)
			w.Given(pod("web-0", "10.0.0.1"))
			start(w, registry)
			w.Given(pod("web-0", ""))
			w.Advance(time.Minute)
			if got := registry.CIDR("web-0"); got != "" {
				w.Failf("Pod shop/web-0 no longer has the address 10.0.0.1, which another Pod may get now. A minute later, it is still registered with it.")
			}
		}},
		check.Scene{Name: "Pods change in ways that do not matter", Play: func(w *check.World) {
			registry := cloud.NewRegistry(w)
			w.Given(pod("web-0", "10.0.0.1"), pod("web-1", ""))
			start(w, registry)
			before := registry.Calls()
			for i := range 20 {
				for _, p := range []*corev1.Pod{pod("web-0", "10.0.0.1"), pod("web-1", "")} {
					p.Labels = map[string]string{"changed": fmt.Sprint(i)}
					w.Given(p)
				}
				w.Advance(time.Second)
			}
			w.Advance(time.Minute)
			if calls := registry.Calls() - before; calls > 2 {
				w.Failf("The labels of Pods shop/web-0 and web-1, which has no address yet, changed 20 times, and their addresses did not. The controller called the registry %d times.", calls)
			}
		}},
	)
}

func pod(name, address string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Status: corev1.PodStatus{PodIP: address}}
}

func start(w *check.World, registry *cloud.Cloud) {
	w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return (&Controller{Client: client, Namespace: "shop", Registry: registry}).Run(ctx)
	})
	w.Advance(time.Minute)
}
