//go:build exercise

package whosesecret

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
		check.Scene{Name: "a user annotates a Secret of her own", Play: func(w *check.World) {
			own := secret("shop", "own", "mine", Sync)
			own.Labels = map[string]string{"team": "shop"}
			w.Given(namespace("vault"), namespace("shop", Sync), secret("vault", "db", "one", Sync), own)
			start(w)
			expect(w, "shop", "own", "mine", "A user had created Secret shop/own, with the annotation. ")
		}},
		check.Scene{Name: "a Secret is managed by somebody else", Play: func(w *check.World) {
			release := secret("shop", "release", "mine")
			release.Labels = map[string]string{"app.kubernetes.io/managed-by": "Helm"}
			w.Given(namespace("vault"), namespace("shop", Sync), secret("vault", "db", "one", Sync), release)
			start(w)
			expect(w, "shop", "release", "mine", "Helm had created Secret shop/release, with the label app.kubernetes.io/managed-by: Helm. ")
		}},
		check.Scene{Name: "a user removes the annotation from a copy", Play: func(w *check.World) {
			w.Given(namespace("vault"), namespace("shop", Sync), secret("vault", "db", "one", Sync))
			start(w)
			expect(w, "shop", "db", "one", "Secret vault/db is to be copied to namespace shop. ")
			edit(w, "shop", "db", func(s *corev1.Secret) { delete(s.Annotations, Sync) })
			edit(w, "vault", "db", func(s *corev1.Secret) { s.Data["password"] = []byte("two") })
			expect(w, "shop", "db", "two", "A user saw to it that the copy shop/db does not have the annotation, which has no effect in namespace shop. Then Secret vault/db was changed. ")
		}},
		check.Scene{Name: "a user's Secret has the name of a source", Play: func(w *check.World) {
			w.Given(namespace("vault"), namespace("shop", Sync), secret("vault", "db", "one", Sync), secret("shop", "db", "mine", Sync))
			start(w)
			expect(w, "shop", "db", "mine", "A user had created Secret shop/db, with the annotation, and it has the name of a source. ")
			w.Delete("secrets", "vault", "db")
			expect(w, "shop", "db", "mine", "A user had created Secret shop/db. Its namesake vault/db was deleted. ")
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
