//go:build exercise

package writeareconcile

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/exercise/check"
)

func TestExercise(t *testing.T) {
	check.Run(t,
		check.Scene{Name: "a network is created", Play: func(w *check.World) {
			c := start(w, nil, network("blue", "10.0.0.0/24"))
			if got := c.cidr("blue"); got != "10.0.0.0/24" {
				w.Failf("ConfigMap net/blue asks for a network with 10.0.0.0/24. A minute later, the cloud has %q.", got)
			}
		}},
		check.Scene{Name: "a network is changed", Play: func(w *check.World) {
			c := start(w, nil, network("blue", "10.0.0.0/24"))
			w.Given(network("blue", "10.2.0.0/24"))
			w.Advance(time.Minute)
			if got := c.cidr("blue"); got != "10.2.0.0/24" {
				w.Failf("ConfigMap net/blue was changed to 10.2.0.0/24. A minute later, the network in the cloud has %q.", got)
			}
		}},
		check.Scene{Name: "a network is deleted", Play: func(w *check.World) {
			c := start(w, nil, network("blue", "10.0.0.0/24"), network("red", "10.1.0.0/24"))
			w.Delete("configmaps", "net", "blue")
			w.Advance(time.Minute)
			if c.cidr("blue") != "" {
				w.Failf("ConfigMap net/blue was deleted. A minute later, its network is still in the cloud.")
			}
			if c.cidr("red") == "" {
				w.Failf("ConfigMap net/blue was deleted, and network red is gone from the cloud.")
			}
		}},
		check.Scene{Name: "the network exists already", Play: func(w *check.World) {
			c := start(w, map[string]string{"blue": "10.0.0.0/24"}, network("blue", "10.0.0.0/24"))
			labelled := network("blue", "10.0.0.0/24")
			labelled.Labels = map[string]string{"team": "shop"}
			w.Given(labelled)
			w.Advance(time.Hour)
			if c.writes > 0 {
				w.Failf("Network blue was right all the time, and the controller wrote to the cloud %d times.", c.writes)
			}
		}},
		check.Scene{Name: "the network is gone already", Play: func(w *check.World) {
			c := start(w, nil, network("blue", "10.0.0.0/24"))
			c.remove("blue")
			w.Say("somebody deletes network blue in the cloud")
			w.Delete("configmaps", "net", "blue")
			w.Advance(time.Hour)
			if c.failed > 1 {
				w.Failf("Somebody deleted network blue in the cloud, and then ConfigMap net/blue. In an hour, the controller tried %d times to delete a network that does not exist.", c.failed)
			}
		}},
		check.Scene{Name: "each call fails once", Play: func(w *check.World) {
			c := start(w, nil)
			c.fail("get", "create", "update", "delete")
			w.Given(network("blue", "10.0.0.0/24"))
			w.Advance(time.Minute)
			if c.cidr("blue") == "" {
				w.Failf("The cloud failed once, and a minute later network blue has not been created.")
			}
			c.fail("get")
			w.Given(network("blue", "10.2.0.0/24"))
			w.Advance(time.Minute)
			if got := c.cidr("blue"); got != "10.2.0.0/24" {
				w.Failf("The cloud failed once to change network blue, and a minute later it still has %q.", got)
			}
			if c.exist > 0 {
				w.Failf("The cloud failed once to say whether network blue exists. It does, and the controller tried to create it.")
			}
			c.fail("get")
			w.Delete("configmaps", "net", "blue")
			w.Advance(time.Minute)
			if c.cidr("blue") != "" {
				w.Failf("The cloud failed once to delete network blue, and a minute later the network is still there.")
			}
		}},
		check.Scene{Name: "the network exists with another CIDR", Play: func(w *check.World) {
			c := start(w, map[string]string{"blue": "10.9.0.0/24"}, network("blue", "10.0.0.0/24"))
			if got := c.cidr("blue"); got != "10.0.0.0/24" {
				w.Failf("ConfigMap net/blue asks for 10.0.0.0/24, and its network existed with 10.9.0.0/24 when the controller was started. A minute later, it has %q.", got)
			}
			c.mu.Lock()
			deleted := c.deleted
			c.mu.Unlock()
			if deleted > 0 {
				w.Failf("Network blue was to be changed from 10.9.0.0/24 to 10.0.0.0/24. The controller deleted it and created another one: all that was in it is gone.")
			}
		}},
		check.Scene{Name: "the network disappears before it is changed", Play: func(w *check.World) {
			c := start(w, nil, network("blue", "10.0.0.0/24"))
			c.mu.Lock()
			c.vanishes = true
			c.mu.Unlock()
			w.Given(network("blue", "10.2.0.0/24"))
			w.Advance(time.Minute)
			if got := c.cidr("blue"); got != "10.2.0.0/24" {
				w.Failf("ConfigMap net/blue was changed to 10.2.0.0/24, and somebody deleted its network right before the controller changed it. A minute later, the network in the cloud has %q.", got)
			}
		}},
		check.Scene{Name: "a ConfigMap loses its CIDR", Play: func(w *check.World) {
			c := start(w, nil, network("blue", "10.0.0.0/24"))
			w.Given(network("blue", ""))
			w.Advance(time.Minute)
			c.mu.Lock()
			_, exists := c.networks["blue"]
			c.mu.Unlock()
			if !exists {
				w.Failf("Somebody removed the CIDR from ConfigMap net/blue by mistake. The ConfigMap still exists, and a minute later, its network is gone with all that was in it.")
			}
		}},
		check.Scene{Name: "the cloud is down for ten minutes", Play: func(w *check.World) {
			c := start(w, nil)
			c.mu.Lock()
			c.down = true
			c.mu.Unlock()
			w.Given(network("blue", "10.0.0.0/24"))
			w.Advance(10 * time.Minute)
			c.mu.Lock()
			c.down = false
			c.mu.Unlock()
			w.Advance(30 * time.Minute) // more than the backoff of the last failure
			if c.cidr("blue") == "" {
				w.Failf("The cloud was down for ten minutes. Half an hour later, there is no network for ConfigMap net/blue.")
			}
		}},
		check.Scene{Name: "the controller is stopped while the cloud does not answer", Play: func(w *check.World) {
			c := &fakeCloud{w: w, networks: map[string]string{}, failing: map[string]bool{}}
			controller := c.run()
			for _, step := range []struct {
				verb string
				do   func()
			}{
				{"get", func() { w.Given(network("red", "10.1.0.0/24")) }},
				{"create", func() { w.Given(network("blue", "10.0.0.0/24")) }},
				{"update", func() { w.Given(network("blue", "10.2.0.0/24")) }},
				{"delete", func() { w.Delete("configmaps", "net", "blue") }},
			} {
				w.Say("the cloud does not answer any more to: %s", step.verb)
				c.hang(step.verb)
				step.do()
				w.Advance(time.Minute)
				controller.Stop()
				c.hang("")
				controller = c.run()
				w.Advance(time.Minute)
			}
		}},
	)
}

