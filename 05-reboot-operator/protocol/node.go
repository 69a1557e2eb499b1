package protocol

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Strip removes what is not read from a Node before it is cached: mostly the list of images. Of the conditions and annotations,
// the few that are left make it cheap to look at all Nodes.
func Strip(object any) (any, error) {
	if node, ok := object.(*corev1.Node); ok {
		node.ManagedFields = nil
		maps.DeleteFunc(node.Annotations, func(name, _ string) bool { return !strings.HasPrefix(name, Prefix) })
		ready := slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type != corev1.NodeReady })
		node.Status = corev1.NodeStatus{Conditions: slices.Clone(ready), NodeInfo: node.Status.NodeInfo} // without the room of the others
	}
	return object, nil
}

// Concerns reports whether an update changes what the controller reads. Most updates do not: they are heartbeats of the
// kubelet.
func Concerns(old, node *corev1.Node) bool {
	return IsReady(old) != IsReady(node) || old.Spec.Unschedulable != node.Spec.Unschedulable || old.UID != node.UID ||
		!maps.Equal(old.Annotations, node.Annotations) || !maps.Equal(old.Labels, node.Labels)
}

// Differ reports whether two versions of a Node may differ in their status. Most do not: they are heartbeats of the kubelet.
func Differ(old, node *corev1.Node) bool {
	return Concerns(old, node) || old.Status.NodeInfo.BootID != node.Status.NodeInfo.BootID ||
		(old.DeletionTimestamp == nil) != (node.DeletionTimestamp == nil)
}

// FormatTime returns a time as it is written into annotations: RFC 3339, in UTC.
func FormatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// TimeOf returns the time in an annotation; the zero time if it is missing or not a time.
func TimeOf(node *corev1.Node, annotation string) time.Time {
	t, err := time.Parse(time.RFC3339, node.Annotations[annotation])
	if err != nil {
		return time.Time{}
	}
	return t
}

// IsReady reports whether a Node is Ready. It is not while its condition is Unknown, because its kubelet has stopped
// reporting, nor before its kubelet has reported for the first time, when it has no such condition.
func IsReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// SinceThen returns how long it is since the time in an annotation. Somebody else's clock may be ahead.
func SinceThen(node *corev1.Node, annotation string) time.Duration {
	return max(0, time.Since(TimeOf(node, annotation)))
}

// Failures returns the number of attempts in a row that ended without a reboot.
func Failures(node *corev1.Node) int {
	n, err := strconv.Atoi(node.Annotations[FailuresAnnotation])
	if err != nil {
		return 0
	}
	return max(n, 0)
}
