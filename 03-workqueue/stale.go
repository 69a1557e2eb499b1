package workqueue

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// lastChange returns when the config was written last. The API server keeps that time for each
// writer, beside the fields which that writer set.
func lastChange(config *corev1.ConfigMap) time.Time {
	last := config.CreationTimestamp.Time
	for _, writer := range config.ManagedFields {
		if writer.Time != nil && writer.Time.After(last) {
			last = writer.Time.Time
		}
	}
	return last
}

// isStale says whether a Pod has to be replaced because the config changed after it was created. Both
// times are the API server's and in whole seconds; a Pod of the same second may be of either side.
func isStale(pod *corev1.Pod, configChanged time.Time) bool {
	return pod.Labels["app"] == "frontend" && pod.DeletionTimestamp == nil &&
		!pod.CreationTimestamp.After(configChanged)
}

// secondOver returns how long it is until the second of a change is over. A replacement that is made
// before then would be as stale as what it replaces.
func secondOver(change, now time.Time) time.Duration {
	if age := now.Sub(change); 0 <= age && age < time.Second {
		return time.Second - age
	}
	return 0
}
