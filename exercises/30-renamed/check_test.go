//go:build exercise

package renamed

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/exercise/check"
)

func TestExercise(t *testing.T) {
	check.Run(t,
		check.Scene{Name: "an app gets its Deployment", Play: func(w *check.World) {
			start(w)
			if !w.Exists("deployments.apps", "shop", "web") {
				w.Failf("There is an app with a Deployment named web. A minute later, the Deployment does not exist.")
			}
		}},
		check.Scene{Name: "the Deployment of an app is renamed", Play: func(w *check.World) {
			start(w)
			rename(w, "store")
			if !w.Exists("deployments.apps", "shop", "store") {
				w.Failf("The Deployment of the app was renamed from web to store. A minute later, there is no Deployment store.")
			}
			if w.Exists("deployments.apps", "shop", "web") {
				w.Failf("The Deployment of the app was renamed from web to store. A minute later, Deployment web still exists.")
			}
			for _, name := range []string{"blog", "legacy"} {
				if !w.Exists("deployments.apps", "shop", name) {
					w.Failf("The Deployment of one app was renamed, and Deployment %s, which does not belong to that app, was deleted.", name)
				}
			}
		}},
		check.Scene{Name: "the old Deployment cannot be deleted at first", Play: func(w *check.World) {
			start(w)
			w.Inject("verb=delete,resource=deployments,nth=1-3,refuse=500")
			rename(w, "store")
			if w.Exists("deployments.apps", "shop", "web") {
				w.Failf("The Deployment of the app was renamed from web to store, and the API server refused to delete Deployment web three times. A minute later, it still exists.")
			}
		}},
		check.Scene{Name: "the Deployment is renamed while the controller is down", Play: func(w *check.World) {
			controller := start(w)
			controller.Stop()
			rename(w, "store")
			run(w)
			w.Advance(time.Minute)
			if w.Exists("deployments.apps", "shop", "web") {
				w.Failf("The Deployment of the app was renamed from web to store while the controller was down. A minute after its start, Deployment web still exists.")
			}
		}},
	)
}

func app(name, deployment string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{AppLabel: ""}},
		Data:       map[string]string{"deployment": deployment, "image": "example.com/" + name},
	}
}

func start(w *check.World) *check.Process {
	w.Given(app("shop-app", "web"), app("blog-app", "blog"))
	isController := true
	w.Given(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "legacy",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "App", Name: "shop-app", UID: "4711", Controller: &isController}},
	}})
	controller := run(w)
	w.Advance(time.Minute)
	return controller
}

func run(w *check.World) *check.Process {
	return w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return (&Controller{Client: client, Namespace: "shop"}).Run(ctx)
	})
}

func rename(w *check.World, deployment string) {
	apps := w.Client.CoreV1().ConfigMaps("shop")
	changed := check.Must(apps.Get(context.Background(), "shop-app", metav1.GetOptions{}))
	changed.Data["deployment"] = deployment
	check.Must(apps.Update(context.Background(), changed, metav1.UpdateOptions{}))
	w.Advance(time.Minute)
}
