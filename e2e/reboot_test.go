package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

const (
	rebootNamespace = "reboot-operator"
	rebootPrefix    = "reboot.controllers.example.com/"
)

// TestRebootOperator reboots the machines of all workers, twice. The second time, the leader is killed in the middle.
func TestRebootOperator(t *testing.T) {
	require.NoError(t, world.SurviveReboots(t.Context()))
	install(t, rebootNamespace, "e2e/manifests/reboot-operator")
	kubectl(t, "apply", "--namespace="+rebootNamespace, "-f", "05-reboot-operator/web.yaml")
	for _, workload := range []string{"daemonset/reboot-agent", "deployment/reboot-controller", "deployment/web"} {
		kubectl(t, "rollout", "status", workload, "--namespace="+rebootNamespace, "--timeout=3m")
	}
	workers := workerNames(t)
	require.Len(t, workers, 3)

	t.Run("rolling reboot", func(t *testing.T) {
		own := nodeOf(t, leader(t, rebootNamespace, "reboot-controller"))
		require.Contains(t, workers, own, "the operator's own Node is one of those that reboot")
		rollingReboot(t, workers, func() {})
	})
	t.Run("the leader is killed", func(t *testing.T) {
		var killed string
		rollingReboot(t, workers, func() {
			killed = leader(t, rebootNamespace, "reboot-controller")
			kubectl(t, "delete", "pod", killed, "--namespace="+rebootNamespace, "--grace-period=0", "--force")
		})
		require.NotEqual(t, killed, leader(t, rebootNamespace, "reboot-controller"))
	})
}

// rollingReboot asks for a reboot of all workers, and waits until it is over. It calls disturb when the first of them has
// been admitted. Throughout, at most one Node may be down, and at most one Pod of the workload.
func rollingReboot(t *testing.T, workers []string, disturb func()) {
	before := machineStarts(t)
	o := observe(t)
	for _, name := range workers {
		kubectl(t, "annotate", "node", name, rebootPrefix+"reboot-needed=test")
	}
	eventually(t, "wait until a Node has been admitted", func(ctx context.Context) string {
		if len(o.disrupted()) == 0 {
			return "no Node has been admitted"
		}
		return ""
	})
	disturb()
	eventually(t, "wait for the end of the rolling reboot", func(ctx context.Context) string {
		nodes, err := world.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for i := range nodes.Items {
			if state := stateOf(&nodes.Items[i]); state != "" {
				return state
			}
		}
		return ""
	})
	o.stop()
	require.Empty(t, o.violations)

	// The first process of each machine is another one, so the machine has rebooted.
	after := machineStarts(t)
	for name := range before {
		if slices.Contains(workers, name) {
			require.NotEqual(t, before[name], after[name], "Node %s has not rebooted", name)
		} else {
			require.Equal(t, before[name], after[name], "Node %s has rebooted", name)
		}
	}
	for _, name := range workers {
		eventually(t, "wait for the Event", func(context.Context) string {
			events := kubectl(t, "get", "events", "--namespace=default", "--field-selector=reason=Rebooted,involvedObject.name="+name, "--output=jsonpath={.items[*].message}{.items[*].note}")
			if !strings.Contains(events, "-"+after[name]) {
				return fmt.Sprintf("none says that Node %s has rebooted with its new boot ID: %s", name, events)
			}
			return ""
		})
	}
	kubectl(t, "rollout", "status", "deployment/web", "--namespace="+rebootNamespace, "--timeout=3m")
}

