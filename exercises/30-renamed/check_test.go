//go:build exercise

package renamed

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"path"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

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
			expectOthers(w, "The controller was started")
			serve(w, "web")
			rename(w, "store")
			if !w.Exists("deployments.apps", "shop", "store") {
				w.Failf("The Deployment of the app was renamed from web to store. A minute later, there is no Deployment store.")
			}
			if w.Exists("deployments.apps", "shop", "web") {
				w.Failf("The Deployment of the app was renamed from web to store. A minute later, Deployment web still exists.")
			}
			expectOthers(w, "The Deployment of one app was renamed")
			if w.Exists("replicasets.apps", "shop", "web-6d4f7c9b") {
				w.Failf("The Deployment of the app was renamed from web to store. Deployment web was deleted, and its ReplicaSet was not: its Pods still run, and get traffic.")
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
		check.Scene{Name: "the new Deployment cannot be created at first", Play: func(w *check.World) {
			start(w)
			old := "web"
			for _, name := range []string{"store", "shop"} {
				w.Inject("verb=create,resource=deployments,name=" + name + ",refuse=403")
				rename(w, name)
				if !w.Exists("deployments.apps", "shop", old) {
					w.Failf("The Deployment of the app was renamed from %s to %s, and a quota keeps the new one from being created. Deployment %s was deleted all the same, so the app is down.", old, name, old)
				}
				w.Heal()
				w.Say("the quota is raised")
				w.Advance(time.Hour)
				if !w.Exists("deployments.apps", "shop", name) || w.Exists("deployments.apps", "shop", old) {
					w.Failf("The Deployment of the app was renamed from %s to %s, and a quota kept the new one from being created for a minute. An hour later, there is no Deployment %s, or still a Deployment %s.", old, name, name, old)
				}
				old = name
			}
		}},
		check.Scene{Name: "somebody else has a Deployment of the new name", Play: func(w *check.World) {
			start(w)
			w.Given(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "store"}})
			for _, name := range []string{"store", "blog"} {
				owner := metav1.GetControllerOf(get(w, name))
				rename(w, name)
				if now := metav1.GetControllerOf(get(w, name)); (owner == nil) != (now == nil) || owner != nil && owner.UID != now.UID {
					w.Failf("The Deployment of the app was renamed from web to %s. There was a Deployment %s already, which did not belong to the app. The controller made it the app's.", name, name)
				}
				if !w.Exists("deployments.apps", "shop", "web") {
					w.Failf("The Deployment of the app was renamed from web to %s. There was a Deployment %s already, which does not belong to the app. Deployment web was deleted all the same, so the app is down.", name, name)
				}
			}
			rename(w, "store")
			w.Delete("deployments.apps", "shop", "store")
			w.Advance(time.Hour)
			if owner := metav1.GetControllerOf(get(w, "store")); owner == nil || owner.Name != "shop-app" {
				w.Failf("The Deployment of the app was renamed from web to store, and somebody else's Deployment store was deleted. An hour later, the app does not have a Deployment store.")
			}
			if w.Exists("deployments.apps", "shop", "web") {
				w.Failf("The Deployment of the app was renamed from web to store, and has been created. An hour later, Deployment web still exists.")
			}
		}},
		check.Scene{Name: "somebody deletes the Deployment of an app", Play: func(w *check.World) {
			start(w)
			for range 2 {
				w.Delete("deployments.apps", "shop", "web")
				w.Advance(time.Minute)
				if !w.Exists("deployments.apps", "shop", "web") {
					w.Failf("Somebody deleted Deployment web, which an app needs. A minute later, it does not exist.")
				}
			}
		}},
		check.Scene{Name: "the app has Deployments of earlier names", Play: func(w *check.World) {
			w.Given(app("mail-app", "mail"))
			owner := check.Must(w.Client.CoreV1().ConfigMaps("shop").Get(context.Background(), "mail-app", metav1.GetOptions{}))
			for _, name := range []string{"first", "second"} {
				w.Given(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
					Namespace: "shop", Name: name,
					OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))},
				}})
			}
			run(w)
			w.Advance(time.Minute)
			for _, name := range []string{"first", "second"} {
				if w.Exists("deployments.apps", "shop", name) {
					w.Failf("The Deployment of the app was renamed twice, from first to second and then to mail, while the controller was down. A minute after its start, Deployment %s still exists.", name)
				}
			}
		}},
		check.Scene{Name: "an app loses the name of its Deployment", Play: func(w *check.World) {
			start(w)
			rename(w, "")
			if !w.Exists("deployments.apps", "shop", "web") {
				w.Failf("Somebody removed the name of the Deployment from the app's description by mistake. Deployment web was deleted, so the app is down.")
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
	uid := check.Must(w.Client.CoreV1().ConfigMaps("shop").Get(context.Background(), "shop-app", metav1.GetOptions{})).UID
	isController := true
	w.Given(
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "legacy",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "App", Name: "shop-app", UID: "4711", Controller: &isController}},
		}},
		// It is deleted with the app, and somebody else controls it.
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "cache",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "shop-app", UID: uid}},
		}},
		&appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "canary"},
			Spec:       appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "shop-app"}}}},
		},
	)
	controller := run(w)
	w.Advance(time.Minute)
	return controller
}

// expectOthers fails the check if a Deployment that the app does not control has been deleted.
func expectOthers(w *check.World, why string) {
	for _, name := range []string{"blog", "legacy", "cache", "canary"} {
		if !w.Exists("deployments.apps", "shop", name) {
			w.Failf("%s, and Deployment %s, which does not belong to that app, was deleted.", why, name)
		}
	}
}

func run(w *check.World) *check.Process {
	return w.StartNamed(check.ControllerName, func(ctx context.Context, config *rest.Config) error {
		config.Wrap(func(server http.RoundTripper) http.RoundTripper { return orphaning{server, w} })
		return (&Controller{Client: kubernetes.NewForConfigOrDie(config), Namespace: "shop"}).Run(ctx)
	})
}

// orphaning adds to the API server in memory, which has no garbage collection, what a deletion with propagation policy Orphan
// leaves behind.
type orphaning struct {
	http.RoundTripper
	w *check.World
}

func (o orphaning) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodDelete && r.GetBody != nil {
		body, err := r.GetBody()
		if err != nil {
			return nil, err
		}
		options, err := io.ReadAll(body)
		if err != nil {
			return nil, err
		}
		if bytes.Contains(options, []byte(`"Orphan"`)) {
			o.w.Given(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: path.Base(r.URL.Path) + "-6d4f7c9b"}})
		}
	}
	return o.RoundTripper.RoundTrip(r)
}

// serve plays the Deployment controller: the Pods of a Deployment run.
func serve(w *check.World, name string) {
	deployment := get(w, name)
	deployment.Status = appsv1.DeploymentStatus{Replicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
	check.Must(w.Client.AppsV1().Deployments("shop").UpdateStatus(context.Background(), deployment, metav1.UpdateOptions{}))
	w.Settle()
}

func rename(w *check.World, deployment string) {
	apps := w.Client.CoreV1().ConfigMaps("shop")
	changed := check.Must(apps.Get(context.Background(), "shop-app", metav1.GetOptions{}))
	changed.Data["deployment"] = deployment
	check.Must(apps.Update(context.Background(), changed, metav1.UpdateOptions{}))
	w.Advance(time.Minute)
}

// get returns a Deployment; an empty one, which belongs to nobody, if there is none.
func get(w *check.World, name string) *appsv1.Deployment {
	deployment, err := w.Client.AppsV1().Deployments("shop").Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &appsv1.Deployment{}
	}
	return check.Must(deployment, err)
}
