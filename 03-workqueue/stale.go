package workqueue

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// lastChange returns when the config was last written. The API server records a time for each field manager
// in managedFields; the latest of them counts.
func lastChange(config *corev1.ConfigMap) time.Time {
	last := config.CreationTimestamp.Time
	for _, manager := range config.ManagedFields {
		if manager.Time != nil && manager.Time.After(last) {
			last = manager.Time.Time
		}
	}
	return last
}

// isStale reports whether a Pod of the frontend must be replaced because the config changed after the Pod was
// created. The API server writes both times in whole seconds. A Pod created in the second of the change may have
// read either config, so it counts as stale.
func isStale(pod *corev1.Pod, configChanged time.Time) bool {
	return pod.Labels["app"] == "frontend" && pod.DeletionTimestamp == nil &&
		!pod.CreationTimestamp.After(configChanged)
}

// untilNextSecond returns how long it is until the second of the change is over. A replacement created before
// then would be stale as well.
func untilNextSecond(changed, now time.Time) time.Duration {
	if age := now.Sub(changed); 0 <= age && age < time.Second {
		return time.Second - age
	}
	return 0
}
