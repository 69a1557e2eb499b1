// Package naiveloop is a controller in its simplest form, a loop: look at the desired state, look at
// the current state, make changes, and begin again.
//
// Its job: say on which node each Pod runs, and when ConfigMap "frontend-config" changes, replace
// the Pods labelled app=frontend by deleting them; their Deployment brings them back.
package naiveloop

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// ConfigName is the name of the ConfigMap that the frontend reads when it starts.
const ConfigName = "frontend-config"

// Controller does the job in one namespace. It remembers nothing from one pass of its loop to the
// next: all it knows, it asks the API server for.
type Controller struct {
	Client    kubernetes.Interface
	Namespace string        // the only namespace whose Pods it deletes
	NodeName  string        // the Node that it runs on itself; "" if it was not told
	Interval  time.Duration // from the end of a pass to the start of the next
}

// Run loops until ctx ends. A pass that fails is logged; the next one starts from scratch anyway.
func (c *Controller) Run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	for ctx.Err() == nil {
		if err := c.pass(ctx); err != nil && ctx.Err() == nil {
			logger.Error(err, "Pass failed, the next one tries again")
		}
		select {
		case <-time.After(c.Interval):
		case <-ctx.Done():
		}
	}
	logger.Info("Stopped")
}

func (c *Controller) pass(ctx context.Context) error {
	desired, err := c.desiredState(ctx)
	if err != nil {
		return err
	}
	current, err := c.currentState(ctx)
	if err != nil {
		return err
	}
	return c.makeChanges(ctx, desired, current)
}

// desired is how the world should be: no Pod of the frontend is older than the config it should run.
type desired struct {
	configChanged time.Time // in whole seconds; zero when there is no config
}

// current is how the world is.
type current struct {
	self  *corev1.Node // the Node we run on; nil if we do not know
	nodes []corev1.Node
	pods  []corev1.Pod
}

func (c *Controller) desiredState(ctx context.Context) (desired, error) {
	config, err := c.Client.CoreV1().ConfigMaps(c.Namespace).Get(ctx, ConfigName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return desired{}, nil
	}
	if err != nil {
		return desired{}, fmt.Errorf("get ConfigMap %s/%s: %w", c.Namespace, ConfigName, err)
	}
	return desired{configChanged: lastChange(config)}, nil
}

func (c *Controller) currentState(ctx context.Context) (current, error) {
	var now current
	if c.NodeName != "" {
		self, err := c.Client.CoreV1().Nodes().Get(ctx, c.NodeName, metav1.GetOptions{})
		if err != nil {
			return current{}, fmt.Errorf("get our own Node %s: %w", c.NodeName, err)
		}
		now.self = self
	}
	nodes, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return current{}, fmt.Errorf("list Nodes: %w", err)
	}
	pods, err := c.Client.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return current{}, fmt.Errorf("list Pods in %s: %w", c.Namespace, err)
	}
	now.nodes, now.pods = nodes.Items, pods.Items
	return now, nil
}

func (c *Controller) makeChanges(ctx context.Context, desired desired, current current) error {
	logger := klog.FromContext(ctx)
	if current.self != nil {
		logger.Info("My Node", "node", current.self.Name, "labels", current.self.Labels)
	}
	logger.Info("The cluster", "nodes", len(current.nodes), "pods", len(current.pods))
	var errs []error
	for _, pod := range current.pods {
		logger.Info("Pod", "pod", klog.KObj(&pod), "node", pod.Spec.NodeName)
		if !isStale(&pod, desired.configChanged, time.Now()) {
			continue
		}
		logger.Info("Pod is older than its config, deleting it", "pod", klog.KObj(&pod))
		// The UID makes sure that we delete the Pod we saw, not a new one of the same name.
		err := c.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name,
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete Pod %s/%s: %w", pod.Namespace, pod.Name, err))
		}
	}
	return errors.Join(errs...)
}

// lastChange returns when the config was written last. The API server keeps that time for each
// writer, beside the fields which that writer set.
func lastChange(config *corev1.ConfigMap) time.Time {
	last := config.CreationTimestamp.Time
	for _, writer := range config.ManagedFields {
		if writer.Time != nil && writer.Time.After(last) {
			last = writer.Time.Time
		}
	}
	return last
}

// isStale says whether a Pod has to be replaced because the config changed after it was created.
//
// Both times are the API server's and in whole seconds. A Pod of the same second as the change may be
// of either side, so it is replaced; to let the replacement be of a later second, we wait for that.
func isStale(pod *corev1.Pod, configChanged, now time.Time) bool {
	if pod.Labels["app"] != "frontend" || pod.DeletionTimestamp != nil || configChanged.IsZero() {
		return false
	}
	if age := now.Sub(configChanged); 0 <= age && age < time.Second {
		return false
	}
	return !pod.CreationTimestamp.After(configChanged)
}
