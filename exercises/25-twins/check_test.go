//go:build exercise

package twins

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/exercise/check"
)

func TestExercise(t *testing.T) {
	check.Run(t,
		check.Scene{Name: "two tasks", Play: func(w *check.World) {
			start(w)
			w.Given(task("import", ""), task("export", ""))
			w.Advance(time.Minute)
			expect(w, "import", "")
			expect(w, "export", "")
		}},
		check.Scene{Name: "the watch of Pods is late", Play: func(w *check.World) {
			w.Inject("verb=watch,resource=pods,late=5s")
			start(w)
			w.Given(task("import", ""))
			w.Advance(time.Second)
			w.Say("the user changes the task")
			w.Given(task("import", "new"))
			w.Advance(time.Minute)
			expect(w, "import", "The task was changed a second after its creation, and the watch of Pods was five seconds late. ")
		}},
		check.Scene{Name: "the answer to the creation is lost", Play: func(w *check.World) {
			w.Inject("verb=watch,resource=pods,late=5s", "verb=create,resource=pods,nth=1,lost=reply")
			start(w)
			w.Given(task("import", ""))
			w.Advance(time.Minute)
			expect(w, "import", "The API server created a Pod, and its answer was lost. ")
		}},
		check.Scene{Name: "the creation is refused once", Play: func(w *check.World) {
			w.Inject("verb=create,resource=pods,nth=1,refuse=500")
			start(w)
			w.Given(task("import", ""))
			w.Advance(time.Minute)
			expect(w, "import", "The API server refused the first creation of a Pod, a minute ago. ")
		}},
		check.Scene{Name: "somebody else has a Pod of the task's name", Play: func(w *check.World) {
			w.Given(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "jobs", Name: "import", Labels: map[string]string{"owner": "ops"}}})
			start(w)
			w.Given(task("import", ""))
			w.Advance(time.Minute)
			if podsOf(w, "import") == 0 && w.Errors() == 0 {
				w.Failf("Pod jobs/import belongs to somebody else. Task import was created a minute ago and has no Pod, and the controller has logged no error.")
			}
			w.Delete("pods", "jobs", "import")
			w.Advance(time.Hour)
			expect(w, "import", "Somebody else's Pod jobs/import was deleted an hour ago. ")
		}},
	)
}

func task(name, note string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "jobs", Name: name, Annotations: map[string]string{"note": note}},
		Data:       map[string]string{"image": "example.com/" + name},
	}
}

func start(w *check.World) {
	w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return (&Controller{Client: client, Namespace: "jobs"}).Run(ctx)
	})
	w.Advance(time.Minute)
}

func expect(w *check.World, task, why string) {
	if pods := podsOf(w, task); pods != 1 {
		w.Failf("%sTask %s has %d Pods; it must have one.", why, task, pods)
	}
}

func podsOf(w *check.World, task string) int {
	pods := check.Must(w.Client.CoreV1().Pods("jobs").List(context.Background(), metav1.ListOptions{LabelSelector: Task + "=" + task}))
	return len(pods.Items)
}
