//go:build exercise

package leftbehind

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
		check.Scene{Name: "networks are created, changed and deleted", Play: func(w *check.World) {
			c := cloud.New(w)
			w.Given(network("blue", "10.0.0.0/24"), network("red", "10.1.0.0/24"))
			start(w, c)
			w.Advance(time.Minute)
			if c.CIDR("blue") != "10.0.0.0/24" || c.CIDR("red") != "10.1.0.0/24" {
				w.Failf("There are ConfigMaps for the networks blue and red. A minute later, the cloud has %v.", c.Names())
			}
			w.Given(network("blue", "10.2.0.0/24"))
			w.Advance(time.Minute)
			if got := c.CIDR("blue"); got != "10.2.0.0/24" {
				w.Failf("The CIDR of network blue was changed to 10.2.0.0/24. A minute later, it is %q in the cloud.", got)
			}
			w.Delete("configmaps", "net", "red")
			w.Advance(time.Minute)
			if c.CIDR("red") != "" {
				w.Failf("The ConfigMap of network red was deleted. A minute later, the network is still in the cloud.")
			}
		}},
		check.Scene{Name: "the controller is stopped while it creates a network", Play: func(w *check.World) {
			c := cloud.New(w)
			c.SetSlow(20 * time.Second)
			w.Given(network("blue", "10.0.0.0/24"))
			controller := start(w, c)
			w.Advance(5 * time.Second)
			controller.Stop()
			w.Settle() // a call that was cut off ends at this instant, perhaps after the controller has returned
			if c.Busy() {
				w.Failf("The controller was asked to stop while the cloud was creating network blue, and it returned before that was finished. When the process exits now, half a network is left.")
			}
			if c.CIDR("blue") == "" {
				w.Failf("The controller was asked to stop while the cloud was creating network blue. The creation was cut off.")
			}
		}},
		check.Scene{Name: "the controller is asked to stop when it has nothing to do", Play: func(w *check.World) {
			c := cloud.New(w)
			w.Given(network("blue", "10.0.0.0/24"))
			controller := start(w, c)
			w.Advance(time.Minute + time.Second)
			asked := w.Since()
			controller.Stop()
			if took := w.Since() - asked; took > 5*time.Second {
				w.Failf("The controller was asked to stop when it had nothing to do, and it returned %s later.", took)
			}
		}},
		check.Scene{Name: "the controller is stopped while it deletes a network", Play: func(w *check.World) {
			c := cloud.New(w)
			w.Given(network("blue", "10.0.0.0/24"))
			controller := start(w, c)
			w.Advance(time.Minute)
			c.SetSlow(20 * time.Second)
			w.Delete("configmaps", "net", "blue")
			w.Advance(5 * time.Second)
			controller.Stop()
			w.Settle()
			if c.Busy() || c.CIDR("blue") != "" {
				w.Failf("The controller was asked to stop while the cloud was deleting network blue. The deletion was cut off, and the ConfigMap is gone: no later start will delete the network.")
			}
		}},
		check.Scene{Name: "the controller is stopped while the cloud is down", Play: func(w *check.World) {
			c := cloud.New(w)
			c.SetDown(true)
			w.Given(network("blue", "10.0.0.0/24"))
			controller := start(w, c)
			w.Advance(time.Second)
			controller.Stop()
		}},
	)
}

// network is a ConfigMap that describes a network.
func network(name, cidr string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "net", Name: name}, Data: map[string]string{"cidr": cidr}}
}

func start(w *check.World, c *cloud.Cloud) *check.Process {
	return w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return (&Controller{Client: client, Namespace: "net", Cloud: c}).Run(ctx)
	})
}
