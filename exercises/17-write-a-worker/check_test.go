//go:build exercise

package writeaworker

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
		check.Scene{Name: "the cloud fails a few times", Play: func(w *check.World) {
			c := cloud.New(w)
			c.FailNext(7)
			w.Given(network("blue", "10.0.0.0/24"))
			start(w, c)
			w.Advance(time.Hour)
			if c.CIDR("blue") == "" {
				w.Failf("The cloud failed to create network blue a few times. An hour later, there is no such network, although the cloud works.")
			}
		}},
		check.Scene{Name: "the cloud is down for a day", Play: func(w *check.World) {
			c := cloud.New(w)
			w.Given(network("blue", "10.0.0.0/24"))
			c.SetDown(true)
			start(w, c)
			for passed := time.Duration(0); passed < 24*time.Hour; {
				w.Advance(5 * time.Minute)
				passed += 5 * time.Minute
				if calls := c.Calls(); calls > 1000+int(passed/(10*time.Second)) {
					w.Failf("In the first %s of an outage, the controller called the cloud %d times for one network. Once every ten seconds would be often enough.", passed, calls)
				}
			}
			if w.Errors() == 0 {
				w.Failf("The cloud was down for a day, so network blue could not be created, and no error was logged: nobody will know.")
			}
			c.SetDown(false)
			w.Advance(time.Hour)
			if c.CIDR("blue") == "" {
				w.Failf("The cloud was down for a day. An hour after its return, network blue has not been created.")
			}
			w.Say("the cloud fails once more, after a success")
			c.FailNext(1)
			w.Given(network("blue", "10.2.0.0/24"))
			w.Advance(5 * time.Second)
			if c.CIDR("blue") != "10.2.0.0/24" {
				w.Failf("Network blue was ready. A change of it failed once, and five seconds later it has not been tried again. After a success, the first delay should be short.")
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
		check.Scene{Name: "two networks always take too long", Play: func(w *check.World) {
			c := cloud.New(w)
			w.Given(network("blue", overloaded), network("red", overloaded))
			start(w, validating{c})
			w.Advance(time.Hour)
			w.Given(network("green", "10.0.0.0/24"))
			w.Advance(time.Minute)
			if c.CIDR("green") == "" {
				w.Failf("All calls for networks blue and red end with a timeout. Then ConfigMap net/green was created, and a minute later network green has not been created.")
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

const (
	invalid    = "10.0.0.0/240" // no CIDR
	overloaded = "10.9.0.0/24"  // with this CIDR, the cloud takes too long
)

// validating is a cloud that refuses networks whose CIDR is invalid, and takes too long for some others.
type validating struct{ *cloud.Cloud }

func (v validating) Ensure(ctx context.Context, name, cidr string) error {
	switch cidr {
	case overloaded:
		return fmt.Errorf("create network %s: %w", name, context.DeadlineExceeded)
	case invalid:
		return fmt.Errorf("400 Bad Request: the CIDR of network %s is %s", name, cidr)
	}
	return v.Cloud.Ensure(ctx, name, cidr)
}

func start(w *check.World, c Cloud) *check.Process {
	return w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return (&Controller{Client: client, Namespace: "net", Cloud: c}).Run(ctx)
	})
}
