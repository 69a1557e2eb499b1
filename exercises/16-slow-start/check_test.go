//go:build exercise

package slowstart

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
		check.Scene{Name: "a network is corrected after an hour", Play: func(w *check.World) {
			c := cloud.New(w)
			w.Given(network("blue", "10.0.0.0/240"))
			c.SetDown(true)
			start(w, c)
			w.Advance(time.Hour + time.Minute)
			c.SetDown(false)
			w.Say("the user corrects the CIDR of network blue")
			w.Given(network("blue", "10.0.0.0/24"))
			w.Advance(10 * time.Second)
			if c.CIDR("blue") != "10.0.0.0/24" {
				w.Failf("Network blue had failed for an hour. The user then corrected it, and ten seconds later the controller has not tried again.")
			}
		}},
		check.Scene{Name: "failures are retried with backoff", Play: func(w *check.World) {
			c := cloud.New(w)
			w.Given(network("blue", "10.0.0.0/24"))
			c.SetDown(true)
			start(w, c)
			w.Advance(time.Hour)
			if c.Calls() > 1000 {
				w.Failf("The cloud was down for an hour, and the controller called it %d times.", c.Calls())
			}
			c.SetDown(false)
			w.Advance(time.Hour)
			if c.CIDR("blue") == "" {
				w.Failf("The cloud was down for an hour. An hour after its return, network blue has not been created.")
			}
		}},
		check.Scene{Name: "a network is deleted after an hour", Play: func(w *check.World) {
			c := cloud.New(w)
			w.Given(network("blue", "10.0.0.0/24"))
			start(w, c)
			w.Advance(time.Minute)
			c.SetDown(true)
			w.Given(network("blue", "10.0.0.0/240"))
			w.Advance(time.Hour)
			c.SetDown(false)
			w.Delete("configmaps", "net", "blue")
			w.Advance(10 * time.Second)
			if c.CIDR("blue") != "" {
				w.Failf("A change of network blue had failed for an hour. The user then deleted its ConfigMap, and ten seconds later the network is still in the cloud.")
			}
		}},
		check.Scene{Name: "a network is corrected right after a failure", Play: func(w *check.World) {
			c := cloud.New(w)
			w.Given(network("blue", "10.0.0.0/240"))
			c.SetDown(true)
			start(w, c)
			w.Advance(time.Hour)
			before := c.Calls()
			w.Eventually(time.Hour, func() bool { return c.Calls() > before },
				"Network blue had failed for an hour. In another hour, the controller has not tried it again.")
			w.Advance(100 * time.Millisecond) // for the call to end
			c.SetDown(false)
			w.Say("the user corrects the CIDR of network blue")
			w.Given(network("blue", "10.0.0.0/24"))
			w.Advance(2 * time.Second)
			if c.CIDR("blue") != "10.0.0.0/24" {
				w.Failf("The user corrected network blue right after a failure. Two seconds later, the controller has not tried again.")
			}
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
