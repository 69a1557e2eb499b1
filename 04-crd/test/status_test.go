package test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	samplecrdv1ac "example.com/controllers/crd/generated/applyconfiguration/samplecrd/v1"
)

// What the API server does with a write that is about a deleted Network, when there is a new one of that name. The model in the
// lesson's unit tests does the same.
func TestWritesThatComeLate(t *testing.T) {
	skipWithRealNeutron(t)
	env, client := newClient(t)
	first := network("10.0.0.0/24", "10.0.0.1")
	first.Name = "front"
	old, err := client.Create(t.Context(), first, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, client.Delete(t.Context(), "front", metav1.DeleteOptions{}))
	again := network("10.0.0.0/24", "10.0.0.1")
	again.Name = "front"
	now, err := client.Create(t.Context(), again, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NotEqual(t, old.UID, now.UID)

	status := func(id string) *samplecrdv1ac.NetworkApplyConfiguration {
		return samplecrdv1ac.Network("front", env.Namespace).WithStatus(samplecrdv1ac.NetworkStatus().WithNetworkID(id))
	}
	force := metav1.ApplyOptions{FieldManager: "test", Force: true}
	applied, err := client.ApplyStatus(t.Context(), status("foreign").WithUID(old.UID), force)
	require.NoError(t, err, "the UID in a status is ignored")
	require.Equal(t, "foreign", applied.Status.NetworkID)
	_, err = client.ApplyStatus(t.Context(), status("foreign, too").WithResourceVersion(old.ResourceVersion), force)
	require.True(t, apierrors.IsConflict(err), "%v", err)
	_, err = client.Patch(t.Context(), "front", types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"networkID":"patched"}}`, old.UID), metav1.PatchOptions{}, "status")
	require.NoError(t, err, "in a patch, too")

	_, err = client.Patch(t.Context(), "front", types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"uid":%q,"finalizers":["example.com/x"]}}`, old.UID), metav1.PatchOptions{})
	require.True(t, apierrors.IsInvalid(err), "a patch outside of the status: %v", err)
	changed := now.DeepCopy()
	changed.UID, changed.ResourceVersion = old.UID, ""
	_, err = client.Update(t.Context(), changed, metav1.UpdateOptions{})
	require.True(t, apierrors.IsConflict(err), "an update: %v", err)
}
