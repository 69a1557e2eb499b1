//go:build exercise

package pollends

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
		check.Scene{Name: "a Pod has finished", Play: func(w *check.World) {
			start(w)
			w.Advance(10 * time.Minute)
			if w.Exists("pods", "shop", "job-1") {
				w.Failf("Pod shop/job-1 has finished, and ten minutes later it has not been deleted.")
			}
			if !w.Exists("pods", "shop", "web-0") {
				w.Failf("Pod shop/web-0 was deleted although it is running.")
			}
		}},
		check.Scene{Name: "the API server refuses requests for a while", Play: func(w *check.World) {
			w.Inject("verb=list,resource=pods,refuse=500,for=150s")
			start(w)
			w.Advance(10 * time.Minute)
			if w.Exists("pods", "shop", "job-1") {
				w.Failf("For two and a half minutes, the API server refused to list Pods. More than seven minutes later, Pod shop/job-1 has not been deleted.")
			}
		}},
		check.Scene{Name: "the API server refuses to delete once", Play: func(w *check.World) {
			w.Inject("verb=delete,resource=pods,nth=1,refuse=500")
			start(w)
			w.Advance(10 * time.Minute)
			if w.Exists("pods", "shop", "job-1") {
				w.Failf("The API server refused to delete Pod shop/job-1 once. Ten minutes later, the Pod is still there.")
			}
		}},
		check.Scene{Name: "the API server cannot be reached for a while", Play: func(w *check.World) {
			w.Inject("verb=list,resource=pods,lost=request,for=150s")
			start(w)
			w.Advance(10 * time.Minute)
			if w.Exists("pods", "shop", "job-1") {
				w.Failf("For two and a half minutes, the requests to list Pods did not reach the API server. More than seven minutes later, Pod shop/job-1 has not been deleted.")
			}
		}},
		check.Scene{Name: "the API server is down for hours", Play: func(w *check.World) {
			w.Inject("verb=list,resource=pods,refuse=503,for=3h")
			start(w)
			w.Advance(3*time.Hour + 15*time.Minute)
			if w.Exists("pods", "shop", "job-1") {
				w.Failf("For three hours, the API server refused to list Pods. A quarter of an hour later, Pod shop/job-1 has not been deleted.")
			}
		}},
		check.Scene{Name: "a running Pod takes the name of the finished one", Play: func(w *check.World) {
			w.Before("delete", "pods", func() {
				w.Delete("pods", "shop", "job-1")
				w.Given(pod("job-1", corev1.PodRunning))
			})
			start(w)
			w.Never(5*time.Minute, func() bool { return !w.Exists("pods", "shop", "job-1") },
				"Pod shop/job-1 had finished, and was replaced by a Pod of the same name right before the janitor deleted it. The janitor deleted the new one, which is running.")
			w.Given(pod("job-2", corev1.PodSucceeded))
			w.Advance(10 * time.Minute)
			if w.Exists("pods", "shop", "job-2") {
				w.Failf("A finished Pod was replaced by a namesake while the janitor was deleting it. Later, Pod shop/job-2 finished. Ten minutes after that, it has not been deleted.")
			}
		}},
		check.Scene{Name: "the API server is slow", Play: func(w *check.World) {
			w.Inject("verb=list,resource=pods,delay=5m")
			start(w)
			w.Advance(30 * time.Minute)
			var end time.Time
			for _, list := range w.Requests(check.ControllerName).Requests {
				if list.Start.Before(end) {
					w.Failf("It took the API server five minutes to answer, and the janitor began its next iteration while it was waiting. With a slow API server, it has more and more iterations at once.")
				}
				end = list.End()
			}
		}},
		check.Scene{Name: "the janitor is stopped while the API server does not answer", Play: func(w *check.World) {
			janitor := start(w)
			w.Advance(30 * time.Second)
			w.StopWhileHanging(janitor, func() {})
		}},
	)
}

func pod(name string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Status: corev1.PodStatus{Phase: phase}}
}

// start starts the janitor as its program does: in a goroutine, next to a server for health checks.
func start(w *check.World) *check.Process {
	w.Given(pod("job-1", corev1.PodSucceeded), pod("web-0", corev1.PodRunning))
	return w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		janitor := &Janitor{Client: client, Namespace: "shop", Interval: time.Minute}
		done := make(chan error)
		go func() { done <- janitor.Run(ctx) }()
		<-ctx.Done()
		return <-done
	})
}
