//go:build exercise

package forbidden

import (
	"context"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/controllers/exercises/internal/frontendtest"
	"example.com/controllers/harness/exercise/live"
	"example.com/controllers/harness/history"
)

func TestExercise(t *testing.T) {
	live.Run(t, live.Scene{Name: "the config changes", Play: func(w *live.World) {
		frontendtest.Install(w, live.Path("01-naive-loop/manifests"), live.Path("01-naive-loop/frontend.yaml"))
		w.Kubectl("run", "backup", "--image=nginx:1.29", "--labels=app=backup")
		w.Start("naive-loop", func(ctx context.Context, config *rest.Config) error {
			return (&Controller{Client: kubernetes.NewForConfigOrDie(config), Namespace: w.Namespace, Interval: 200 * time.Millisecond}).Run(ctx)
		})
		old := frontendtest.Pods(w)
		frontendtest.Change(w)
		w.Await(10*time.Second, frontendtest.AreReplaced(w, old), "ConfigMap frontend-config was changed. Ten seconds later, Pods of the frontend still run with the old config.")
		refused := refusals(w)
		w.Never(3*time.Second, func() bool {
			backup, err := w.Client.CoreV1().Pods(w.Namespace).Get(w.T.Context(), "backup", metav1.GetOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				w.T.Fatal(err)
			}
			return err != nil || backup.DeletionTimestamp != nil
		}, "Pod backup is not a Pod of the frontend. The controller deleted it.")
		if more := refusals(w) - refused; more > 0 {
			w.Failf("The Pods of the frontend were replaced, and still the API server refused %d requests of the controller within three seconds. It asks for more than its ServiceAccount is allowed.", more)
		}
	}})
}

// refusals returns how many requests of the controller were refused with 403.
func refusals(w *live.World) int {
	return len(w.History().Where(func(r history.Request) bool { return r.Who == "controller" && r.Status == http.StatusForbidden }).Requests)
}
