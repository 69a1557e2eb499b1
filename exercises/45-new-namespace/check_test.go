//go:build exercise

package newnamespace

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/exercise/check"
)

func TestExercise(t *testing.T) {
	check.Run(t,
		check.Scene{Name: "a Secret is copied, changed and deleted", Play: func(w *check.World) {
			w.Given(namespace("vault"), namespace("shop", Sync), namespace("blog"), secret("vault", "db", "one", Sync), secret("vault", "private", "one"))
			start(w)
			expect(w, "shop", "db", "one", "Secret vault/db is to be copied to namespace shop. ")
			expect(w, "blog", "db", "", "Namespace blog is not annotated. ")
			expect(w, "shop", "private", "", "Secret vault/private is not annotated. ")
			edit(w, "vault", "db", func(s *corev1.Secret) { s.Data["password"] = []byte("two") })
			expect(w, "shop", "db", "two", "Secret vault/db was changed. ")
			w.Delete("secrets", "vault", "db")
			expect(w, "shop", "db", "", "Secret vault/db was deleted. ")
		}},
		check.Scene{Name: "a namespace is created", Play: func(w *check.World) {
			w.Given(namespace("vault"), secret("vault", "db", "one", Sync))
			start(w)
			w.Given(namespace("shop", Sync))
			expectSoon(w, "Namespace shop was created. ")
		}},
		check.Scene{Name: "a namespace is annotated", Play: func(w *check.World) {
			w.Given(namespace("vault"), namespace("shop"), secret("vault", "db", "one", Sync))
			start(w)
			w.Given(namespace("shop", Sync))
			expectSoon(w, "Namespace shop was annotated. ")
		}},
		check.Scene{Name: "a namespace loses its annotation", Play: func(w *check.World) {
			w.Given(namespace("vault"), namespace("shop", Sync), secret("vault", "db", "one", Sync))
			start(w)
			w.Given(namespace("shop"))
			expect(w, "shop", "db", "", "The annotation of namespace shop was removed. ")
		}},
		check.Scene{Name: "the API server refuses the copy of a new namespace at first", Play: func(w *check.World) {
			w.Given(namespace("vault"), secret("vault", "db", "one", Sync))
			start(w)
			w.Inject("verb=create,resource=secrets,nth=1-3,refuse=500")
			w.Given(namespace("shop", Sync))
			expect(w, "shop", "db", "one", "Namespace shop was created, and the API server refused its copy three times. ")
		}},
		check.Scene{Name: "the annotation takes the place of another one", Play: func(w *check.World) {
			w.Given(namespace("vault"), namespace("shop", "example.com/team"), secret("vault", "db", "one", Sync))
			start(w)
			w.Given(namespace("shop", Sync))
			expect(w, "shop", "db", "one", "Namespace shop was annotated, and lost another annotation. ")
			w.Given(namespace("shop", "example.com/team"))
			expect(w, "shop", "db", "", "The annotation of namespace shop was replaced by another one. ")
		}},
		check.Scene{Name: "the watch of namespaces breaks off", Play: func(w *check.World) {
			w.Given(namespace("vault"), secret("vault", "db", "one", Sync))
			start(w)
			w.BreakWatches("namespaces", func() { w.Advance(time.Minute) })
			w.Advance(time.Minute)
			w.Given(namespace("shop", Sync))
			expect(w, "shop", "db", "one", "The watch of namespaces had broken off, and works again. Then namespace shop was created. ")
		}},
	)
}

func namespace(name string, annotations ...string) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	for _, annotation := range annotations {
		n.Annotations[annotation] = ""
	}
	return n
}

func secret(namespace, name, password string, annotations ...string) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{}},
		Type:       corev1.SecretTypeOpaque, Data: map[string][]byte{"password": []byte(password)},
	}
	for _, annotation := range annotations {
		s.Annotations[annotation] = ""
	}
	return s
}

func start(w *check.World) *check.Process {
	controller := w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return (&Controller{Client: client, Source: "vault"}).Run(ctx)
	})
	w.Advance(time.Minute)
	return controller
}

func edit(w *check.World, namespace, name string, change func(*corev1.Secret)) {
	secrets := w.Client.CoreV1().Secrets(namespace)
	changed := check.Must(secrets.Get(context.Background(), name, metav1.GetOptions{}))
	change(changed)
	check.Must(secrets.Update(context.Background(), changed, metav1.UpdateOptions{}))
}

// expectSoon fails the check if namespace shop does not get its copy before a resync could have come to help: the shortest
// period of an informer is a second.
func expectSoon(w *check.World, why string) {
	begin := w.Since()
	w.Eventually(time.Minute, func() bool { return w.Exists("secrets", "shop", "db") }, "%sA minute later, there is no Secret shop/db.", why)
	if took := w.Since() - begin; took > 500*time.Millisecond {
		w.Failf("%sOnly %s later, Secret shop/db was created.", why, took)
	}
}

// password returns the password in a Secret, or "" if there is no such Secret.
func password(w *check.World, namespace, name string) string {
	s, err := w.Client.CoreV1().Secrets(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	return string(check.Must(s, err).Data["password"])
}

// expect fails the check if a Secret does not have this password within a minute; "" means no such Secret.
func expect(w *check.World, namespace, name, want, why string) {
	w.Advance(time.Minute)
	switch got := password(w, namespace, name); {
	case got == want:
	case got == "":
		w.Failf("%sA minute later, there is no Secret %s/%s.", why, namespace, name)
	case want == "":
		w.Failf("%sA minute later, there is a Secret %s/%s.", why, namespace, name)
	default:
		w.Failf("%sA minute later, the password in Secret %s/%s is %q; it should be %q.", why, namespace, name, got, want)
	}
}
