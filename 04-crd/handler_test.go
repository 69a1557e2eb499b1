package crd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	samplecrdv1 "example.com/controllers/crd/apis/samplecrd/v1"
)

func TestNeedsReconcile(t *testing.T) {
	tests := map[string]struct {
		change func(*samplecrdv1.Network)
		want   bool
	}{
		"nothing":              {func(*samplecrdv1.Network) {}, false},
		"the status":           {func(n *samplecrdv1.Network) { n.Status.NetworkID = "1" }, false},
		"labels":               {func(n *samplecrdv1.Network) { n.Labels = map[string]string{"touched": "yes"} }, false},
		"the spec":             {func(n *samplecrdv1.Network) { n.Generation++ }, true},
		"the deletion":         {func(n *samplecrdv1.Network) { n.DeletionTimestamp = new(metav1.NewTime(time.Unix(1, 0))) }, true},
		"a finalizer is added": {func(n *samplecrdv1.Network) { n.Finalizers = append(n.Finalizers, "example.com/others") }, true},
		"ours is removed":      {func(n *samplecrdv1.Network) { n.Finalizers = nil }, true},
		"it was recreated":     {func(n *samplecrdv1.Network) { n.UID = "another" }, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			old := &samplecrdv1.Network{ObjectMeta: metav1.ObjectMeta{UID: "one", Generation: 1, Finalizers: []string{Finalizer}}}
			changed := old.DeepCopy()
			test.change(changed)
			require.Equal(t, test.want, needsReconcile(old, changed))
		})
	}
}
