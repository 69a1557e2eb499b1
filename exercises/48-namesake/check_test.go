//go:build exercise

package namesake

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
		check.Scene{Name: "there is a Secret with the name of the copy", Play: func(w *check.World) {
			w.Given(namespace("vault"), namespace("shop", Sync), secret("shop", "db", "mine"), secret("vault", "db", "one", Sync))
			start(w)
			expect(w, "shop", "db", "mine", "A user had created Secret shop/db before vault/db was to be copied. ")
			edit(w, "vault", "db", func(s *corev1.Secret) { s.Data["password"] = []byte("two") })
			expect(w, "shop", "db", "mine", "A user had created Secret shop/db. Its namesake vault/db was changed. ")
			requests, errs := len(w.Requests(check.ControllerName).Requests), w.Errors()
			w.Advance(time.Hour)
			if more := len(w.Requests(check.ControllerName).Requests) - requests; more > 0 {
				w.Failf("A user's Secret has the name of a copy, and nothing changes. The controller made %d requests in an hour.", more)
			}
			if more := w.Errors() - errs; more > 0 {
				w.Failf("A user's Secret has the name of a copy, and nothing changes. The controller logged %d errors in an hour.", more)
			}
			w.Delete("secrets", "shop", "db")
			expect(w, "shop", "db", "two", "The user deleted Secret shop/db, which was in the way of the copy. ")
		}},
		check.Scene{Name: "there is a Secret with the name and the data of the copy", Play: func(w *check.World) {
			w.Given(namespace("vault"), namespace("shop", Sync), secret("shop", "db", "one"), secret("vault", "db", "one", Sync))
			start(w)
			edit(w, "vault", "db", func(s *corev1.Secret) { s.Data["password"] = []byte("two") })
			expect(w, "shop", "db", "one", "A user's Secret shop/db had the same password as vault/db, which was changed then. ")
			w.Delete("secrets", "vault", "db")
			expect(w, "shop", "db", "one", "A user's Secret shop/db once had the same password as vault/db, which was deleted. ")
		}},
		check.Scene{Name: "there is a Secret with the name of the copy, and other keys", Play: func(w *check.World) {
			own := secret("shop", "db", "")
			own.Data = map[string][]byte{"user": []byte("root")}
			w.Given(namespace("vault"), namespace("shop", Sync), own, secret("vault", "db", "one", Sync))
			start(w)
			if got := check.Must(w.Client.CoreV1().Secrets("shop").Get(context.Background(), "db", metav1.GetOptions{})); len(got.Data) != 1 {
				w.Failf("A user had created Secret shop/db with the key user. A minute after vault/db was to be copied, it has %d keys.", len(got.Data))
			}
		}},
		check.Scene{Name: "somebody else creates a Secret of that name first", Play: func(w *check.World) {
			w.Given(namespace("vault"), namespace("shop", Sync))
			start(w)
			w.Before("create", "secrets", func() { w.Given(secret("shop", "db", "mine")) })
			w.Given(secret("vault", "db", "one", Sync))
			expect(w, "shop", "db", "mine", "A user created Secret shop/db a moment before the controller did. ")
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
