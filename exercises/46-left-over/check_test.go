//go:build exercise

package leftover

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
		check.Scene{Name: "the annotation of a namespace is removed", Play: func(w *check.World) {
			w.Given(namespace("vault"), namespace("shop", Sync), secret("vault", "db", "one", Sync), secret("shop", "own", "mine"))
			start(w)
			w.Given(namespace("shop"))
			expect(w, "shop", "db", "", "Namespace shop is no longer annotated. ")
			expect(w, "shop", "own", "mine", "Namespace shop is no longer annotated. ")
		}},
		check.Scene{Name: "the annotation is removed while the controller is down", Play: func(w *check.World) {
			w.Given(namespace("vault"), namespace("shop", Sync), secret("vault", "db", "one", Sync))
			controller := start(w)
			controller.Stop()
			w.Given(namespace("shop"))
			start(w)
			expect(w, "shop", "db", "", "The annotation of namespace shop was removed while the controller was down. ")
		}},
		check.Scene{Name: "namespaces have a Secret of their own with the name of a source", Play: func(w *check.World) {
			w.Given(namespace("vault"), namespace("shop", Sync), namespace("blog"), secret("vault", "db", "one", Sync), secret("vault", "key", "one", Sync),
				secret("shop", "db", "mine"), secret("blog", "db", "mine"))
			start(w)
			expect(w, "shop", "key", "one", "Secret vault/key is to be copied to namespace shop. ")
			expect(w, "blog", "db", "mine", "Namespace blog is not annotated, and has a Secret db of its own. ")
			w.Given(namespace("shop"))
			expect(w, "shop", "key", "", "Namespace shop is no longer annotated. ")
			expect(w, "shop", "db", "mine", "Namespace shop is no longer annotated, and has a Secret db of its own. ")
			w.Delete("secrets", "vault", "db")
			expect(w, "blog", "db", "mine", "Secret vault/db was deleted, and namespace blog has a Secret db of its own. ")
		}},
		check.Scene{Name: "the annotation of a source is removed", Play: func(w *check.World) {
			w.Given(namespace("vault"), namespace("shop", Sync), secret("vault", "db", "one", Sync))
			start(w)
			w.Given(secret("vault", "db", "one"))
			expect(w, "shop", "db", "", "Secret vault/db is no longer annotated. ")
		}},
		check.Scene{Name: "the annotation and the sources go at once", Play: func(w *check.World) {
			w.Given(namespace("vault"), namespace("shop", Sync), secret("vault", "db", "one", Sync), secret("vault", "key", "one", Sync))
			controller := start(w)
			controller.Stop()
			w.Given(namespace("shop"), secret("vault", "key", "one"))
			w.Delete("secrets", "vault", "db")
			start(w)
			expect(w, "shop", "db", "", "Secret vault/db was deleted, and namespace shop is no longer annotated. ")
			expect(w, "shop", "key", "", "Neither Secret vault/key nor namespace shop is annotated any more. ")
		}},
		check.Scene{Name: "copies are left over from before the controller was started for the first time", Play: func(w *check.World) {
			left := secret("attic", "db", "one")
			left.Labels = map[string]string{CopyOf: "db"}
			w.Given(namespace("vault"), namespace("attic"), secret("vault", "db", "one", Sync), left)
			start(w)
			expect(w, "attic", "db", "", "Namespace attic is not annotated, and had a copy before the controller was started. ")
		}},
		check.Scene{Name: "the API server refuses to delete some copies for a while", Play: func(w *check.World) {
			w.Given(namespace("vault"), namespace("shop", Sync))
			for i := range 20 {
				w.Given(secret("vault", fmt.Sprint("db-", i), "one", Sync), secret("vault", fmt.Sprint("held-", i), "one", Sync))
				w.Inject(fmt.Sprintf("verb=delete,resource=secrets,name=held-%d,refuse=403", i))
			}
			start(w)
			w.Given(namespace("shop"))
			w.Advance(time.Minute)
			for i := range 20 {
				if w.Exists("secrets", "shop", fmt.Sprint("db-", i)) {
					w.Failf("Namespace shop is no longer annotated, and the API server refuses to delete 20 of its 40 copies. A minute later, shop/db-%d, which is none of these, still exists.", i)
				}
			}
			w.Heal()
			w.Advance(30 * time.Minute) // more than the backoff of the last failure
			for i := range 20 {
				if w.Exists("secrets", "shop", fmt.Sprint("held-", i)) {
					w.Failf("Namespace shop is no longer annotated, and the API server refused to delete copy shop/held-%d for a minute. Half an hour later, it still exists.", i)
				}
			}
		}},
		check.Scene{Name: "there is nothing to delete", Play: func(w *check.World) {
			w.Given(namespace("vault"), namespace("shop", Sync), namespace("blog"), secret("vault", "db", "one", Sync), secret("blog", "own", "one"))
			start(w)
			before := len(w.Writes())
			for i := range 5 {
				edit(w, "blog", "own", func(s *corev1.Secret) { s.Data["password"] = fmt.Append(nil, i) })
				w.Advance(time.Minute)
			}
			if more := len(w.Writes()) - before; more > 0 {
				w.Failf("Namespace blog is not annotated, has no copies, and somebody changed its own Secret five times. The controller made %d write requests.", more)
			}
		}},
		check.Scene{Name: "a copy is replaced before it is deleted", Play: func(w *check.World) {
			w.Given(namespace("vault"), namespace("shop", Sync), secret("vault", "db", "one", Sync))
			start(w)
			w.Before("delete", "secrets", func() {
				w.Delete("secrets", "shop", "db")
				w.Given(secret("shop", "db", "mine"))
			})
			w.Given(namespace("shop"))
			expect(w, "shop", "db", "mine", "Namespace shop is no longer annotated. Right before its copy was deleted, a user replaced it by a Secret of that name. ")
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
