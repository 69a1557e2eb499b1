// Package ignoresadd reboots the machine that it runs on when its Node is annotated.
package ignoresadd

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// RebootNow is the annotation that tells the agent to reboot.
const RebootNow = "reboot.controllers.example.com/reboot-now"

// Resync is how often the informer calls UpdateFunc without a change.
const Resync = 12 * time.Hour

// Agent reboots one machine.
type Agent struct {
	Client   kubernetes.Interface
	NodeName string
	Reboot   func() error
}

// Run watches the agent's Node until ctx is cancelled.
func (a *Agent) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(a.Client, Resync,
		informers.WithTweakListOptions(func(list *metav1.ListOptions) {
			list.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, a.NodeName).String()
		}))
	defer factory.Shutdown()
	_, err := factory.Core().V1().Nodes().TypedInformer().AddTypedEventHandler(coreinformers.NodeHandlerFuncs{
		AddFunc:    func(node *corev1.Node) { a.handle(ctx, node) },
		UpdateFunc: func(_, node *corev1.Node) { a.handle(ctx, node) },
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	<-ctx.Done()
	return nil
}

// handle removes the annotation and reboots the machine. If it is interrupted between the two, the reboot is lost; a
// later exercise is about that.
func (a *Agent) handle(ctx context.Context, node *corev1.Node) {
	logger := klog.FromContext(ctx)
	if _, ok := node.Annotations[RebootNow]; !ok {
		return
	}
	node = node.DeepCopy() // the object in the cache is shared
	delete(node.Annotations, RebootNow)
	if _, err := a.Client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
		logger.Error(err, "Failed to remove the annotation, will not reboot", "node", node.Name)
		return
	}
	logger.Info("Rebooting", "node", node.Name)
	if err := a.Reboot(); err != nil {
		logger.Error(err, "Failed to reboot", "node", node.Name)
	}
}
