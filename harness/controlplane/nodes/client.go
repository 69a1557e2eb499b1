package nodes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// kubeletClient is a client that deletes Pods as a kubelet does: only the one that is to be deleted. KWOK deletes by name alone, and by the
// time that it does, a StatefulSet may have put another Pod in the place of the one that KWOK has seen.
//
// Its lists and watches have no managed fields, which no kubelet needs. They would be half of what KWOK keeps of a Pod, and of what it
// converts for each step of it.
type kubeletClient struct{ kubernetes.Interface }

func (c kubeletClient) CoreV1() corev1client.CoreV1Interface {
	return kubeletCoreV1{c.Interface.CoreV1()}
}

type kubeletCoreV1 struct{ corev1client.CoreV1Interface }

func (c kubeletCoreV1) Pods(namespace string) corev1client.PodInterface {
	return kubeletPods{c.CoreV1Interface.Pods(namespace)}
}

func (c kubeletCoreV1) Nodes() corev1client.NodeInterface {
	return kubeletNodes{c.CoreV1Interface.Nodes()}
}

type kubeletNodes struct{ corev1client.NodeInterface }

func (n kubeletNodes) List(ctx context.Context, o metav1.ListOptions) (*corev1.NodeList, error) {
	list, err := n.NodeInterface.List(ctx, o)
	return list, unmanaged(list, err)
}

func (n kubeletNodes) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return watchUnmanaged(n.NodeInterface.Watch(ctx, o))
}

type kubeletPods struct{ corev1client.PodInterface }

func (p kubeletPods) List(ctx context.Context, o metav1.ListOptions) (*corev1.PodList, error) {
	list, err := p.PodInterface.List(ctx, o)
	return list, unmanaged(list, err)
}

func (p kubeletPods) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return watchUnmanaged(p.PodInterface.Watch(ctx, o))
}

// unmanaged removes the managed fields of all objects of a list, if there was no error.
func unmanaged(list runtime.Object, err error) error {
	if err != nil {
		return err
	}
	return meta.EachListItem(list, func(object runtime.Object) error {
		object.(metav1.Object).SetManagedFields(nil)
		return nil
	})
}

// watchUnmanaged removes the managed fields of all objects of a watch, if there was no error.
func watchUnmanaged(w watch.Interface, err error) (watch.Interface, error) {
	if err != nil {
		return nil, err
	}
	return watch.Filter(w, func(event watch.Event) (watch.Event, bool) {
		if object, ok := event.Object.(metav1.Object); ok { // an error is none
			object.SetManagedFields(nil)
		}
		return event, true
	}), nil
}

// Delete deletes a Pod whose deletion has been asked for. One that is gone, or is another, is left alone.
func (p kubeletPods) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	pod, err := p.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the Pod to be deleted: %w", err)
	}
	if pod.DeletionTimestamp == nil {
		return nil
	}
	o.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
	err = p.PodInterface.Delete(ctx, name, o)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
