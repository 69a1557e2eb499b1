//go:build exercise

package nogeneration

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/exercise/check"
)

func TestExercise(t *testing.T) {
	check.Run(t,
		check.Scene{Name: "the data of the config changes", Play: func(w *check.World) {
			start(w)
			for _, next := range []struct {
				what string
				data map[string]string
			}{
				{"ConfigMap shop/frontend-config was changed.", map[string]string{"greeting": "good morning", "farewell": "bye", "color": "blue"}},
				{"In ConfigMap shop/frontend-config, a value was replaced by another one of the same length.", map[string]string{"greeting": "good evening", "farewell": "bye", "color": "blue"}},
				{"A key was removed from ConfigMap shop/frontend-config.", map[string]string{"greeting": "good evening", "color": "blue"}},
				{"All keys were removed from ConfigMap shop/frontend-config.", nil},
			} {
				change(w, func(config *corev1.ConfigMap) { config.Data = next.data })
				w.Advance(time.Minute)
				if w.Exists("pods", "shop", "web-0") {
					w.Failf("%s A minute later, Pod shop/web-0 is still there and runs with the old config.", next.what)
				}
				if !w.Exists("pods", "shop", "db-0") {
					w.Failf("Pod shop/db-0 was deleted, although it is not a Pod of the frontend.")
				}
				w.Given(pod("web-0", "frontend"))
				w.Advance(time.Minute)
			}
		}},
		check.Scene{Name: "only the binary data of the config change", Play: func(w *check.World) {
			start(w)
			for _, favicon := range []string{"\x89PNG", "\x89PNG\r\n"} {
				change(w, func(config *corev1.ConfigMap) { config.BinaryData = map[string][]byte{"favicon.png": []byte(favicon)} })
				w.Advance(time.Minute)
				if w.Exists("pods", "shop", "web-0") {
					w.Failf("The binaryData of ConfigMap shop/frontend-config were changed. A minute later, Pod shop/web-0 is still there and runs with the old config.")
				}
				w.Given(pod("web-0", "frontend"))
				w.Advance(time.Minute)
			}
		}},
		check.Scene{Name: "only the labels of the config change", Play: func(w *check.World) {
			start(w)
			for n := range 20 {
				change(w, func(config *corev1.ConfigMap) { config.Labels = map[string]string{"team": fmt.Sprint("shop-", n)} })
				w.Advance(time.Minute)
				if !w.Exists("pods", "shop", "web-0") {
					w.Failf("Only a label of ConfigMap shop/frontend-config was changed, which the Pods do not read. Pod shop/web-0 was deleted.")
				}
			}
		}},
		check.Scene{Name: "the API server refuses to delete one Pod", Play: func(w *check.World) {
			w.Given(pod("web-1", "frontend"), pod("web-2", "frontend"))
			start(w)
			w.Inject("verb=delete,resource=pods,nth=1,refuse=500")
			change(w, func(config *corev1.ConfigMap) { config.Data["greeting"] = "good morning" })
			w.Advance(time.Minute)
			old := 0
			for _, name := range []string{"web-0", "web-1", "web-2"} {
				if w.Exists("pods", "shop", name) {
					old++
				}
			}
			if old > 1 {
				w.Failf("ConfigMap shop/frontend-config was changed, and the API server refused to delete one of the three Pods of the frontend. A minute later, %d of them still run with the old config.", old)
			}
		}},
		check.Scene{Name: "a Pod is replaced right before the controller deletes it", Play: func(w *check.World) {
			start(w)
			w.Before("delete", "pods", func() {
				w.Delete("pods", "shop", "web-0")
				w.Given(pod("web-0", "frontend"))
			})
			change(w, func(config *corev1.ConfigMap) { config.Data["greeting"] = "good morning" })
			w.Advance(time.Minute)
			if !w.Exists("pods", "shop", "web-0") {
				w.Failf("ConfigMap shop/frontend-config was changed, and somebody replaced Pod shop/web-0. The new Pod runs with the new config. The controller deleted it as well.")
			}
		}},
	)
}

func pod(name, app string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": app}}}
}

func start(w *check.World) {
	for name, app := range map[string]string{"web-0": "frontend", "db-0": "database"} {
		w.Given(pod(name, app))
	}
	w.Given(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: ConfigName}, Data: map[string]string{"greeting": "hello", "farewell": "bye", "color": "blue"},
	})
	w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return (&Controller{Client: client, Namespace: "shop"}).Run(ctx)
	})
	w.Advance(time.Minute)
	if !w.Exists("pods", "shop", "web-0") {
		w.Failf("The controller was started, and nobody has changed ConfigMap shop/frontend-config. Pod shop/web-0 was deleted.")
	}
}

// change changes the config as kubectl edit does: every change has its time in the managedFields.
func change(w *check.World, change func(*corev1.ConfigMap)) {
	configs := w.Client.CoreV1().ConfigMaps("shop")
	config := check.Must(configs.Get(context.Background(), ConfigName, metav1.GetOptions{}))
	change(config)
	now := metav1.Now()
	config.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl-edit", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &now}}
	check.Must(configs.Update(context.Background(), config, metav1.UpdateOptions{}))
}
