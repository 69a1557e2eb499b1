package secretsync

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An update replaces our own record in managedFields. The records of others stay: so does an apply under our name, which is
// not ours, because we never apply.
func TestManagedFieldsOfOthersStay(t *testing.T) {
	entry := func(manager string, operation metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	ours, source := testScope.FieldManager(), testSource("db")
	current := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
		entry("kubectl-edit", "Update", `{"f:data":{"f:theirs":{}}}`),
		entry(ours, "Update", `{"f:data":{"f:old":{}}}`),
		entry(ours, "Apply", `{"f:data":{"f:applied":{}}}`),
		entry("helm", "Apply", `{"f:data":{"f:helm":{}}}`),
	}}}
	var got []metav1.ManagedFieldsEntry
	for _, one := range testScope.desired(testKey, source, current).ManagedFields {
		got = append(got, entry(one.Manager, one.Operation, one.FieldsV1.GetRawString()))
	}
	require.Equal(t, []metav1.ManagedFieldsEntry{
		entry("kubectl-edit", "Update", `{"f:data":{"f:theirs":{}}}`),
		entry(ours, "Apply", `{"f:data":{"f:applied":{}}}`),
		entry("helm", "Apply", `{"f:data":{"f:helm":{}}}`),
		entry(ours, "Update", source.fields),
	}, got)
	require.Len(t, current.ManagedFields, 4, "the cached object is unchanged")
}
