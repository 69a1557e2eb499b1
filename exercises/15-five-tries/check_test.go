//go:build exercise

package fivetries

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
	w.Advance(lasts)
	if c.Calls() > 1000+int(lasts/time.Minute) { // a call each minute is patient enough
		w.Failf("The cloud was down for %s, and the controller called it %d times.", long, c.Calls())
	}
	c.SetDown(false)
	w.Advance(24 * time.Hour)
	if c.CIDR("blue") == "" {
		w.Failf("The cloud was down for %s. A day later, network blue has not been created.", long)
	}
}

func start(w *check.World, c *cloud.Cloud) *check.Process {
	return w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return (&Controller{Client: client, Namespace: "net", Cloud: c}).Run(ctx)
	})
}
