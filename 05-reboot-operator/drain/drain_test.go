package drain

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"example.com/controllers/reboot/internal/nodetest"
)

// newTestDrainer returns a drainer for a cluster with one Pod, shop/web, on Node n1. The API server answers its evictions
// with what answer returns at that time.
func newTestDrainer(answer *error) (d *Drainer, evictions *[]*policyv1.Eviction) {
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
	return New(client, Rules{DeleteUnmanagedPods: true}), evictions
}

func TestAnswersToAnEviction(t *testing.T) {
	terminating := apierrors.NewForbidden(corev1.SchemeGroupVersion.WithResource("pods").GroupResource(), "web", nil)
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, c := range map[string]struct {
		answer  error
		waiting string
		again   time.Duration
		err     string
	}{
		"granted":                      {nil, "Pod shop/web is terminating", terminationPoll, ""},
		"refused":                      {apierrors.NewTooManyRequests("not now", 0), "Pod shop/web cannot be evicted: not now", evictionRetry, ""},
		"gone":                         {apierrors.NewNotFound(corev1.SchemeGroupVersion.WithResource("pods").GroupResource(), "web"), "", terminationPoll, ""},
		"replaced":                     {apierrors.NewConflict(corev1.SchemeGroupVersion.WithResource("pods").GroupResource(), "web", nil), "Pod shop/web has changed", terminationPoll, ""},
		"its namespace is terminating": {terminating, "Pod shop/web is in a namespace that is being deleted", terminationPoll, ""},
		"not permitted":                {apierrors.NewForbidden(corev1.SchemeGroupVersion.WithResource("pods").GroupResource(), "web", nil), "", 0, "evict Pod shop/web"},
		"two budgets": {apierrors.NewInternalError(errors.New("This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")),
			"Pod shop/web cannot be evicted: more than one PodDisruptionBudget selects it; change one of their selectors", evictionRetry, ""},
		"out of order": {apierrors.NewServiceUnavailable("down"), "", 0, "evict Pod shop/web"},
	} {
		t.Run(name, func(t *testing.T) {
			d, evictions := newTestDrainer(&c.answer)
			waiting, again, err := d.Step(t.Context(), "n1", false)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, c.waiting, Text(waiting))
			require.Equal(t, c.again, again)
			require.Len(t, *evictions, 1)
			options := (*evictions)[0].DeleteOptions
			require.Nil(t, options.GracePeriodSeconds, "a Pod has its own grace period")
			require.Equal(t, metav1.NewUIDPreconditions("1"), options.Preconditions)
		})
	}
}

// If one eviction fails, the others are still tried. What the drain waits for begins with the Pods that cannot be evicted.
func TestADrainOfSeveralPods(t *testing.T) {
	var failure error
	client := fake.NewClientset(nodetest.NewPod("a", "n1"), nodetest.NewPod("b", "n1"), nodetest.NewPod("c", "n1"))
	var evicted []string
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		pod := action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction).Name
		evicted = append(evicted, pod)
		switch pod {
		case "a":
			return true, nil, failure
		case "c":
			return true, nil, apierrors.NewTooManyRequests("not now", 0)
		}
		return true, nil, nil
	})
	waiting, _, err := New(client, Rules{DeleteUnmanagedPods: true}).Step(t.Context(), "n1", false)
	require.NoError(t, err)
	require.Equal(t, "Pod shop/c cannot be evicted: not now; Pod shop/a is terminating; Pod shop/b is terminating", Text(waiting))
	require.Equal(t, []string{"a", "b", "c"}, evicted)

	evicted, failure = nil, apierrors.NewInternalError(errors.New("etcd is down"))
	_, _, err = New(client, Rules{DeleteUnmanagedPods: true}).Step(t.Context(), "n1", false)
	require.ErrorContains(t, err, "evict Pod shop/a: ")
	require.Equal(t, []string{"a", "b", "c"}, evicted)
}

// What kubectl says about Pods that it does not evict names its own flags, and is translated. Here, the library says it.
func TestPodsThatAreNotEvicted(t *testing.T) {
	bare := nodetest.NewPod("bare", "n1")
	bare.OwnerReferences = nil
	orphan := nodetest.NewPod("orphan", "n1")
	orphan.OwnerReferences[0].Kind, orphan.OwnerReferences[0].Name = "DaemonSet", "agents"
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"no controller": {bare, "no controller owns Pods that would be evicted, so nobody would create them again: shop/bare; delete them, or run the controller with --delete-unmanaged-pods"},
		"no DaemonSet":  {orphan, "the DaemonSet \"agents\" does not exist, so nobody would create its Pods again: shop/orphan; delete them, or run the controller with --delete-unmanaged-pods"},
	} {
		t.Run(name, func(t *testing.T) {
			waits, _, err := New(fake.NewClientset(test.pod), Rules{}).Step(t.Context(), "n1", false)
			require.NoError(t, err)
			require.Equal(t, test.want, Text(waits))
		})
	}
	require.Equal(t, "something else; and more", Undrainable([]error{errors.New("something else"), errors.New("and more")}))
}

// An eviction that was refused is tried again after evictionRetry, and not before, however often step is called.
func TestEvictionRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := error(apierrors.NewTooManyRequests("not now", 0))
		d, evictions := newTestDrainer(&answer)
		step := func(wantWaiting string, wantEvictions int) {
			waiting, _, err := d.Step(t.Context(), "n1", false)
			require.NoError(t, err)
			require.Equal(t, wantWaiting, Text(waiting))
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

// answers is an API server that gives each request the same answer.
type answers struct {
	requests int
	status   int
	body     string
}

func (a *answers) RoundTrip(*http.Request) (*http.Response, error) {
	a.requests++
	header := http.Header{"Content-Type": {"application/json"}, "Retry-After": {"10"}}
	return &http.Response{StatusCode: a.status, Header: header, Body: io.NopCloser(strings.NewReader(a.body))}, nil
}

// While a PodDisruptionBudget's status lags behind, the API server tells the client to try an eviction again after a while.
// The client does not do that by itself: the worker would sleep meanwhile. Other requests it does repeat.
func TestARefusedEvictionReturnsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &answers{status: http.StatusTooManyRequests, body: `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 429, "reason": "TooManyRequests",
			"details": {"retryAfterSeconds": 10, "causes": [{"reason": "DisruptionBudget", "message": "The disruption budget web is still being processed by the server."}]}}`}
		config := &rest.Config{Transport: server, QPS: -1}
		config.Wrap(EvictOnce)
		client, err := kubernetes.NewForConfig(config)
		require.NoError(t, err)
		d := New(client, Rules{DeleteUnmanagedPods: true})
		reason, refused, err := d.evict(t.Context(), *nodetest.NewPod("web", "n1"), false)
		require.NoError(t, err)
		require.True(t, refused)
		require.Equal(t, "Pod shop/web cannot be evicted: The disruption budget web is still being processed by the server.", reason)
		require.Equal(t, 1, server.requests)

		_, err = client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
		require.True(t, apierrors.IsTooManyRequests(err), "%v", err)
		require.Equal(t, 1+11, server.requests)
	})
}
