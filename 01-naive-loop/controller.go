// Package naiveloop is a controller in its simplest form, a polling loop: get the desired state, get the
// current state, make changes, and start over.
//
// The controller logs which Node each Pod runs on. When the ConfigMap "frontend-config" changes, it deletes
// the Pods labelled app=frontend, and their Deployment replaces them.
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

// ConfigName is the name of the ConfigMap that the Pods of the frontend read when they start.
const ConfigName = "frontend-config"

// Controller replaces stale Pods in one namespace. It keeps no state from one iteration of its loop to the
// next: each iteration gets everything from the API server.
type Controller struct {
	Client    kubernetes.Interface
	Namespace string        // the only namespace whose Pods it deletes
	NodeName  string        // the Node that the controller itself runs on; "" if unknown
	Interval  time.Duration // the pause from the end of one iteration to the start of the next
}

// Run reconciles until ctx is cancelled. An error is only logged, because the next iteration starts from
// scratch anyway.
func (c *Controller) Run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	for ctx.Err() == nil {
		if err := c.reconcile(ctx); err != nil && ctx.Err() == nil {
			logger.Error(err, "Reconcile failed, will retry in the next iteration")
		}
		select {
		case <-time.After(c.Interval):
		case <-ctx.Done():
		}
	}
	logger.Info("Stopped")
}

// reconcile is one iteration of the loop.
func (c *Controller) reconcile(ctx context.Context) error {
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

// desired is the desired state: every Pod of the frontend is newer than the last change of its config.
type desired struct {
	configChanged time.Time // in whole seconds; zero if there is no config
}

// current is the current state of the cluster.
type current struct {
	self  *corev1.Node // the Node that the controller runs on; nil if unknown
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
	var state current
	if c.NodeName != "" {
		self, err := c.Client.CoreV1().Nodes().Get(ctx, c.NodeName, metav1.GetOptions{})
		if err != nil {
			return current{}, fmt.Errorf("get own Node %s: %w", c.NodeName, err)
		}
		state.self = self
	}
	nodes, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return current{}, fmt.Errorf("list Nodes: %w", err)
	}
	pods, err := c.Client.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return current{}, fmt.Errorf("list Pods in namespace %s: %w", c.Namespace, err)
	}
	state.nodes, state.pods = nodes.Items, pods.Items
	return state, nil
}

func (c *Controller) makeChanges(ctx context.Context, desired desired, current current) error {
	logger := klog.FromContext(ctx)
	if current.self != nil {
		logger.Info("Own Node", "node", current.self.Name, "labels", current.self.Labels)
	}
	logger.Info("Current state", "nodes", len(current.nodes), "pods", len(current.pods))
	var errs []error
	for _, pod := range current.pods {
		logger.Info("Pod", "pod", klog.KObj(&pod), "node", pod.Spec.NodeName)
		if !isStale(&pod, desired.configChanged, time.Now()) {
			continue
		}
		logger.Info("Pod is older than its config, deleting it", "pod", klog.KObj(&pod))
		// Without the precondition, this could delete a new Pod of the same name.
		err := c.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name,
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete Pod %s/%s: %w", pod.Namespace, pod.Name, err))
		}
	}
	return errors.Join(errs...)
}

// lastChange returns the time of the last write to the config. The API server records in managedFields when
// each field manager last wrote.
func lastChange(config *corev1.ConfigMap) time.Time {
	last := config.CreationTimestamp.Time
	for _, manager := range config.ManagedFields {
		if manager.Time != nil && manager.Time.After(last) {
			last = manager.Time.Time
		}
	}
	return last
}

// isStale reports whether a Pod must be replaced because it may have read an older config.
//
// Both timestamps are set by the API server, in whole seconds. A Pod created in the same second as the change
// may have read either config, so it counts as stale. No Pod counts as stale until that second is over:
// otherwise its replacement could be created in the same second, and be replaced again.
func isStale(pod *corev1.Pod, configChanged, now time.Time) bool {
	if pod.Labels["app"] != "frontend" || pod.DeletionTimestamp != nil || configChanged.IsZero() {
		return false
	}
	if age := now.Sub(configChanged); 0 <= age && age < time.Second {
		return false
	}
	return !pod.CreationTimestamp.After(configChanged)
}
