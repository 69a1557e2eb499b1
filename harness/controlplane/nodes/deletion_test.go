package nodes

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
