package workqueue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// noon is an arbitrary time in whole seconds, which is the resolution of timestamps in the API.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestLastChange(t *testing.T) {
	written := func(offsets ...time.Duration) (writers []metav1.ManagedFieldsEntry) {
		for _, offset := range offsets {
			writers = append(writers, metav1.ManagedFieldsEntry{Time: new(metav1.NewTime(noon.Add(offset)))})
		}
		return writers
	}
	tests := map[string]struct {
		writers []metav1.ManagedFieldsEntry
		want    time.Time
	}{
		"no field manager":                    {nil, noon},
		"a manager without a time":            {[]metav1.ManagedFieldsEntry{{}}, noon},
		"one manager":                         {written(time.Minute), noon.Add(time.Minute)},
		"the latest of several, in any order": {written(time.Minute, time.Hour, time.Second), noon.Add(time.Hour)},
		"a time before the creation":          {written(-time.Hour), noon},
		"a manager that updates": {[]metav1.ManagedFieldsEntry{
			{Manager: "kubectl-edit", Operation: metav1.ManagedFieldsOperationUpdate, Time: new(metav1.NewTime(noon.Add(time.Hour)))},
		}, noon.Add(time.Hour)},
		"a manager that applies": {[]metav1.ManagedFieldsEntry{
			{Manager: "argocd-controller", Operation: metav1.ManagedFieldsOperationApply, Time: new(metav1.NewTime(noon.Add(time.Hour)))},
		}, noon.Add(time.Hour)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				CreationTimestamp: metav1.NewTime(noon), ManagedFields: test.writers,
			}}
			require.Equal(t, test.want, lastChange(config))
		})
	}
}

func TestIsStale(t *testing.T) {
	tests := map[string]struct {
		created time.Duration // after the change
		app     string
		deleted bool
		want    bool
	}{
		"created before the change":           {created: -time.Second, app: "frontend", want: true},
		"created long before the change":      {created: -24 * time.Hour, app: "frontend", want: true},
		"created in the second of the change": {created: 0, app: "frontend", want: true},
		"created after the change":            {created: time.Second, app: "frontend", want: false},
		"already being deleted":               {created: -time.Second, app: "frontend", deleted: true, want: false},
		"not of the frontend":                 {created: -time.Second, app: "backend", want: false},
		"without labels":                      {created: -time.Second, want: false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(noon.Add(test.created))}}
			if test.app != "" {
				pod.Labels = map[string]string{"app": test.app}
			}
			if test.deleted {
				pod.DeletionTimestamp = new(metav1.NewTime(noon))
			}
			require.Equal(t, test.want, isStale(pod, noon))
		})
	}
}

// Neither who made a Pod or holds it back, nor how far it has got, matters.
func TestIsStaleWhateverElseThePodHas(t *testing.T) {
	tests := map[string]func(*corev1.Pod){
		"a finalizer": func(pod *corev1.Pod) { pod.Finalizers = []string{"example.com/others"} },
		"an owner": func(pod *corev1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Controller: new(true)}}
		},
		"more labels":         func(pod *corev1.Pod) { pod.Labels["touched"] = "yes" },
		"a node":              func(pod *corev1.Pod) { pod.Spec.NodeName = "node-0" },
		"the phase Pending":   func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodPending },
		"the phase Running":   func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodRunning },
		"the phase Succeeded": func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded },
		"the phase Failed":    func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				CreationTimestamp: metav1.NewTime(noon), Labels: map[string]string{"app": "frontend"},
			}}
			change(pod)
			require.True(t, isStale(pod, noon))
		})
	}
}

func TestUntilNextSecond(t *testing.T) {
	tests := map[string]struct{ age, want time.Duration }{
		"the second begins":                    {0, time.Second},
		"the second is half over":              {500 * time.Millisecond, 500 * time.Millisecond},
		"the second ends":                      {time.Second - 1, 1},
		"the second is over":                   {time.Second, 0},
		"the change is old":                    {time.Hour, 0},
		"our clock is behind the API server's": {-time.Millisecond, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, untilNextSecond(noon, noon.Add(test.age)))
		})
	}
}
