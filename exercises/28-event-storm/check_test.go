//go:build exercise

package eventstorm

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
		check.Scene{Name: "a network is created and changed", Play: func(w *check.World) {
			c := start(w)
			if c.CIDR("blue") != "10.0.0.0/24" {
				w.Failf("There is a ConfigMap for network blue. A minute later, the cloud has %v.", c.Names())
			}
			if eventRequests(w) == 0 {
				w.Failf("Network blue was created, and there is no Event that says so.")
			}
			before := eventRequests(w)
			w.Given(network("10.2.0.0/24"))
			w.Advance(time.Minute)
			if eventRequests(w) == before {
				w.Failf("Network blue was changed, and there is no Event that says so.")
			}
		}},
		check.Scene{Name: "nothing happens", Play: func(w *check.World) {
			start(w)
			before := eventRequests(w)
			w.Advance(time.Hour)
			if after := eventRequests(w); after > before {
				w.Failf("Nothing has happened to network blue for an hour, and the controller made %d requests to write Events about it.", after-before)
			}
		}},
		check.Scene{Name: "somebody changes the network in the cloud", Play: func(w *check.World) {
			c := start(w)
			before := eventRequests(w)
			_ = c.Cloud.Ensure(context.Background(), "blue", "10.9.0.0/24")
			w.Advance(time.Minute)
			if c.CIDR("blue") != "10.0.0.0/24" {
				w.Failf("Somebody changed network blue in the cloud. A minute later, the controller has not repaired it.")
			}
			if eventRequests(w) == before {
				w.Failf("Somebody changed network blue in the cloud. The controller has repaired it, and there is no Event that says so.")
			}
		}},
		check.Scene{Name: "the cloud is down for a while", Play: func(w *check.World) {
			c := start(w)
			c.SetDown(true)
			before := c.Calls()
			w.Given(network("10.2.0.0/24"))
			w.Advance(10 * time.Minute)
			if calls := c.Calls() - before; calls > 200 {
				w.Failf("The cloud was down for ten minutes, and the controller called it %d times for one network.", calls)
			}
			if w.Errors() == 0 {
				w.Failf("The cloud was down for ten minutes, so network blue could not be changed, and no error was logged: nobody will know.")
			}
			c.SetDown(false)
			w.Advance(time.Minute)
			if got := c.CIDR("blue"); got != "10.2.0.0/24" {
				w.Failf("The cloud was down while the CIDR of network blue was changed to 10.2.0.0/24. A minute after its return, it is %q in the cloud.", got)
			}
			c.SetDown(true)
			w.Delete("configmaps", "net", "blue")
			w.Advance(10 * time.Minute)
			c.SetDown(false)
			w.Advance(time.Hour)
			if c.CIDR("blue") != "" {
				w.Failf("The ConfigMap of network blue was deleted, and the cloud was down for ten minutes. An hour after its return, the network is still in the cloud.")
			}
		}},
	)
}

// reporting is a cloud that reports whether it has changed.
type reporting struct{ *cloud.Cloud }

// Ensure implements Cloud.
func (r reporting) Ensure(ctx context.Context, name, cidr string) (bool, error) {
	if r.CIDR(name) == cidr {
		return false, nil
	}
	return true, r.Cloud.Ensure(ctx, name, cidr)
}

func network(cidr string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "net", Name: "blue"}, Data: map[string]string{"cidr": cidr}}
}

func start(w *check.World) reporting {
	c := reporting{cloud.New(w)}
	w.Given(network("10.0.0.0/24"))
	w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return (&Controller{Client: client, Namespace: "net", Cloud: c}).Run(ctx)
	})
	w.Advance(time.Minute)
	return c
}

// eventRequests returns how many requests the controller has made to write Events.
func eventRequests(w *check.World) int {
	count := 0
	for _, request := range w.Requests(check.ControllerName).Writes() {
		if request.Resource == "events" {
			count++
		}
	}
	return count
}
