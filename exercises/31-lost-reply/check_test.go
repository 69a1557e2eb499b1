//go:build exercise

package lostreply

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/exercise/check"
)

func TestExercise(t *testing.T) {
	check.Run(t,
		check.Scene{Name: "two networks are created", Play: func(w *check.World) {
			c := start(w, &tagged{w: w})
			w.Given(network("red"))
			w.Advance(time.Minute)
			expect(w, c, 2, "There are ConfigMaps for two networks. ", "blue", "red")
		}},
		check.Scene{Name: "the cloud's answer is lost", Play: func(w *check.World) {
			c := start(w, &tagged{w: w, lose: 1})
			expect(w, c, 1, "The cloud created network blue, and its answer was lost. ", "blue")
		}},
		check.Scene{Name: "the ID cannot be written at first", Play: func(w *check.World) {
			w.Inject("verb=update,resource=configmaps,nth=1-3,refuse=500", "verb=patch,resource=configmaps,nth=1-3,refuse=500")
			c := start(w, &tagged{w: w})
			expect(w, c, 1, "The cloud created network blue, and the API server refused the annotation with its ID three times. ", "blue")
		}},
		check.Scene{Name: "the cloud refuses at first", Play: func(w *check.World) {
			c := start(w, &tagged{w: w, refuse: 3})
			expect(w, c, 1, "The cloud refused three calls. ", "blue")
		}},
		check.Scene{Name: "the cloud's answer is lost, and then it cannot say which networks there are", Play: func(w *check.World) {
			c := start(w, &tagged{w: w, lose: 1, refuseToFind: 1})
			expect(w, c, 1, "The cloud created network blue, its answer was lost, and the next search for the network failed. ", "blue")
		}},
		check.Scene{Name: "the controller is killed before it can write the ID", Play: func(w *check.World) {
			for _, verb := range []string{"update", "patch"} {
				w.InjectFault(apiproxy.Fault{
					Match:  apiproxy.Match{Verb: verb, Resource: "configmaps", From: 1, To: 1},
					Effect: apiproxy.Effect{Kill: apiproxy.Before},
				})
			}
			c := start(w, &tagged{w: w})
			c.run()
			expect(w, c, 1, "The controller was killed after it had created network blue and before it could write its ID. It was started again. ", "blue")
		}},
		check.Scene{Name: "a ConfigMap is deleted and created again", Play: func(w *check.World) {
			c := start(w, &tagged{w: w})
			for want := 2; want < 4; want++ {
				w.Delete("configmaps", "net", "blue")
				w.Advance(time.Second)
				w.Given(network("blue"))
				w.Advance(time.Minute)
				expect(w, c, want, "ConfigMap net/blue was deleted, and another one of that name created. ", "blue")
				got := check.Must(w.Client.CoreV1().ConfigMaps("net").Get(context.Background(), "blue", metav1.GetOptions{})).Annotations[NetworkID]
				if want := fmt.Sprint("network-", want); got != want {
					w.Failf("ConfigMap net/blue was deleted, and another one of that name created. It has %s, and should have %s, which was created for it.", got, want)
				}
			}
		}},
	)
}

// tagged is a Cloud in memory.
type tagged struct {
	w *check.World

	mu           sync.Mutex
	lose         int      // number of creations whose answer gets lost
	refuse       int      // number of calls that fail
	refuseToFind int      // number of calls of Find that fail once there is a network
	tags         []string // of the networks; the ID of a network is its place
}

func (c *tagged) refused() error {
	if c.refuse == 0 {
		return nil
	}
	c.refuse--
	c.w.Say("the cloud refuses a call")
	return errors.New("503 Service Unavailable")
}

// Create implements Cloud.
func (c *tagged) Create(_ context.Context, cidr, tag string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refused(); err != nil {
		return "", err
	}
	c.tags = append(c.tags, tag)
	id := fmt.Sprint("network-", len(c.tags))
	if c.lose > 0 {
		c.lose--
		c.w.Say("the cloud creates %s with %s; its answer is lost", id, cidr)
		return "", errors.New("connection reset by peer")
	}
	c.w.Say("the cloud creates %s with %s", id, cidr)
	return id, nil
}

// Find implements Cloud.
func (c *tagged) Find(_ context.Context, tag string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refused(); err != nil {
		return "", err
	}
	if c.refuseToFind > 0 && len(c.tags) > 0 {
		c.refuseToFind--
		c.w.Say("the cloud fails to find a network")
		return "", errors.New("503 Service Unavailable")
	}
	for i, other := range c.tags {
		if other == tag {
			return fmt.Sprint("network-", i+1), nil
		}
	}
	return "", nil
}

func network(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "net", Name: name}, Data: map[string]string{"cidr": "10.0.0.0/24"}}
}

func start(w *check.World, c *tagged) *tagged {
	w.Given(network("blue"))
	c.run()
	return c
}

func (c *tagged) run() {
	c.w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return (&Controller{Client: client, Namespace: "net", Cloud: c}).Run(ctx)
	})
	c.w.Advance(time.Minute)
}

func expect(w *check.World, c *tagged, want int, why string, configMaps ...string) {
	c.mu.Lock()
	got := len(c.tags)
	c.mu.Unlock()
	if got != want {
		w.Failf("%sA minute later, the cloud has %d networks; there should be %d.", why, got, want)
	}
	for _, name := range configMaps {
		network := check.Must(w.Client.CoreV1().ConfigMaps("net").Get(context.Background(), name, metav1.GetOptions{}))
		if network.Annotations[NetworkID] == "" {
			w.Failf("%sA minute later, ConfigMap net/%s has no annotation with the ID of its network.", why, name)
		}
	}
}
