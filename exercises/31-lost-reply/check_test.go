//go:build exercise

package lostreply

import (
	"context"
	"errors"
	"fmt"
	"math"
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
				got := get(w, "blue").Annotations[NetworkID]
				if want := fmt.Sprint("network-", want); got != want {
					w.Failf("ConfigMap net/blue was deleted, and another one of that name created. It has %s, and should have %s, which was created for it.", got, want)
				}
			}
		}},
		check.Scene{Name: "the cloud's answer is lost, and the ConfigMap changes", Play: func(w *check.World) {
			c := &tagged{w: w, lose: 1}
			c.lost = func() {
				n := get(w, "blue")
				n.Labels, n.Data["cidr"] = map[string]string{"team": "a"}, "10.2.0.0/24"
				check.Must(w.Client.CoreV1().ConfigMaps("net").Update(context.Background(), n, metav1.UpdateOptions{}))
			}
			start(w, c)
			expect(w, c, 1, "The cloud created network blue, its answer was lost, and somebody changed the ConfigMap. ", "blue")
		}},
		check.Scene{Name: "the cloud refuses for ten minutes", Play: func(w *check.World) {
			c := start(w, &tagged{w: w, refuse: math.MaxInt})
			w.Advance(9 * time.Minute)
			c.mu.Lock()
			calls := math.MaxInt - c.refuse
			c.refuse = 0
			c.mu.Unlock()
			if calls > 1500 {
				w.Failf("The cloud refused all calls for ten minutes. The controller made %d.", calls)
			}
			w.Advance(30 * time.Minute) // more than the backoff of the last failure
			expect(w, c, 1, "The cloud refused all calls for ten minutes, and then worked for half an hour. ", "blue")
		}},
		check.Scene{Name: "a ConfigMap is created while the controller is down", Play: func(w *check.World) {
			w.Given(network("red"))
			w.Advance(time.Hour)
			c := start(w, &tagged{w: w, lose: 1})
			expect(w, c, 2, "ConfigMap net/red was created an hour before the controller was started. ", "blue", "red")
		}},
		check.Scene{Name: "the controller is stopped while the cloud does not answer", Play: func(w *check.World) {
			for _, finds := range []int{0, 1} {
				w.Say("the cloud answers no call any more but %d to find a network", finds)
				w.Given(network("blue"))
				c := &tagged{w: w, hang: true, finds: finds}
				c.run().Stop()
				w.Delete("configmaps", "net", "blue")
			}
		}},
	)
}

// tagged is a Cloud in memory.
type tagged struct {
	w *check.World

	mu           sync.Mutex
	lose         int      // number of creations whose answer gets lost
	lost         func()   // what happens when one gets lost; nil if nothing does
	refuse       int      // number of calls that fail
	refuseToFind int      // number of calls of Find that fail once there is a network
	hang         bool     // calls get no answer
	finds        int      // number of calls of Find that still get one
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
func (c *tagged) Create(ctx context.Context, cidr, tag string) (string, error) {
	if c.hang {
		<-ctx.Done()
		return "", ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refused(); err != nil {
		return "", err
	}
	c.tags = append(c.tags, tag)
	id := fmt.Sprint("network-", len(c.tags))
	if c.lose > 0 {
		c.lose--
		c.w.Call("the cloud creates %s with %s; its answer is lost", id, cidr)
		if c.lost != nil {
			c.lost()
		}
		return "", errors.New("connection reset by peer")
	}
	c.w.Call("the cloud creates %s with %s", id, cidr)
	return id, nil
}

// Find implements Cloud.
func (c *tagged) Find(ctx context.Context, tag string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hang && c.finds == 0 {
		c.mu.Unlock()
		<-ctx.Done()
		c.mu.Lock()
		return "", ctx.Err()
	}
	c.finds--
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

func (c *tagged) run() *check.Process {
	p := c.w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return (&Controller{Client: client, Namespace: "net", Cloud: c}).Run(ctx)
	})
	c.w.Advance(time.Minute)
	return p
}

func get(w *check.World, name string) *corev1.ConfigMap {
	return check.Must(w.Client.CoreV1().ConfigMaps("net").Get(context.Background(), name, metav1.GetOptions{}))
}

func expect(w *check.World, c *tagged, want int, why string, configMaps ...string) {
	c.mu.Lock()
	got := len(c.tags)
	c.mu.Unlock()
	if got != want {
		w.Failf("%sA minute later, the cloud has %d networks; there should be %d.", why, got, want)
	}
	for _, name := range configMaps {
		if get(w, name).Annotations[NetworkID] == "" {
			w.Failf("%sA minute later, ConfigMap net/%s has no annotation with the ID of its network.", why, name)
		}
	}
}
