//go:build exercise

package forbidden

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/exercise/live"
)

func TestExercise(t *testing.T) {
	live.Run(t, live.Scene{Name: "the config changes", Play: func(w *live.World) {
		w.Install(live.Path("01-naive-loop/manifests"))
		w.Kubectl("apply", "-f", live.Path("01-naive-loop/frontend.yaml"))
		w.Kubectl("rollout", "status", "deployment/frontend")
		w.Start("naive-loop", func(ctx context.Context, config *rest.Config) error {
			return (&Controller{Client: kubernetes.NewForConfigOrDie(config), Namespace: w.Namespace, Interval: 200 * time.Millisecond}).Run(ctx)
		})
		old := pods(w)
		patch := []byte(`{"data":{"greeting":"good morning"}}`)
		if _, err := w.User.CoreV1().ConfigMaps(w.Namespace).Patch(w.T.Context(), ConfigName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			w.T.Fatal(err)
		}
		w.Await(10*time.Second, func() bool {
			now := pods(w)
			for uid := range old {
				if now[uid] {
					return false
				}
			}
			return true
		}, "ConfigMap frontend-config was changed. Ten seconds later, Pods of the frontend still run with the old config.")
	}})
}

// pods returns the UIDs of the Pods that are not being deleted.
func pods(w *live.World) map[types.UID]bool {
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
