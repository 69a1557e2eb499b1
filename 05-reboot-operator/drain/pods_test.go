package drain

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestBlockers(t *testing.T) {
	pod := func(name, node string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase},
		}
	}
	pods := []*corev1.Pod{
		pod("a", "m", corev1.PodSucceeded), pod("b", "m", corev1.PodFailed), pod("c", "", corev1.PodPending),
		pod("d", "n", corev1.PodRunning), pod("e", "n", corev1.PodPending), pod("f", "o", corev1.PodUnknown),
	}
	want := map[string]string{"n": "shop/d", "o": "shop/f"}
	require.Equal(t, want, Names(Blockers(pods)))
	slices.Reverse(pods)
	require.Equal(t, want, Names(Blockers(pods)), "the order of the Pods in a cache is random")
}
