//go:build exercise

package statusloop

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/exercise/check"
)

func TestExercise(t *testing.T) {
	check.Run(t,
		check.Scene{Name: "a load balancer is created, and its address changes", Play: func(w *check.World) {
			c := start(w)
			expect(w, "10.0.0.1", "A minute later")
			c.set("10.0.0.2")
			w.Advance(time.Minute)
			expect(w, "10.0.0.2", "A minute later")
		}},
		check.Scene{Name: "nothing happens", Play: func(w *check.World) {
			start(w)
			before := len(w.Writes())
			w.Advance(10 * time.Minute)
			if after := len(w.Writes()); after > before {
				w.Failf("Nothing has happened to Service shop/web for ten minutes, and the controller wrote its status %d times.", after-before)
			}
		}},
		check.Scene{Name: "the API server refuses the status once", Play: func(w *check.World) {
			w.Inject("verb=update,resource=services,nth=1,refuse=500", "verb=patch,resource=services,nth=1,refuse=500")
			run(w, service())
			w.Advance(10 * time.Second)
			expect(w, "10.0.0.1", "The API server refused to write its status once. Ten seconds later")
		}},
		check.Scene{Name: "the address changes, and the load balancer has worked all the time", Play: func(w *check.World) {
			c := start(w)
			expect(w, "10.0.0.1", "A minute later")
			since := meta.FindStatusCondition(get(w).Status.Conditions, Ready).LastTransitionTime
			c.set("10.0.0.2")
			w.Advance(time.Minute)
			expect(w, "10.0.0.2", "A minute later")
			if now := meta.FindStatusCondition(get(w).Status.Conditions, Ready).LastTransitionTime; !now.Equal(&since) {
				w.Failf("The load balancer of Service shop/web got another address, and it worked all the time. The lastTransitionTime of its condition %s changed, too.", Ready)
			}
		}},
		check.Scene{Name: "the status has the address already, and no condition", Play: func(w *check.World) {
			service := service()
			service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.0.0.1"}}
			startWith(w, service)
			expect(w, "10.0.0.1", "A minute later")
		}},
		check.Scene{Name: "the load balancer works again", Play: func(w *check.World) {
			service := service()
			service.CreationTimestamp = metav1.NewTime(time.Now().Add(-24 * time.Hour))
			service.Status.Conditions = []metav1.Condition{{
				Type: Ready, Status: metav1.ConditionFalse, Reason: "Down", LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour)),
			}}
			started := time.Now()
			startWith(w, service)
			expect(w, "10.0.0.1", "A minute later")
			if since := meta.FindStatusCondition(get(w).Status.Conditions, Ready).LastTransitionTime; since.Before(&metav1.Time{Time: started}) {
				w.Failf("For the last hour, condition %s of Service shop/web was False, and now it is True. Its lastTransitionTime says that it has been True for %s.", Ready, started.Sub(since.Time))
			}
		}},
		check.Scene{Name: "another controller adds a condition of its own", Play: func(w *check.World) {
			start(w)
			service := get(w)
			service.Status.Conditions = append(service.Status.Conditions, metav1.Condition{
				Type: "DNSReady", Status: metav1.ConditionTrue, Reason: "Registered", LastTransitionTime: metav1.Now(),
			})
			check.Must(w.Client.CoreV1().Services("shop").UpdateStatus(w.T.Context(), service, metav1.UpdateOptions{}))
			before := len(w.Writes())
			w.Advance(10 * time.Minute)
			if meta.FindStatusCondition(get(w).Status.Conditions, "DNSReady") == nil {
				w.Failf("Another controller added its condition DNSReady to the status of Service shop/web. Ten minutes later, the condition is gone.")
			}
			if after := len(w.Writes()); after > before {
				w.Failf("Another controller added its condition DNSReady to the status of Service shop/web. The controller then wrote the status as well, although its own part was as it should be.")
			}
		}},
	)
}

// oneAddress is a Cloud in which all load balancers have the same address.
type oneAddress struct {
	w *check.World

	mu      sync.Mutex
	address string
}

func (c *oneAddress) set(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.address = address
	c.w.Say("the load balancer gets another address")
}

// Ensure implements Cloud.
func (c *oneAddress) Ensure(context.Context, string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.address, nil
}

func service() *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
}

func start(w *check.World) *oneAddress { return startWith(w, service()) }

func startWith(w *check.World, service *corev1.Service) *oneAddress {
	c := run(w, service)
	w.Advance(time.Minute)
	return c
}

func run(w *check.World, service *corev1.Service) *oneAddress {
	c := &oneAddress{w: w, address: "10.0.0.1"}
	w.Given(service)
	w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return (&Controller{Client: client, Namespace: "shop", Cloud: c}).Run(ctx)
	})
	return c
}

func get(w *check.World) *corev1.Service {
	return check.Must(w.Client.CoreV1().Services("shop").Get(context.Background(), "web", metav1.GetOptions{}))
}

// expect fails the check if the status of the Service does not say that the load balancer works, and has this address.
func expect(w *check.World, address, when string) {
	service := get(w)
	var has []string
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		has = append(has, ingress.IP)
	}
	if len(has) != 1 || has[0] != address {
		w.Failf("The load balancer of Service shop/web has the address %s. %s, the addresses in the status of the Service are %q.", address, when, has)
	}
	if !meta.IsStatusConditionTrue(service.Status.Conditions, Ready) {
		w.Failf("The load balancer of Service shop/web works. %s, its condition %s is not True.", when, Ready)
	}
}
