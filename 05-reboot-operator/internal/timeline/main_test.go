package main

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"example.com/controllers/reboot/protocol"
)

func node(name string, ready corev1.ConditionStatus, annotations ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	for _, a := range annotations {
		n.Annotations[a] = "x"
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	return n
}

func TestRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(node("a", corev1.ConditionTrue), node("b", corev1.ConditionTrue))
		recorded := make(chan timeline, 1)
		go func() {
			got, err := record(context.Background(), client)
			if err != nil {
				t.Error(err)
			}
			recorded <- got
		}()
		for _, n := range []*corev1.Node{
			node("a", corev1.ConditionTrue, protocol.NeededAnnotation),
			node("b", corev1.ConditionTrue, protocol.NeededAnnotation),
			node("a", corev1.ConditionTrue, protocol.NeededAnnotation, protocol.AdmittedAnnotation),
			node("a", corev1.ConditionUnknown, protocol.InProgressAnnotation, protocol.AdmittedAnnotation),
			node("b", corev1.ConditionTrue),
			node("a", corev1.ConditionTrue),
		} {
			synctest.Wait()
			time.Sleep(time.Second)
			_, err := client.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
			require.NoError(t, err)
		}
		got := <-recorded
		require.Equal(t, timeline{
			"a": {
				{0, state{protocol.Needed, true}}, {0, state{protocol.Draining, true}},
				{time.Second, state{protocol.InProgress, false}}, {3 * time.Second, state{protocol.Idle, true}},
			},
			"b": {{0, state{protocol.Needed, true}}, {2 * time.Second, state{protocol.Idle, true}}},
		}, got)
		require.Equal(t, 1, got.most())
		require.Equal(t, 3*time.Second, got.end())
		for decoder := xml.NewDecoder(strings.NewReader(string(got.draw()))); ; {
			_, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
		}
	})
}

func TestMost(t *testing.T) {
	idle, draining := state{protocol.Idle, true}, state{protocol.Draining, true}
	require.Equal(t, 2, timeline{
		"a": {{0, idle}, {1, draining}, {5, idle}},
		"b": {{0, idle}, {2, draining}, {3, idle}},
		"c": {{0, idle}, {3, draining}, {9, idle}},
	}.most(), "b ends when c begins, and counts only once")
}
