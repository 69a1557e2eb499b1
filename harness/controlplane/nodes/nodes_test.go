package nodes

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"

	"example.com/controllers/harness/machine"
)

func TestStagesCoverNodesAndPods(t *testing.T) {
	all, err := stages()
	require.NoError(t, err)
	names := map[string][]string{}
	for ref, stages := range all {
		for _, stage := range stages {
			names[ref.Kind] = append(names[ref.Kind], stage.Name)
		}
	}
	require.Equal(t, map[string][]string{
		"Node": {"node-ready", "node-not-ready"},
		"Pod":  {"pod-ready", "pod-ready-again", "pod-complete", "pod-delete"},
	}, names)
}

// The Stages are YAML, so the compiler does not notice when an annotation is renamed.
func TestNodeStagesSelectByAnnotations(t *testing.T) {
	all, err := stages()
	require.NoError(t, err)
	for _, stage := range all[internalversion.StageResourceRef{APIGroup: "v1", Kind: "Node"}] {
		var keys []string
		for _, expression := range stage.Spec.Selector.MatchExpressions {
			keys = append(keys, expression.JQ.Key)
		}
		for _, annotation := range []string{machine.ReadyAnnotation, machine.RebootingAnnotation} {
			require.Contains(t, strings.Join(keys, "\n"), `.metadata.annotations["`+annotation+`"]`, stage.Name)
		}
	}
}
