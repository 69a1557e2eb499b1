package main

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"example.com/controllers/reboot/protocol"
)

// observer follows the Nodes with an informer of its own.
type observer struct {
	mu    sync.Mutex
	nodes map[string]observed
	tally tally // of nodes
	slots []time.Duration
	most  int
}

// observed is what the observer knows about a Node.
type observed struct {
	admitted  time.Time // zero if the Node is not unavailable because of a reboot
	available bool      // Ready, schedulable and without taints
	unknown   bool      // the Ready condition is Unknown
	first     string    // boot ID that the Node was created with
	rebooted  bool      // available and idle, with another boot ID
}

// tally holds numbers of Nodes.
type tally struct{ admitted, available, rebooted int }

func (t *tally) add(o observed, by int) {
	for _, c := range []struct {
		is    bool
		count *int
	}{{!o.admitted.IsZero(), &t.admitted}, {o.available, &t.available}, {o.rebooted, &t.rebooted}} {
		if c.is {
			*c.count += by
		}
	}
}

// watch follows the Nodes until ctx is cancelled. stop waits for the end of the informer.
func (o *observer) watch(ctx context.Context, client kubernetes.Interface) (stop func(), err error) {
	factory := informers.NewSharedInformerFactory(client, 0)
	if _, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { o.update(object.(*corev1.Node)) },
		UpdateFunc: func(_, object any) { o.update(object.(*corev1.Node)) },
	}); err != nil {
		return nil, err
	}
	factory.StartWithContext(ctx)
	return factory.Shutdown, factory.WaitForCacheSyncWithContext(ctx).AsError()
}

// update processes a new version of a Node. What makes a Node unavailable is taken from the Node itself, and not from the
// controller's own count.
func (o *observer) update(node *corev1.Node) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, known := o.nodes[node.Name]
	if !known {
		n.first = node.Status.NodeInfo.BootID
	}
	o.tally.add(n, -1)
	phase := protocol.PhaseOf(node)
	idle := phase == protocol.Idle || phase == protocol.Needed
	ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	switch {
	case !idle && n.admitted.IsZero():
		n.admitted = time.Now()
	case idle && ready && !node.Spec.Unschedulable && !n.admitted.IsZero():
		o.slots = append(o.slots, time.Since(n.admitted))
		n.admitted = time.Time{}
	}
	n.unknown = slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
	})
	n.available = ready && len(node.Spec.Taints) == 0
	n.rebooted = phase == protocol.Idle && ready && !node.Spec.Unschedulable && node.Status.NodeInfo.BootID != n.first
	o.tally.add(n, 1)
	o.most = max(o.most, o.tally.admitted)
	o.nodes[node.Name] = n
}

// isUnknown reports whether the node lifecycle controller has missed the Node's heartbeats.
func (o *observer) isUnknown(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.nodes[name].unknown
}

func (o *observer) counts() tally {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tally
}

// results returns how long each Node was unavailable because of a reboot, and how many were at the same time at most.
func (o *observer) results() (slots []time.Duration, most int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.slots), o.most
}
