//go:build exercise

package writeleaderelection

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/exercise/check"
)

func TestExercise(t *testing.T) {
	check.Run(t,
		check.Scene{Name: "one replica works", Play: func(w *check.World) {
			r := &replicas{w: w}
			r.start("a")
			r.start("b")
			w.Advance(time.Minute)
			r.oneOf("a", "b")
		}},
		check.Scene{Name: "the leader is stopped", Play: func(w *check.World) {
			r := &replicas{w: w, stopping: 5 * time.Second} // another replica takes a free Lease within 4.4 s, RetryPeriod with its jitter
			a := r.start("a")
			r.oneOf("a")
			r.start("b")
			w.Advance(time.Minute)
			r.oneOf("a")
			a.Stop()
			r.working()
			w.Advance(5 * time.Second)
			r.now("b", "Replica a was stopped and should have given up the Lease. Five seconds later, replica b does not work.")
		}},
		check.Scene{Name: "the leader is killed", Play: func(w *check.World) {
			r := &replicas{w: w}
			a := r.start("a")
			r.oneOf("a")
			r.start("b")
			w.Advance(time.Minute)
			a.Kill()
			w.Advance(time.Minute)
			r.now("b", "Replica a was killed. A minute later, replica b does not work.")
		}},
		check.Scene{Name: "the leader cannot reach the API server for a while", Play: func(w *check.World) {
			r := &replicas{w: w, stopping: 2 * time.Second}
			a := r.start("a")
			r.oneOf("a")
			b := r.start("b")
			w.Advance(time.Minute)
			w.Say("replica a cannot reach the API server")
			w.Inject("program=replica a,resource=leases,refuse=503")
			w.Advance(time.Minute)
			r.now("b", "Replica a could not renew its Lease for a minute, and replica b has not taken over.")
			w.Heal()
			w.Say("replica a can reach the API server again")
			w.Advance(time.Minute)
			r.now("b", "Replica a can reach the API server again, and replica b holds the Lease, but does not work.")
			b.Stop()
			w.Advance(time.Minute)
			r.now("a", "Replica a had lost the Lease and could reach the API server again. Then replica b was stopped, and a minute later, replica a does not work.")
			a.Stop()
		}},
		check.Scene{Name: "the leader's network hangs", Play: func(w *check.World) {
			for _, hang := range []time.Duration{18 * time.Second, 40 * time.Second} {
				r := &replicas{w: w, stopping: time.Second}
				a := r.start("a")
				r.oneOf("a")
				b := r.start("b")
				w.Advance(time.Minute)
				w.Say("the network of replica a hangs for %s", hang)
				w.Inject(fmt.Sprintf("program=replica a,resource=leases,hang=%[1]s,for=%[1]s", hang))
				for range 60 {
					w.Advance(time.Second)
					r.working()
				}
				r.now("b", "Replica a could not renew its Lease for a while, and replica b has not taken over.")
				w.Heal()
				b.Stop()
				w.Advance(time.Minute)
				r.now("a", "Replica a had lost the Lease and could reach the API server again. Then replica b was stopped, and a minute later, replica a does not work.")
				a.Stop()
			}
		}},
		check.Scene{Name: "a replica that does not lead is stopped", Play: func(w *check.World) {
			r := &replicas{w: w, stopping: time.Second}
			r.start("a")
			r.oneOf("a")
			r.start("b")
			for range 10 {
				c := r.start("c")
				w.Advance(20 * time.Second)
				c.Stop()
				for range 20 {
					w.Advance(time.Second)
					r.now("a", "Replica a works. Replica c, which does not, was stopped, and then replica a did not go on alone.")
				}
			}
		}},
		check.Scene{Name: "the leader loses the Lease, and takes long to stop its work", Play: func(w *check.World) {
			r := &replicas{w: w, stopping: 8 * time.Second}
			r.start("a")
			r.oneOf("a")
			w.Say("replica a cannot reach the API server for 11 seconds")
			w.Inject("program=replica a,resource=leases,refuse=503,for=11s")
			w.Advance(time.Minute)
			r.now("a", "Replica a had lost the Lease and can reach the API server again. A minute later, it does not work.")
		}},
	)
}

// replicas records which replicas work.
type replicas struct {
	w        *check.World
	stopping time.Duration // how long a replica takes to stop its work

	mu      sync.Mutex
	active  []string
	overlap []string // replicas that worked at the same time
	left    string   // a replica whose Run returned before its work
}

func (r *replicas) start(name string) *check.Process {
	return r.w.StartNamed("replica "+name, func(ctx context.Context, config *rest.Config) error {
		defer func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			if slices.Contains(r.active, name) {
				r.left = name
			}
		}()
		return Run(ctx, kubernetes.NewForConfigOrDie(config), "ops", name, func(ctx context.Context) {
			r.w.Say("replica %s begins to work", name)
			r.mu.Lock()
			r.active = append(r.active, name)
			if len(r.active) > 1 {
				r.overlap = slices.Sorted(slices.Values(r.active))
			}
			r.mu.Unlock()
			<-ctx.Done()
			time.Sleep(r.stopping)
			r.mu.Lock()
			for i, other := range r.active {
				if other == name {
					r.active = append(r.active[:i:i], r.active[i+1:]...)
					break
				}
			}
			r.mu.Unlock()
			r.w.Say("replica %s has stopped its work", name)
		})
	})
}

// working returns the replicas that work. It fails the check if they are or were more than one, or if the Run of one of
// them did not wait for its work.
func (r *replicas) working() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(slices.Compact(slices.Clone(r.overlap))) == 1 {
		r.w.Failf("Replica %s began to work again while its previous work was still going on.", r.overlap[0])
	}
	if len(r.overlap) > 0 {
		r.w.Failf("The replicas %v work at the same time.", r.overlap)
	}
	if r.left != "" {
		r.w.Failf("Replica %s was stopped, and its Run returned while its work was still going on.", r.left)
	}
	return append([]string(nil), r.active...)
}

// oneOf waits until one of the replicas works.
func (r *replicas) oneOf(names ...string) {
	r.w.Eventually(time.Minute, func() bool {
		got := r.working()
		for _, name := range names {
			if len(got) == 1 && got[0] == name {
				return true
			}
		}
		return false
	}, "A minute after it was started, no replica of %v works.", names)
}

// now fails the check with the message if the replica does not work.
func (r *replicas) now(name, message string) {
	if got := r.working(); len(got) != 1 || got[0] != name {
		r.w.Failf("%s", message)
	}
}
