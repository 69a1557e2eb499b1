//go:build exercise

package ghostlock

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/exercise/check"
)

func TestExercise(t *testing.T) {
	check.Run(t,
		check.Scene{Name: "two machines take turns", Play: func(w *check.World) {
			c := begin(w, "", "node-1", "node-2")
			w.Advance(time.Hour)
			c.expect(w, "", "node-1", "node-2")
		}},
		check.Scene{Name: "two machines try to take the lock at the same time", Play: func(w *check.World) {
			w.Inject("verb=update,resource=configmaps,nth=1-2,delay=10s", "verb=patch,resource=configmaps,nth=1-2,delay=10s")
			c := begin(w, "", "node-1", "node-2")
			w.Advance(time.Hour)
			c.expect(w, "Nobody held the lock, and both agents tried to take it. ", "node-1", "node-2")
		}},
		check.Scene{Name: "another Node holds the lock", Play: func(w *check.World) {
			w.Given(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-9"}})
			c := begin(w, "node-9", "node-1")
			w.Advance(time.Hour)
			c.expect(w, "Node node-9 exists and holds the lock. ")
		}},
		check.Scene{Name: "the holder of the lock is gone", Play: func(w *check.World) {
			w.Given(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-9"}})
			c := begin(w, "node-9", "node-1", "node-2")
			w.Advance(time.Minute)
			w.Delete("nodes", "", "node-9")
			w.Advance(time.Hour)
			c.expect(w, "Node node-9 held the lock and was deleted an hour ago. ", "node-1", "node-2")
		}},
		check.Scene{Name: "nobody knows whether the holder is gone", Play: func(w *check.World) {
			w.Given(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-9"}})
			w.Inject("verb=get,resource=nodes,refuse=500", "verb=list,resource=nodes,refuse=500")
			c := begin(w, "node-9", "node-1")
			w.Advance(time.Hour)
			c.expect(w, "Node node-9 exists and holds the lock, and the API server cannot return it at the moment. ")
		}},
		check.Scene{Name: "nobody may know whether the holder is gone", Play: func(w *check.World) {
			w.Given(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-9"}})
			var c *cluster
			for _, status := range []int{403, 429, 504} {
				w.Heal()
				w.Inject(fmt.Sprint("verb=get,resource=nodes,refuse=", status), fmt.Sprint("verb=list,resource=nodes,refuse=", status))
				if c == nil {
					c = begin(w, "node-9", "node-1")
				}
				w.Advance(20 * time.Minute)
				c.expect(w, fmt.Sprintf("Node node-9 exists and holds the lock, and the API server answers %d to every question about Nodes. ", status))
			}
		}},
		check.Scene{Name: "the holder is one of many Nodes", Play: func(w *check.World) {
			for i := range 50 {
				w.Given(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-2%02d", i), Labels: map[string]string{"node-role.kubernetes.io/worker": ""}}})
			}
			holder := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-9", Labels: map[string]string{"node-role.kubernetes.io/control-plane": ""}}}
			holder.Spec.Unschedulable = true
			holder.Spec.Taints = []corev1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}}
			holder.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
			w.Given(holder)
			c := begin(w, "node-9", "node-1")
			w.Advance(time.Hour)
			c.expect(w, "Node node-9 is a control plane node, holds the lock, and is being rebooted. ")
		}},
		check.Scene{Name: "the holder is gone, and another agent is faster", Play: func(w *check.World) {
			w.Given(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-8"}})
			var once sync.Once
			for _, verb := range []string{"update", "patch", "delete"} {
				w.Before(verb, "configmaps", func() {
					once.Do(func() {
						locks := w.Client.CoreV1().ConfigMaps("ops")
						lock := check.Must(locks.Get(context.Background(), LockName, metav1.GetOptions{}))
						lock.Data = map[string]string{"holder": "node-8"}
						check.Must(locks.Update(context.Background(), lock, metav1.UpdateOptions{}))
					})
				})
			}
			c := begin(w, "node-9", "node-1")
			w.Advance(time.Hour)
			c.expect(w, "Node node-9 held the lock and is gone. Node node-8 exists, and took the lock a moment before node-1 did. ")
		}},
		check.Scene{Name: "an agent without work finds the lock held", Play: func(w *check.World) {
			c := begin(w, "", "node-1")
			w.Advance(10 * time.Minute)
			c.expect(w, "", "node-1")
			locks := w.Client.CoreV1().ConfigMaps("ops")
			lock := check.Must(locks.Get(context.Background(), LockName, metav1.GetOptions{}))
			lock.Data = map[string]string{"holder": "node-9"}
			w.Given(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-9"}})
			check.Must(locks.Update(context.Background(), lock, metav1.UpdateOptions{}))
			w.Advance(time.Hour)
			if holder := check.Must(locks.Get(context.Background(), LockName, metav1.GetOptions{})).Data["holder"]; holder != "node-9" {
				w.Failf("Node node-9 exists and holds the lock, and node-1 needs no reboot. An hour later, the holder of the lock is %q.", holder)
			}
		}},
	)
}

// cluster has machines that need a reboot.
type cluster struct {
	mu       sync.Mutex
	names    []string
	rebooted map[string]bool
	down     int // machines that are rebooting
	overlap  bool
}

// machine is one of them.
type machine struct {
	*cluster
	w    *check.World
	name string
}

func begin(w *check.World, holder string, names ...string) *cluster {
	c := &cluster{names: names, rebooted: map[string]bool{}}
	lock := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ops", Name: LockName}}
	if holder != "" {
		lock.Data = map[string]string{"holder": holder}
	}
	w.Given(lock)
	for _, name := range names {
		w.Given(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		w.StartNamed("agent of "+name, func(ctx context.Context, config *rest.Config) error {
			agent := &Agent{Client: kubernetes.NewForConfigOrDie(config), Namespace: "ops", NodeName: name,
				Machine: &machine{c, w, name}, Interval: time.Minute}
			return agent.Run(ctx)
		})
		w.Advance(time.Second)
	}
	return c
}

// NeedsReboot implements Machine.
func (m *machine) NeedsReboot() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.rebooted[m.name]
}

// Reboot implements Machine.
func (m *machine) Reboot(ctx context.Context) error {
	m.w.Say("%s goes down", m.name)
	m.mu.Lock()
	m.down++
	m.overlap = m.overlap || m.down > 1
	m.mu.Unlock()
	select {
	case <-time.After(5 * time.Minute):
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down--
	m.rebooted[m.name] = true
	m.w.Say("%s is back", m.name)
	return ctx.Err()
}

func (c *cluster) expect(w *check.World, why string, want ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.overlap {
		w.Failf("%sTwo machines rebooted at the same time.", why)
	}
	for _, name := range c.names {
		expected := false
		for _, other := range want {
			expected = expected || other == name
		}
		switch {
		case expected && !c.rebooted[name]:
			w.Failf("%sNode %s needs a reboot and still waits for the lock.", why, name)
		case !expected && c.rebooted[name]:
			w.Failf("%sNode %s was rebooted without the lock.", why, name)
		}
	}
}
