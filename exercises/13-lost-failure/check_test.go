//go:build exercise

package lostfailure

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
		check.Scene{Name: "the cloud fails once", Play: func(w *check.World) {
			c := cloud.New(w)
			c.FailNext(1)
			w.Given(network("blue", "10.0.0.0/24"))
			start(w, c)
			w.Advance(time.Hour)
			if c.CIDR("blue") == "" {
				w.Failf("The cloud failed once to create network blue. An hour later, there is no such network, although the cloud works.")
			}
		}},
		check.Scene{Name: "the cloud is down for a while", Play: func(w *check.World) {
			c := cloud.New(w)
			w.Given(network("blue", "10.0.0.0/24"))
			c.SetDown(true)
			start(w, c)
			w.Advance(10 * time.Minute)
			if c.Calls() > 200 {
				w.Failf("The cloud was down for ten minutes, and the controller called it %d times. Once every ten seconds would be often enough.", c.Calls())
			}
			if w.Errors() == 0 {
				w.Failf("The cloud was down for ten minutes, so network blue could not be created, and no error was logged: nobody will know.")
			}
			c.SetDown(false)
			w.Advance(time.Hour)
			if c.CIDR("blue") == "" {
				w.Failf("The cloud was down for ten minutes. An hour after its return, network blue has not been created.")
			}
			w.Say("the cloud fails once more, after a success")
			c.FailNext(1)
			w.Given(network("blue", "10.2.0.0/24"))
			w.Advance(5 * time.Minute)
			if c.CIDR("blue") != "10.2.0.0/24" {
				w.Failf("Network blue was ready. A change of it failed once, and five minutes later it has not been tried again, although the cloud works.")
			}
		}},
		check.Scene{Name: "the cloud rests when nothing changes", Play: func(w *check.World) {
			c := cloud.New(w)
			w.Given(network("blue", "10.0.0.0/24"))
			start(w, c)
			w.Advance(time.Minute)
			before := c.Calls()
			w.Advance(time.Hour)
			if c.Calls() > before {
				w.Failf("Nothing has changed for an hour, and the controller called the cloud %d times.", c.Calls()-before)
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
		check.Scene{Name: "two networks always fail", Play: func(w *check.World) {
			c := cloud.New(w)
			w.Given(network("blue", invalid), network("red", invalid))
			start(w, validating{c})
			w.Advance(time.Hour)
			w.Given(network("green", "10.0.0.0/24"))
			w.Advance(time.Minute)
			if c.CIDR("green") == "" {
				w.Failf("The cloud refuses networks blue and red, because their CIDR is invalid. Then ConfigMap net/green was created, and a minute later network green has not been created.")
			}
		}},
	)
}

// network is a ConfigMap that describes a network.
func network(name, cidr string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "net", Name: name}, Data: map[string]string{"cidr": cidr}}
}

// invalid is no CIDR.
const invalid = "10.0.0.0/240"

// validating is a cloud that refuses networks whose CIDR is invalid.
type validating struct{ *cloud.Cloud }

func (v validating) Ensure(ctx context.Context, name, cidr string) error {
	if cidr == invalid {
		return fmt.Errorf("400 Bad Request: the CIDR of network %s is %s", name, cidr)
	}
	return v.Cloud.Ensure(ctx, name, cidr)
}

func start(w *check.World, c Cloud) *check.Process {
	return w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return (&Controller{Client: client, Namespace: "net", Cloud: c}).Run(ctx)
	})
}
