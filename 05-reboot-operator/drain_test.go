package reboot

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// newTestDrainer returns a drainer for a cluster with one Pod, shop/web, on Node n1. The API server answers its evictions
// with what answer returns at that time.
func newTestDrainer(answer *error) (d *drainer, evictions *[]*policyv1.Eviction) {
	client := fake.NewClientset(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"}, Spec: corev1.PodSpec{NodeName: "n1"},
	})
	evictions = &[]*policyv1.Eviction{}
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		*evictions = append(*evictions, action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction))
		return true, nil, *answer
	})
	return newDrainer(client, true, ""), evictions
}

func TestAnswersToAnEviction(t *testing.T) {
	terminating := apierrors.NewForbidden(podResource.GroupResource(), "web", nil)
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, c := range map[string]struct {
		answer  error
		waiting string
		again   time.Duration
		err     string
	}{
		"granted":                      {nil, "Pod shop/web is terminating", terminationPoll, ""},
		"refused":                      {apierrors.NewTooManyRequests("not now", 0), "Pod shop/web cannot be evicted: not now", evictionRetry, ""},
		"gone":                         {apierrors.NewNotFound(podResource.GroupResource(), "web"), "", terminationPoll, ""},
		"its namespace is terminating": {terminating, "Pod shop/web is in a namespace that is being deleted", terminationPoll, ""},
		"not permitted":                {apierrors.NewForbidden(podResource.GroupResource(), "web", nil), "", 0, "evict Pod shop/web"},
		"out of order":                 {apierrors.NewServiceUnavailable("down"), "", 0, "evict Pod shop/web"},
	} {
		t.Run(name, func(t *testing.T) {
			d, evictions := newTestDrainer(&c.answer)
			waiting, again, err := d.step(t.Context(), "n1", false)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, c.waiting, waiting)
			require.Equal(t, c.again, again)
			require.Len(t, *evictions, 1)
			require.Nil(t, (*evictions)[0].DeleteOptions.GracePeriodSeconds, "a Pod has its own grace period")
		})
	}
}

// An eviction that was refused is tried again after evictionRetry, and not before, however often step is called.
func TestEvictionRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := error(apierrors.NewTooManyRequests("not now", 0))
		d, evictions := newTestDrainer(&answer)
		step := func(wantWaiting string, wantEvictions int) {
			waiting, _, err := d.step(t.Context(), "n1", false)
			require.NoError(t, err)
			require.Equal(t, wantWaiting, waiting)
			require.Len(t, *evictions, wantEvictions)
		}
		step("Pod shop/web cannot be evicted: not now", 1)
		answer = nil
		time.Sleep(evictionRetry - time.Millisecond)
		step("Pod shop/web cannot be evicted: not now", 1)
		time.Sleep(time.Millisecond)
		step("Pod shop/web is terminating", 2)
	})
}
