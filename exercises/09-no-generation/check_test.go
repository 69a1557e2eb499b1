//go:build exercise

package nogeneration

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
		check.Scene{Name: "the data of the config changes", Play: func(w *check.World) {
			start(w)
			change(w, func(config *corev1.ConfigMap) { config.Data["greeting"] = "good morning" })
			w.Advance(time.Minute)
			if w.Exists("pods", "shop", "web-0") {
				w.Failf("ConfigMap shop/frontend-config was changed. A minute later, Pod shop/web-0 is still there and runs with the old config.")
			}
			if !w.Exists("pods", "shop", "db-0") {
				w.Failf("Pod shop/db-0 was deleted, although it is not a Pod of the frontend.")
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
			change(w, func(config *corev1.ConfigMap) { config.Labels = map[string]string{"team": "shop"} })
			w.Advance(time.Minute)
			if !w.Exists("pods", "shop", "web-0") {
				w.Failf("Only a label of ConfigMap shop/frontend-config was changed, which the Pods do not read. Pod shop/web-0 was deleted.")
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
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: ConfigName}, Data: map[string]string{"greeting": "hello"},
	})
	w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return (&Controller{Client: client, Namespace: "shop"}).Run(ctx)
	})
	w.Advance(time.Minute)
}

func change(w *check.World, change func(*corev1.ConfigMap)) {
	configs := w.Client.CoreV1().ConfigMaps("shop")
	config := check.Must(configs.Get(context.Background(), ConfigName, metav1.GetOptions{}))
	change(config)
	check.Must(configs.Update(context.Background(), config, metav1.UpdateOptions{}))
}