// stateOf returns what a Node is not done with, or "" if it is at rest.
func stateOf(node *corev1.Node) string {
	for key := range node.Annotations {
		switch strings.TrimPrefix(key, rebootPrefix) {
		case "reboot-needed", "reboot-now", "reboot-in-progress", "admitted", "cordoned":
			return fmt.Sprintf("Node %s has annotations %v", node.Name, slices.Sorted(maps.Keys(node.Annotations)))
		}
	}
	switch {
	case node.Spec.Unschedulable:
		return fmt.Sprintf("Node %s is cordoned", node.Name)
	case !isReady(node):
		return fmt.Sprintf("Node %s is not Ready", node.Name)
	}
	return ""
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// observer watches the Nodes and the workload.
type observer struct {
	stop func() // returns when both watches have ended

	mu         sync.Mutex
	down       map[string]bool // Nodes that are cordoned or not Ready
	violations []string
}

// observe starts to watch, and returns when it has the state of all Nodes.
func observe(t *testing.T) *observer {
	ctx, cancel := context.WithCancel(t.Context())
	o := &observer{down: map[string]bool{}}
	var watches sync.WaitGroup
	o.stop = func() {
		cancel()
		watches.Wait()
	}
	t.Cleanup(o.stop)
	nodes, err := world.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	follow(t, ctx, &watches, nodes.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return world.client.CoreV1().Nodes().Watch(ctx, options)
		},
	}, func(object runtime.Object) {
		if node, ok := object.(*corev1.Node); ok {
			o.sawNode(node)
		}
	})
	// The Pods of the workload that are Ready.
	list, err := world.client.CoreV1().Pods(rebootNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
	require.NoError(t, err)
	ready := map[string]bool{}
	for i := range list.Items {
		ready[list.Items[i].Name] = isPodReady(&list.Items[i])
	}
	follow(t, ctx, &watches, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = "app=web"
			return world.client.CoreV1().Pods(rebootNamespace).Watch(ctx, options)
		},
	}, func(object runtime.Object) {
		if pod, ok := object.(*corev1.Pod); ok {
			ready[pod.Name] = isPodReady(pod)
			o.sawPods(ready)
		}
	})
	return o
}

// follow calls each with the objects of a watch until ctx is cancelled.
func follow(t *testing.T, ctx context.Context, watches *sync.WaitGroup, resourceVersion string, listWatch *cache.ListWatch, each func(runtime.Object)) {
	t.Helper()
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, resourceVersion, listWatch)
	require.NoError(t, err)
	watches.Go(func() {
		for event := range watcher.ResultChan() {
			each(event.Object)
		}
	})
}

func (o *observer) sawNode(node *corev1.Node) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.down, node.Name)
	if _, admitted := node.Annotations[rebootPrefix+"admitted"]; admitted || node.Spec.Unschedulable || !isReady(node) {
		o.down[node.Name] = true
	}
	if len(o.down) > 1 {
		o.violations = append(o.violations, fmt.Sprintf("%v are down at the same time", slices.Sorted(maps.Keys(o.down))))
	}
}

// sawPods gets which of the workload's Pods are Ready. The budget allows one of the six to be unavailable.
func (o *observer) sawPods(ready map[string]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	available := 0
	for _, isReady := range ready {
		if isReady {
			available++
		}
	}
	if available < 5 {
		o.violations = append(o.violations, fmt.Sprintf("only %d Pods of the workload are Ready", available))
	}
}

func (o *observer) disrupted() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(maps.Keys(o.down))
}

func isPodReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// machineStarts returns when the first process of each Node's machine started, in clock ticks since the computer booted.
func machineStarts(t *testing.T) map[string]string {
	t.Helper()
	names, err := world.NodeNames()
	require.NoError(t, err)
	starts := map[string]string{}
	for _, name := range names {
		start, err := world.Exec(t.Context(), name, "awk", "{print $22}", "/proc/1/stat")
		require.NoError(t, err)
		starts[name] = strings.TrimSpace(start)
	}
	return starts
}

func workerNames(t *testing.T) []string {
	t.Helper()
	nodes, err := world.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "!node-role.kubernetes.io/control-plane"})
	require.NoError(t, err)
	var names []string
	for _, node := range nodes.Items {
		names = append(names, node.Name)
	}
	return names
}

// leader returns the name of the Pod that holds a Lease.
func leader(t *testing.T, namespace, name string) string {
	t.Helper()
	var pod string
	eventually(t, "wait for a leader", func(ctx context.Context) string {
		lease, err := world.client.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
			return "nobody holds the Lease"
		}
		pod, _, _ = strings.Cut(*lease.Spec.HolderIdentity, "_")
		return ""
	})
	return pod
}

func nodeOf(t *testing.T, pod string) string {
	t.Helper()
	p, err := world.client.CoreV1().Pods(rebootNamespace).Get(t.Context(), pod, metav1.GetOptions{})
	require.NoError(t, err)
	return p.Spec.NodeName
}
