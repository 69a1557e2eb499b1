//go:build exercise

package forgottenchange

import (
	"context"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/exercise/live"
	"example.com/controllers/naive-loop/test/conformance"
)

func TestExercise(t *testing.T) {
	subject := conformance.Subject{
		Manifests: live.Path("03-workqueue/manifests"), Account: "workqueue", Frontend: live.Path("03-workqueue/frontend.yaml"),
		Start: func(ctx context.Context, config *rest.Config, namespace string) {
			if err := Run(ctx, kubernetes.NewForConfigOrDie(config), namespace); err != nil {
				t.Error(err)
			}
		},
	}
	live.Run(t, live.Scene{Name: "the config changes while the controller is down", Play: func(w *live.World) {
		w.Conclude(conformance.Test(w.T, subject, "acts on a change made while it was down", 8*time.Second))
	}})
}
