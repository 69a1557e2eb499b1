package draft

import (
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"example.com/controllers/harness/torture"
)

// The namespace of the run that was watched is written as {namespace}, which is quoted where YAML would take it for a map. What is written is
// read as the same.
func TestTextOfSteps(t *testing.T) {
	const home = "torture-2"
	steps := []torture.Step{{Name: "it's: " + home, Do: []torture.Action{
		{Apply: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "annotations": map[string]any{"from": home + "/src"}}, "data": map[string]any{"n": "1", "list": []any{home, true, int64(3)}}}},
		{Patch: &torture.Patch{Reference: torture.Reference{Resource: "pods", Name: "a"}, Merge: map[string]any{"spec": map[string]any{home: nil}}}, Subresource: "status"},
		{Delete: &torture.Reference{Resource: "pods", Namespace: "other", Name: home + "-a"}},
		{Controller: "stop"},
	}}}
	o := outline{namespace: home, resources: []string{"pods"}, steps: steps, converged: []condition{{rule: `size(pods) == 1 && "` + home + `" != "a: b # c"`, message: `"` + home + `"`}}}
	read := func(o outline) (s torture.Scenario) {
		text := ""
		for _, part := range o.sections(func(path string) string { return path }) {
			text += part.text
		}
		require.NoError(t, yaml.UnmarshalStrict([]byte(text), &s), "%s", text)
		return s
	}
	s := read(o)
	require.Len(t, s.Steps, 1)
	require.Equal(t, "it's: {namespace}", s.Steps[0].Name)
	do := s.Steps[0].Do
	require.Equal(t, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "annotations": map[string]any{"from": "{namespace}/src"}}, "data": map[string]any{"n": "1", "list": []any{"{namespace}", true, float64(3)}}}, do[0].Apply)
	require.Equal(t, map[string]any{"spec": map[string]any{"{namespace}": nil}}, do[1].Patch.Merge)
	require.Equal(t, "status", do[1].Subresource)
	require.Equal(t, &torture.Reference{Resource: "pods", Namespace: "other", Name: "{namespace}-a"}, do[2].Delete)
	require.Equal(t, "stop", do[3].Controller)
	require.Equal(t, `size(pods) == 1 && "{namespace}" != "a: b # c"`, s.Converged[0].Rule)
	require.Equal(t, `"{namespace}"`, s.Converged[0].Message)

	o.scope = "cluster" // its namespace is the same in each run
	require.Equal(t, "it's: torture-2", read(o).Steps[0].Name)
}
