//go:build exercise

package fivetries

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
		check.Scene{Name: "the cloud is down for a quarter of an hour", Play: func(w *check.World) {
			outage(w, 15*time.Minute, "a quarter of an hour")
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
		check.Scene{Name: "the cloud is down for three days", Play: func(w *check.World) {
			outage(w, 72*time.Hour, "three days")
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
	)
}

// network is a ConfigMap that describes a network.
func network(name, cidr string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "net", Name: name}, Data: map[string]string{"cidr": cidr}}
}

// outage fails the check if a network is not created after the cloud has been down for so long.
func outage(w *check.World, lasts time.Duration, long string) {
	c := cloud.New(w)
	w.Given(network("blue", "10.0.0.0/24"))
	c.SetDown(true)
	start(w, c)
	for passed := time.Duration(0); passed < lasts; {
		w.Advance(5 * time.Minute)
		passed += 5 * time.Minute
		if calls := c.Calls(); calls > 1000+int(passed/(10*time.Second)) {
			w.Failf("In the first %s of an outage, the controller called the cloud %d times for one network. Once every ten seconds would be often enough.", passed, calls)
		}
	}
	c.SetDown(false)
	w.Advance(2 * time.Hour)
	if c.CIDR("blue") == "" {
		w.Failf("The cloud was down for %s. Two hours after its return, network blue has not been created.", long)
	}
	w.Say("the cloud fails once more, after a success")
	c.FailNext(1)
	w.Given(network("blue", "10.2.0.0/24"))
	w.Advance(5 * time.Minute)
	if c.CIDR("blue") != "10.2.0.0/24" {
		w.Failf("Network blue was ready. A change of it failed once, and five minutes later it has not been tried again, although the cloud works.")
	}
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
