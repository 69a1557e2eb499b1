//go:build exercise

package forgottenchange

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/controllers/exercises/internal/frontendtest"
	"example.com/controllers/harness/exercise/live"
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
	live.Run(t, live.Scene{Name: "the config changes while the controller is down", Play: func(w *live.World) {
		w.Conclude(conformance.Test(w.T, subject, "acts on a change made while it was down", 8*time.Second))
	}}, live.Scene{Name: "the config is deleted and created again", Play: func(w *live.World) {
		frontendtest.Install(w, live.Path("03-workqueue/manifests"), live.Path("03-workqueue/frontend.yaml"))
		run := func(ctx context.Context, config *rest.Config) error {
			return Run(ctx, kubernetes.NewForConfigOrDie(config), w.Namespace)
		}
		controller := w.Start("workqueue", run)
		frontendtest.Rest(w)
		old := frontendtest.Pods(w)
		configs := w.User.CoreV1().ConfigMaps(w.Namespace)
		if err := configs.Delete(w.T.Context(), configName, metav1.DeleteOptions{}); err != nil {
			w.T.Fatal(err)
		}
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: configName}, Data: map[string]string{"greeting": "good morning"}}
		if _, err := configs.Create(w.T.Context(), config, metav1.CreateOptions{}); err != nil {
			w.T.Fatal(err)
		}
		w.Await(10*time.Second, frontendtest.AreReplaced(w, old), "ConfigMap frontend-config was deleted and created again. Ten seconds later, Pods of the frontend still run with the old config.")
		frontendtest.Rest(w)
		controller.Stop()
		current := frontendtest.Pods(w)
		w.Start("workqueue", run)
		frontendtest.Rest(w)
		now := frontendtest.Pods(w)
		for uid := range current {
			if !now[uid] {
				w.Failf("The controller was started again. It deleted Pods of the frontend that ran with the current config.")
			}
		}
	}})
}
