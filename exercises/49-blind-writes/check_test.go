//go:build exercise

package blindwrites

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
		check.Scene{Name: "somebody changes a Secret that has nothing to do with it", Play: func(w *check.World) {
			w.Given(namespace("vault"), namespace("shop", Sync), namespace("blog", Sync), secret("vault", "db", "one", Sync), secret("shop", "own", "mine"))
			start(w)
			before := len(w.Writes())
			edit(w, "shop", "own", func(s *corev1.Secret) { s.Data["password"] = []byte("new") })
			w.Advance(time.Hour)
			if after := len(w.Writes()); after > before {
				w.Failf("All copies were right, and somebody changed Secret shop/own, which is not a copy. The controller wrote %d times.", after-before)
			}
		}},
		check.Scene{Name: "somebody changes a copy", Play: func(w *check.World) {
			w.Given(namespace("vault"), namespace("shop", Sync), namespace("blog", Sync), secret("vault", "db", "one", Sync))
			start(w)
			before := len(w.Writes())
			edit(w, "shop", "db", func(s *corev1.Secret) { s.Data["password"] = []byte("wrong") })
			expect(w, "shop", "db", "one", "Somebody changed the copy shop/db. ")
			w.Advance(time.Hour)
			if writes := len(w.Writes()) - before; writes != 1 {
				w.Failf("Somebody changed one copy, and the controller wrote %d times to repair it.", writes)
			}
			edit(w, "shop", "db", func(s *corev1.Secret) { s.Data["user"] = []byte("root") })
			w.Advance(time.Minute)
			if _, ok := check.Must(w.Client.CoreV1().Secrets("shop").Get(context.Background(), "db", metav1.GetOptions{})).Data["user"]; ok {
				w.Failf("Somebody added a key to the copy shop/db. A minute later, the copy still has this key, which its source does not have.")
			}
		}},
		check.Scene{Name: "a source has no data", Play: func(w *check.World) {
			empty := secret("vault", "db", "", Sync)
			empty.Data = nil
			w.Given(namespace("vault"), namespace("shop", Sync), empty, secret("shop", "own", "mine"))
			start(w)
			before := len(w.Writes())
			edit(w, "shop", "own", func(s *corev1.Secret) { s.Data["password"] = []byte("new") })
			w.Advance(time.Hour)
			if after := len(w.Writes()); after > before {
				w.Failf("Secret vault/db has no data, its copy has none either, and somebody changed Secret shop/own, which is not a copy. The controller wrote %d times.", after-before)
			}
		}},
		check.Scene{Name: "there are many copies", Play: func(w *check.World) {
			w.Given(namespace("vault"), namespace("blog"), secret("vault", "db", "one", Sync), secret("blog", "own", "mine"))
			for i := range 50 {
				w.Given(namespace(fmt.Sprint("shop-", i), Sync))
			}
			start(w)
			before := len(w.Requests(check.ControllerName).Requests)
			edit(w, "blog", "own", func(s *corev1.Secret) { s.Data["password"] = []byte("new") })
			w.Advance(time.Minute)
			if more := len(w.Requests(check.ControllerName).Requests) - before; more > 20 {
				w.Failf("There are 50 copies, all of them right, and somebody changed Secret blog/own, which is not a copy. The controller made %d requests.", more)
			}
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
