package nodes

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// kubeletClient is a client that deletes Pods as a kubelet does: only the one that is to be deleted. KWOK deletes by name alone, and by the
// time that it does, a StatefulSet may have put another Pod in the place of the one that KWOK has seen.
type kubeletClient struct{ kubernetes.Interface }

func (c kubeletClient) CoreV1() corev1client.CoreV1Interface {
	return kubeletCoreV1{c.Interface.CoreV1()}
}

type kubeletCoreV1 struct{ corev1client.CoreV1Interface }

func (c kubeletCoreV1) Pods(namespace string) corev1client.PodInterface {
	return kubeletPods{c.CoreV1Interface.Pods(namespace)}
}

type kubeletPods struct{ corev1client.PodInterface }

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
