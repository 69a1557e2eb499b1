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
			changed := task("import", "new")
			changed.Data["image"] += ":2"
			w.Given(changed)
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
			if !w.Exists("pods", "jobs", "import") {
				w.Failf("Pod jobs/import belongs to somebody else. Task import was created a minute ago, and now that Pod is gone.")
			}
			if labels := get(w, "import").Labels; labels["owner"] != "ops" || len(labels) > 1 {
				w.Failf("Pod jobs/import belongs to somebody else. Task import was created a minute ago, and now the labels of that Pod are %v; they were map[owner:ops].", labels)
			}
			if len(podsOf(w, "import")) == 0 && w.Errors() == 0 {
				w.Failf("Pod jobs/import belongs to somebody else. Task import was created a minute ago and has no Pod, and the controller has logged no error.")
			}
			w.Delete("pods", "jobs", "import")
			w.Advance(time.Hour)
			expect(w, "import", "Somebody else's Pod jobs/import was deleted an hour ago. ")
		}},
		check.Scene{Name: "a task is deleted and created again while its Pod is still there", Play: func(w *check.World) {
			start(w)
			w.Given(task("import", ""))
			w.Advance(time.Minute)
			expect(w, "import", "")
			for range 2 {
				old := podsOf(w, "import")
				w.Delete("configmaps", "jobs", "import")
				check.Must(w.Client.CoreV1().ConfigMaps("jobs").Create(context.Background(), task("import", ""), metav1.CreateOptions{}))
				w.Advance(time.Minute)
				w.Say("garbage collection deletes the Pod of the old task")
				for _, pod := range old {
					if w.Exists("pods", "jobs", pod.Name) && pod.UID == get(w, pod.Name).UID {
						w.Delete("pods", "jobs", pod.Name)
					}
				}
				w.Advance(time.Hour)
				expect(w, "import", "Task import was deleted and created again while the Pod of the old task was still there. An hour later: ")
			}
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
	if pods := len(podsOf(w, task)); pods != 1 {
		w.Failf("%sTask %s has %d Pods; it must have one.", why, task, pods)
	}
}

func podsOf(w *check.World, task string) []corev1.Pod {
	return check.Must(w.Client.CoreV1().Pods("jobs").List(context.Background(), metav1.ListOptions{LabelSelector: Task + "=" + task})).Items
}

func get(w *check.World, pod string) *corev1.Pod {
	return check.Must(w.Client.CoreV1().Pods("jobs").Get(context.Background(), pod, metav1.GetOptions{}))
}
