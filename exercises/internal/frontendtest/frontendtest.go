// Package frontendtest is what the checks do with the frontend of lessons 1 to 3: three Pods that read ConfigMap frontend-config
// when they start.
package frontendtest

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/controllers/harness/exercise/live"
)

// ConfigName is the name of the ConfigMap.
const ConfigName = "frontend-config"

// Install installs the manifests of a lesson, a directory, and a frontend, a file, and waits until its Pods run. Both paths are
// from [live.Path], called in the grader itself: the proof of the exercises finds there what a grader reads.
func Install(w *live.World, manifests, frontend string) {
	w.T.Helper()
	w.Install(manifests)
	w.Kubectl("apply", "-f", frontend)
	w.Kubectl("rollout", "status", "deployment/frontend")
}

// Pods returns the UIDs of the Pods that are not being deleted.
func Pods(w *live.World) map[types.UID]bool {
	w.T.Helper()
	list, err := w.Client.CoreV1().Pods(w.Namespace).List(w.T.Context(), metav1.ListOptions{LabelSelector: "app=frontend"})
	if err != nil {
		w.T.Fatal(err)
	}
	uids := map[types.UID]bool{}
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			uids[pod.UID] = true
		}
	}
	return uids
}

// Change has the user change the config.
func Change(w *live.World) {
	w.T.Helper()
	patch := []byte(`{"data":{"greeting":"good morning"}}`)
	if _, err := w.User.CoreV1().ConfigMaps(w.Namespace).Patch(w.T.Context(), ConfigName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

// AreReplaced returns a condition for Await: none of these Pods is left.
func AreReplaced(w *live.World, old map[types.UID]bool) func() bool {
	return func() bool {
		now := Pods(w)
		for uid := range old {
			if now[uid] {
				return false
			}
		}
		return true
	}
}

// Rest waits until the controller has sent and received nothing for a while.
func Rest(w *live.World) {
	w.T.Helper()
	count, same := -1, 0
	w.Await(30*time.Second, func() bool {
		h := w.History()
		if now := len(h.Requests) + len(h.Events); now != count {
			count, same = now, 0
		}
		same++
		return same > 30
	}, "Thirty seconds after its start, the controller has not come to rest.")
}
