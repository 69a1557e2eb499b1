//go:build exercise

package slowstart

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
			for passed := time.Duration(0); passed < time.Hour; {
				w.Advance(5 * time.Minute)
				passed += 5 * time.Minute
				if calls := c.Calls(); calls > 1000 {
					w.Failf("In the first %s of an outage, the controller called the cloud %d times for one network. Once every ten seconds would be often enough.", passed, calls)
				}
			}
			c.SetDown(false)
			w.Advance(time.Hour)
			if c.CIDR("blue") == "" {
				w.Failf("The cloud was down for an hour. An hour after its return, network blue has not been created.")
			}
			w.Say("the cloud fails once more, after a success")
			c.FailNext(1)
			w.Given(network("blue", "10.2.0.0/24"))
			w.Advance(5 * time.Minute)
			if c.CIDR("blue") != "10.2.0.0/24" {
				w.Failf("Network blue was ready. A change of it failed once, and five minutes later it has not been tried again, although the cloud works.")
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
		check.Scene{Name: "the cloud is down when a network is deleted", Play: func(w *check.World) {
			c := cloud.New(w)
			w.Given(network("blue", "10.0.0.0/24"))
			start(w, c)
			w.Advance(time.Minute)
			c.SetDown(true)
			w.Delete("configmaps", "net", "blue")
			w.Advance(10 * time.Minute)
			c.SetDown(false)
			w.Advance(time.Hour)
			if c.CIDR("blue") != "" {
				w.Failf("The ConfigMap of network blue was deleted, and the cloud was down for ten minutes. An hour after its return, the network is still in the cloud.")
			}
		}},
		check.Scene{Name: "a network changes while it is being created", Play: func(w *check.World) {
			c := cloud.New(w)
			c.SetSlow(10 * time.Second)
			w.Given(network("blue", "10.0.0.0/24"))
			start(w, c)
			w.Advance(5 * time.Second)
			w.Given(network("blue", "10.2.0.0/24"))
			w.Advance(time.Minute)
			if c.Overlap() != "" {
				w.Failf("Two workers worked on network %s at the same time.", c.Overlap())
			}
			if got := c.CIDR("blue"); got != "10.2.0.0/24" {
				w.Failf("Network blue was changed while it was being created. A minute later, its CIDR in the cloud is still %s.", got)
			}
		}},
		check.Scene{Name: "fifty networks change at once", Play: func(w *check.World) {
			c := cloud.New(w)
			for i := range 50 {
				w.Given(network(fmt.Sprint("net-", i), "10.0.0.0/24"))
			}
			start(w, c)
			w.Advance(time.Minute)
			c.SetSlow(10 * time.Second)
			before := c.Calls()
			for i := range 50 {
				w.Given(network(fmt.Sprint("net-", i), "10.2.0.0/24"))
			}
			w.Advance(5 * time.Second)
			if calls := c.Calls() - before; calls > 10 {
				w.Failf("Fifty networks were changed at once, and each call of the cloud takes ten seconds. After five seconds, the controller was making %d calls at the same time. It has two workers, to spare the cloud.", calls)
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