func network(name, cidr string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "net", Name: name}, Data: map[string]string{"cidr": cidr}}
}

func start(w *check.World, networks map[string]string, configMaps ...*corev1.ConfigMap) *fakeCloud {
	c := &fakeCloud{w: w, networks: map[string]string{}, failing: map[string]bool{}}
	for name, cidr := range networks {
		c.networks[name] = cidr
	}
	for _, configMap := range configMaps {
		w.Given(configMap)
	}
	c.run()
	w.Advance(time.Minute)
	return c
}

func (c *fakeCloud) run() *check.Process {
	return c.w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return (&Controller{Client: client, Namespace: "net", Cloud: c}).Run(ctx)
	})
}

// fakeCloud is a Cloud in memory.
type fakeCloud struct {
	w *check.World

	mu       sync.Mutex
	networks map[string]string
	failing  map[string]bool // the calls that fail once
	writes   int             // that succeeded
	failed   int             // writes that failed
	exist    int             // attempts to create a network that existed
	deleted  int             // networks
	down     bool            // every call fails
	vanishes bool            // the network is gone right before the next update
	hanging  string          // the calls that get no answer
}

// hang makes the calls of one kind get no answer; "" means none.
func (c *fakeCloud) hang(verb string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hanging = verb
}

func (c *fakeCloud) cidr(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.networks[name]
}

func (c *fakeCloud) remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.networks, name)
}

func (c *fakeCloud) fail(calls ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range calls {
		c.failing[call] = true
	}
}

// call carries out a call: do returns whether it is possible.
func (c *fakeCloud) call(ctx context.Context, verb, name string, do func(exists bool) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hanging == verb {
		c.mu.Unlock()
		<-ctx.Done()
		c.mu.Lock()
		return ctx.Err()
	}
	if c.vanishes && verb == "update" {
		c.vanishes = false
		delete(c.networks, name)
		c.w.Say("somebody deletes network %s in the cloud", name)
	}
	_, exists := c.networks[name]
	var err error
	if c.down || c.failing[verb] {
		delete(c.failing, verb)
		err = fmt.Errorf("503 Service Unavailable")
	} else {
		err = do(exists)
	}
	answer := "done"
	if err != nil {
		answer = err.Error()
	}
	if verb != "get" && err != nil {
		c.failed++
	} else if verb != "get" {
		c.writes++
	}
	c.w.Call("the cloud gets: %s network %s; it answers: %s", verb, name, answer)
	return err
}

// Get implements Cloud.
func (c *fakeCloud) Get(ctx context.Context, name string) (cidr string, err error) {
	err = c.call(ctx, "get", name, func(exists bool) error {
		if !exists {
			return fmt.Errorf("get %s: %w", name, ErrNotFound)
		}
		cidr = c.networks[name]
		return nil
	})
	return cidr, err
}

// Create implements Cloud.
func (c *fakeCloud) Create(ctx context.Context, name, cidr string) error {
	return c.call(ctx, "create", name, func(exists bool) error {
		if exists {
			c.exist++
			return fmt.Errorf("network %s exists", name)
		}
		c.networks[name] = cidr
		return nil
	})
}

// Update implements Cloud.
func (c *fakeCloud) Update(ctx context.Context, name, cidr string) error {
	return c.call(ctx, "update", name, func(exists bool) error {
		if !exists {
			return fmt.Errorf("update %s: %w", name, ErrNotFound)
		}
		c.networks[name] = cidr
		return nil
	})
}

// Delete implements Cloud.
func (c *fakeCloud) Delete(ctx context.Context, name string) error {
	return c.call(ctx, "delete", name, func(exists bool) error {
		if !exists {
			return fmt.Errorf("delete %s: %w", name, ErrNotFound)
		}
		delete(c.networks, name)
		c.deleted++
		return nil
	})
}
