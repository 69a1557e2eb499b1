package nodes

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/utils/lifecycle"

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
		"Pod":  {"pod-report", "pod-delete"},
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

// KWOK would choose one of several Stages at random.
func TestOneStagePerPod(t *testing.T) {
	all, err := stages()
	require.NoError(t, err)
	lc, err := lifecycle.NewLifecycle(all[internalversion.StageResourceRef{APIGroup: "v1", Kind: "Pod"}])
	require.NoError(t, err)
	phase := func(phase corev1.PodPhase) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Status.Phase = phase }
	}
	running, failed := phase(corev1.PodRunning), phase(corev1.PodFailed)
	atOnce := func(pod *corev1.Pod) { pod.DeletionGracePeriodSeconds = new(int64(0)) }
	for name, test := range map[string]struct {
		changes []func(*corev1.Pod)
		want    string
	}{
		"bound":                                  {nil, "pod-report"},
		"running":                                {[]func(*corev1.Pod){running}, "pod-report"},
		"failed":                                 {[]func(*corev1.Pod){failed}, "pod-report"},
		"with a finalizer":                       {[]func(*corev1.Pod){running, finalizer}, "pod-report"},
		"deleted":                                {[]func(*corev1.Pod){running, deleted}, "pod-delete"},
		"deleted before it has run":              {[]func(*corev1.Pod){deleted}, "pod-delete"},
		"deleted, with a finalizer":              {[]func(*corev1.Pod){running, deleted, finalizer}, "pod-report"},
		"deleted, with a finalizer, and stopped": {[]func(*corev1.Pod){failed, deleted, finalizer}, "pod-delete"},
		"deleted at once":                        {[]func(*corev1.Pod){running, deleted, atOnce}, "pod-delete"},
		"deleted at once, with a finalizer":      {[]func(*corev1.Pod){running, deleted, atOnce, finalizer}, "pod-report"},
		"deleted by the kubelet, with a finalizer":     {[]func(*corev1.Pod){failed, deleted, atOnce, finalizer}, ""},
		"deleted, and takes its time":                  {[]func(*corev1.Pod){running, deleted, hold}, "pod-report"},
		"deleted, and has taken its time":              {[]func(*corev1.Pod){failed, deleted, hold}, "pod-delete"},
		"deleted, takes its time, and has a finalizer": {[]func(*corev1.Pod){running, deleted, hold, finalizer}, "pod-report"},
	} {
		pod := newPod(test.changes...)
		possible, err := lc.ListAllPossible(t.Context(), &lifecycle.Event{Labels: pod.Labels, Annotations: pod.Annotations, Data: pod})
		require.NoError(t, err)
		var names []string
		for _, stage := range possible {
			names = append(names, stage.Name())
		}
		require.Equal(t, test.want, strings.Join(names, " and "), name)
	}
}
