//go:build exercise

package forbidden

import (
	"context"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/controllers/exercises/internal/frontendtest"
	"example.com/controllers/harness/exercise/live"
)

func TestExercise(t *testing.T) {
	live.Run(t, live.Scene{Name: "the config changes", Play: func(w *live.World) {
		frontendtest.Install(w, live.Path("01-naive-loop/manifests"), live.Path("01-naive-loop/frontend.yaml"))
		w.Start("naive-loop", func(ctx context.Context, config *rest.Config) error {
			return (&Controller{Client: kubernetes.NewForConfigOrDie(config), Namespace: w.Namespace, Interval: 200 * time.Millisecond}).Run(ctx)
		})
		old := frontendtest.Pods(w)
		frontendtest.Change(w)
		w.Await(10*time.Second, frontendtest.AreReplaced(w, old), "ConfigMap frontend-config was changed. Ten seconds later, Pods of the frontend still run with the old config.")
	}})
}
