//go:build exercise

package swallowederror

import (
	"context"
	"fmt"
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
		check.Scene{Name: "each write fails six times", Play: func(w *check.World) {
			w.Given(namespace("vault"), namespace("shop", Sync))
			for _, verb := range []string{"create", "update", "patch", "delete"} {
				w.Inject("verb=" + verb + ",resource=secrets,nth=1-6,refuse=500")
			}
			start(w)
			w.Given(secret("vault", "db", "one", Sync)) // one event, and so one reconcile
			expectAfter(w, 3*time.Minute, "Three minutes", "shop", "db", "one", "The API server refused to create the copy six times. ")
			edit(w, "vault", "db", func(s *corev1.Secret) { s.Data["password"] = []byte("two") })
			expectAfter(w, 3*time.Minute, "Three minutes", "shop", "db", "two", "The API server refused to update the copy six times. ")
			w.Delete("secrets", "vault", "db")
			expectAfter(w, 3*time.Minute, "Three minutes", "shop", "db", "", "The API server refused to delete the copy six times. ")
		}},
		check.Scene{Name: "some namespaces refuse new Secrets for an hour", Play: func(w *check.World) {
			w.Given(namespace("vault"), secret("vault", "old", "one", Sync))
			for i := range 20 {
				w.Given(namespace(fmt.Sprint("shop-", i), Sync), namespace(fmt.Sprint("full-", i), Sync))
			}
			start(w)
			expect(w, "full-0", "old", "one", "Secret vault/old is to be copied to namespace full-0. ")
			for i := range 20 {
				w.Inject(fmt.Sprintf("verb=create,resource=secrets,namespace=full-%d,refuse=403", i))
			}
			w.Given(secret("vault", "db", "one", Sync))
			w.Advance(time.Minute)
			for i := range 20 {
				if password(w, fmt.Sprint("shop-", i), "db") == "" {
					w.Failf("Secret vault/db is to be copied to 40 namespaces, and 20 of them refuse new Secrets. A minute later, namespace shop-%d, which does not, has no copy.", i)
				}
			}
			w.Delete("secrets", "vault", "old")
			w.Advance(time.Minute)
			for i := range 20 {
				if password(w, fmt.Sprint("full-", i), "old") != "" {
					w.Failf("Secret vault/old was deleted. Namespace full-%d refuses new Secrets, but no deletions. A minute later, it still has a copy of vault/old.", i)
				}
			}
			w.Advance(time.Hour)
			w.Heal()
			w.Advance(30 * time.Minute) // more than the backoff of the last failure
			for i := range 20 {
				if password(w, fmt.Sprint("full-", i), "db") == "" {
					w.Failf("Namespace full-%d refused new Secrets for an hour. Half an hour after that, it has no copy of vault/db.", i)
				}
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
	expectAfter(w, time.Minute, "A minute", namespace, name, want, why)
}

func expectAfter(w *check.World, d time.Duration, long, namespace, name, want, why string) {
	w.Advance(d)
	switch got := password(w, namespace, name); {
	case got == want:
	case got == "":
		w.Failf("%s%s later, there is no Secret %s/%s.", why, long, namespace, name)
	case want == "":
		w.Failf("%s%s later, there is a Secret %s/%s.", why, long, namespace, name)
	default:
		w.Failf("%s%s later, the password in Secret %s/%s is %q; it should be %q.", why, long, namespace, name, got, want)
	}
}
