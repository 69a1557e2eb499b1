package torture

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// What the API server warns of fills no screen: each warning comes once, however many objects get it.
func TestWarningsComeOnce(t *testing.T) {
	var progress bytes.Buffer
	lab, err := Open(t.Context(), 0, &progress)
	require.NoError(t, err)
	defer func() { require.NoError(t, lab.Close()) }()
	for _, name := range []string{"a", "b", "c"} {
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Endpoints", "metadata": map[string]any{"name": name}}}
		_, err := lab.shared.clients.applyOne(t.Context(), object, "default")
		require.NoError(t, err)
	}
	require.Equal(t, 1, strings.Count(progress.String(), "v1 Endpoints is deprecated"), "%s", progress.String())
}
