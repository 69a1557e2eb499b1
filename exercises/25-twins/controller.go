// Package twins runs a Pod for each task.
package twins

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// Task is the label of a Pod with the name of its task.
const Task = "tasks.controllers.example.com/task"

// Controller runs one Pod for each task. A task is a ConfigMap whose key "image" has the image to run.
type Controller struct {
	Client    kubernetes.Interface
	Namespace string

	tasks listers.ConfigMapLister
	pods  listers.PodLister
	queue workqueue.TypedRateLimitingInterface[cache.ObjectName] // keys of tasks
}

// Run reconciles until ctx is cancelled.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(c.Client, 0, informers.WithNamespace(c.Namespace))
	defer factory.Shutdown()
	c.tasks, c.pods = factory.Core().V1().ConfigMaps().Lister(), factory.Core().V1().Pods().Lister()
	factory.Core().V1().Pods().Informer()
	c.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
	_, err := factory.Core().V1().ConfigMaps().TypedInformer().AddTypedEventHandler(coreinformers.ConfigMapHandlerFuncs{
		AddFunc:    func(task *corev1.ConfigMap) { c.queue.Add(cache.MetaObjectToName(task)) },
		UpdateFunc: func(_, task *corev1.ConfigMap) { c.queue.Add(cache.MetaObjectToName(task)) },
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	if err := factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		c.queue.ShutDown()
		return nil // ctx was cancelled first
	}
	var worker sync.WaitGroup
	worker.Go(func() {
		for c.processNextWorkItem(ctx) {
		}
	})
	<-ctx.Done()
	c.queue.ShutDown()
	worker.Wait()
	return nil
}

func (c *Controller) processNextWorkItem(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	if err := c.reconcile(ctx, key); err != nil {
		klog.FromContext(ctx).Error(err, "Reconcile failed, requeueing with backoff", "task", key)
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	return true
}

// reconcile creates the Pod of a task, if there is none. When the task is gone, garbage collection deletes the Pod.
func (c *Controller) reconcile(ctx context.Context, key cache.ObjectName) error {
	task, err := c.tasks.ConfigMaps(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	pods, err := c.pods.Pods(key.Namespace).List(labels.SelectorFromSet(labels.Set{Task: task.Name}))
	if err != nil {
		return err
	}
	if slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return metav1.IsControlledBy(pod, task) }) {
		return nil
	}
	_, err = c.Client.CoreV1().Pods(key.Namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName:    task.Name + "-",
			Labels:          map[string]string{Task: task.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(task, corev1.SchemeGroupVersion.WithKind("ConfigMap"))},
		},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "task", Image: task.Data["image"]}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create the Pod of task %s: %w", key, err)
	}
	return nil
}
