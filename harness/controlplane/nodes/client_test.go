package nodes

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// A kubelet deletes the Pod that it has run, and not the one that has its name now.
func TestDeletesOnlyThePodThatIsToBeDeleted(t *testing.T) {
	now := metav1.Now()
	pods := corev1.Resource("pods")
	for name, c := range map[string]struct {
		pod     *corev1.Pod
		answer  error // to the deletion
		deletes bool
		want    string
	}{
		"it is to be deleted":         {pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}}, deletes: true},
		"its successor":               {pod: &corev1.Pod{}},
		"it is gone":                  {},
		"it goes meanwhile":           {pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}}, answer: apierrors.NewNotFound(pods, "web-0"), deletes: true},
		"its successor comes":         {pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}}, answer: apierrors.NewConflict(pods, "web-0", errors.New("the UID is another")), deletes: true},
		"the API server has a hiccup": {pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}}, answer: errors.New("try again"), deletes: true, want: "try again"},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			if c.pod != nil {
				c.pod.Name, c.pod.Namespace, c.pod.UID, c.pod.Finalizers = "web-0", "shop", "a", []string{"example.com/kept"}
				require.NoError(t, client.Tracker().Add(c.pod))
			}
			var deletions []clienttesting.DeleteAction
			client.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				deletions = append(deletions, action.(clienttesting.DeleteAction))
				return true, nil, c.answer
			})
			err := kubeletClient{client}.CoreV1().Pods("shop").Delete(t.Context(), "web-0", metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, c.want)
			}
			if !c.deletes {
				require.Empty(t, deletions)
				return
			}
			require.Len(t, deletions, 1)
			o := deletions[0].GetDeleteOptions()
			require.Equal(t, "a", string(*o.Preconditions.UID))
			require.Zero(t, *o.GracePeriodSeconds)
		})
	}
}

// What KWOK lists and watches has no managed fields; anything else of an object is as it was.
func TestListsAndWatchesWithoutManagedFields(t *testing.T) {
	of := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Labels: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}}
	}
	want := metav1.ObjectMeta{Name: "x", Labels: map[string]string{"a": "b"}}
	fakeClient := fake.NewClientset()
	fakeClient.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &corev1.PodList{Items: []corev1.Pod{{ObjectMeta: of("x")}}}, nil
	})
	fakeClient.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &corev1.NodeList{Items: []corev1.Node{{ObjectMeta: of("x")}}}, nil
	})
	core := kubeletClient{fakeClient}.CoreV1()
	pods, err := core.Pods("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Equal(t, want, pods.Items[0].ObjectMeta)
	nodes, err := core.Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Equal(t, want, nodes.Items[0].ObjectMeta)

	for _, open := range []func(context.Context, metav1.ListOptions) (watch.Interface, error){core.Pods("").Watch, core.Nodes().Watch} {
		watched := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 2})
		fakeClient.PrependWatchReactor("*", clienttesting.DefaultWatchReactor(watched, nil))
		w, err := open(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		gone := &metav1.Status{Reason: metav1.StatusReasonExpired}
		watched.Modify(&corev1.Pod{ObjectMeta: of("x")})
		watched.Error(gone)
		event := <-w.ResultChan()
		require.Equal(t, watch.Modified, event.Type)
		require.Equal(t, want, event.Object.(*corev1.Pod).ObjectMeta)
		require.Equal(t, watch.Event{Type: watch.Error, Object: gone}, <-w.ResultChan())
		w.Stop()
	}
}

func TestListsThatFail(t *testing.T) {
	fakeClient := fake.NewClientset()
	refused := errors.New("refused")
	fakeClient.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refused })
	fakeClient.PrependWatchReactor("*", clienttesting.DefaultWatchReactor(nil, refused))
	core := kubeletClient{fakeClient}.CoreV1()
	_, err := core.Pods("").List(t.Context(), metav1.ListOptions{})
	require.ErrorIs(t, err, refused)
	_, err = core.Nodes().List(t.Context(), metav1.ListOptions{})
	require.ErrorIs(t, err, refused)
	_, err = core.Pods("").Watch(t.Context(), metav1.ListOptions{})
	require.ErrorIs(t, err, refused)
	_, err = core.Nodes().Watch(t.Context(), metav1.ListOptions{})
	require.ErrorIs(t, err, refused)
}
