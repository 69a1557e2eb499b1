package host

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"example.com/controllers/harness/machine"
)

// boot identifies the time between two boots of a machine. What runs on a machine does not outlive it.
type boot struct {
	uid   types.UID // of the Node: one that is added again is another machine
	boots int
}

// Follow watches the machines whose labels match selector, or all of them for "". It calls on when a machine has been
// switched on, has booted or has been added, and for each machine that is on at the beginning. It calls off when the
// power goes off or the Node is removed. A machine that has booted unnoticed goes off and on. For each name, on and
// off alternate, with the Node as the watch has it; all calls come one at a time.
//
// Follow returns when ctx is cancelled, without calling off for the machines that are on.
func Follow(ctx context.Context, client kubernetes.Interface, selector string, on, off func(*corev1.Node)) error {
	all := machine.PowerLabel
	if selector != "" {
		all += "," + selector
	}
	if _, err := labels.Parse(all); err != nil {
		return fmt.Errorf("selector %q: %w", selector, err)
	}
	running := map[string]boot{}
	update := func(node *corev1.Node) {
		now := boot{node.UID, machine.Boots(node)}
		before, isRunning := running[node.Name]
		if isRunning && (!machine.IsOn(node) || before != now) {
			delete(running, node.Name)
			off(node)
		}
		if _, isRunning := running[node.Name]; !isRunning && machine.IsOn(node) {
			running[node.Name] = now
			on(node)
		}
	}
	remove := func(node *corev1.Node) {
		if _, isRunning := running[node.Name]; isRunning {
			delete(running, node.Name)
			off(node)
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				options.LabelSelector = all
				return client.CoreV1().Nodes().List(ctx, options)
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				options.LabelSelector = all
				return client.CoreV1().Nodes().Watch(ctx, options)
			},
		}, client),
		ObjectType: &corev1.Node{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { update(object.(*corev1.Node)) },
			UpdateFunc: func(_, object any) { update(object.(*corev1.Node)) },
			DeleteFunc: func(object any) {
				if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
					object = unknown.Obj
				}
				if node, ok := object.(*corev1.Node); ok {
					remove(node)
				}
			},
		},
	})
	informer.RunWithContext(ctx)
	return nil
}
