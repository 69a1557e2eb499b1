//go:build exercise

package lostdeletion

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/controllers/exercises/internal/frontendtest"
	"example.com/controllers/harness/exercise/live"
	"example.com/controllers/harness/history"
	"example.com/controllers/naive-loop/test/conformance"
)

func TestExercise(t *testing.T) {
	subject := conformance.Subject{
		Manifests: live.Path("03-workqueue/manifests"), Account: "workqueue", Frontend: live.Path("03-workqueue/frontend.yaml"),
		Start: func(ctx context.Context, config *rest.Config, namespace string) {
			if err := Run(ctx, kubernetes.NewForConfigOrDie(config), namespace); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		},
	}
	live.Run(t, live.Scene{Name: "the config changes, and the API server fails one deletion", Play: func(w *live.World) {
		w.Conclude(conformance.Test(w.T, subject, "retries a deletion that failed", 8*time.Second))
	}}, live.Scene{Name: "the API server fails deletions for a while", Play: func(w *live.World) {
		frontendtest.Install(w, live.Path("03-workqueue/manifests"), live.Path("03-workqueue/frontend.yaml"))
		w.Start("workqueue", func(ctx context.Context, config *rest.Config) error {
			config.QPS = -1 // client-go's limit would hide how often the controller tries
			return Run(ctx, kubernetes.NewForConfigOrDie(config), w.Namespace)
		})
		frontendtest.Rest(w)
		old := frontendtest.Pods(w)
		w.Inject("verb=delete,resource=pods,refuse=500,for=5s")
		frontendtest.Change(w)
		w.Await(time.Minute, frontendtest.AreReplaced(w, old), "The API server failed all deletions for five seconds. A minute later, Pods of the frontend still run with the old config.")
		// With a delay that doubles from five milliseconds, there are ten for each Pod.
		const enough = 60
		if failed := len(slices.DeleteFunc(w.Writes(), func(r history.Request) bool { return !r.Failed() })); failed > enough {
			w.Failf("The API server failed all deletions for five seconds. In that time, the controller tried %d times to delete three Pods.", failed)
		}
	}})
}
