// Package cloud is a place outside the cluster for the graders of exercises: a cloud that has networks, or a registry that
// has addresses. It works in the virtual time of a check, and can fail and be slow.
package cloud

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"example.com/controllers/harness/exercise/check"
)

// Cloud has networks, each with a name and a CIDR. A registry is the same for names and addresses.
type Cloud struct {
	w    *check.World
	name string // in timelines
	// ensure and delete are formats of what the calls do, in timelines.
	ensure, delete string

	mu       sync.Mutex
	networks map[string]string // name to CIDR
	down     error             // what every call fails with; nil if the cloud works
	failures int               // number of calls that are still to fail
	takes    time.Duration     // how long each call takes
	slow     bool              // whether the beginning of a call is worth a line of the timeline
	busy     map[string]int    // name to number of calls that are being carried out
	calls    int
	overlap  string // a network for which two calls were carried out at once; "" if there is none
}

// New returns an empty cloud.
func New(w *check.World) *Cloud {
	return &Cloud{
		w: w, name: "the cloud", ensure: "create network %s with %s", delete: "delete network %s",
		networks: map[string]string{}, busy: map[string]int{},
		takes: 10 * time.Millisecond, // so that time passes in a controller that calls it again and again
	}
}

// NewRegistry returns an empty registry: a place outside the cluster where names have addresses.
func NewRegistry(w *check.World) *Cloud {
	c := New(w)
	c.name, c.ensure, c.delete = "the registry", "register %s with address %q", "deregister %s"
	return c
}

// ErrUnavailable is what calls fail with.
var ErrUnavailable = errors.New("503 Service Unavailable")

// FailNext lets the next calls fail.
func (c *Cloud) FailNext(calls int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures = calls
}

// SetDown lets all calls fail until they no longer should.
func (c *Cloud) SetDown(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = nil
	if down {
		c.down = ErrUnavailable
		c.w.Say("%s is down", c.name)
		return
	}
	c.w.Say("%s is back", c.name)
}

// SetSlow sets how long each call takes.
func (c *Cloud) SetSlow(takes time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.takes, c.slow = takes, true
}

// CIDR returns the CIDR of a network, or "" if there is none.
func (c *Cloud) CIDR(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.networks[name]
}

// Names returns the names of all networks, sorted.
func (c *Cloud) Names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.networks))
}

// Calls returns the number of calls so far.
func (c *Cloud) Calls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

// Busy returns whether a call is being carried out.
func (c *Cloud) Busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.busy) > 0
}

// Overlap returns the name of a network for which two calls were carried out at the same time, or "".
func (c *Cloud) Overlap() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.overlap
}

// Ensure creates a network or changes its CIDR.
func (c *Cloud) Ensure(ctx context.Context, name, cidr string) error {
	return c.call(ctx, fmt.Sprintf(c.ensure, name, cidr), name, func() { c.networks[name] = cidr })
}

// Delete deletes a network. It is no error if there is none.
func (c *Cloud) Delete(ctx context.Context, name string) error {
	return c.call(ctx, fmt.Sprintf(c.delete, name), name, func() { delete(c.networks, name) })
}

func (c *Cloud) call(ctx context.Context, what, name string, do func()) error {
	c.mu.Lock()
	c.calls++
	takes, slow := c.takes, c.slow
	c.busy[name]++
	if c.busy[name] > 1 {
		c.overlap = name
	}
	c.mu.Unlock()
	err := ctx.Err()
	if err == nil {
		if slow {
			c.w.Call("%s begins to %s", c.name, what)
		}
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy[name]--; c.busy[name] == 0 {
		delete(c.busy, name)
	}
	switch {
	case err != nil:
	case c.down != nil:
		err = c.down
	case c.failures > 0:
		c.failures--
		err = ErrUnavailable
	}
	if err != nil {
		c.w.Call("%s fails to %s: %v", c.name, what, err)
		return err
	}
	c.w.Call("%s does: %s", c.name, what)
	do()
	return nil
}
