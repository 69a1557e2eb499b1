//go:build exercise

package typechange

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
		check.Scene{Name: "the type changes while the controller is down", Play: func(w *check.World) {
			w.Given(namespace("vault"), namespace("shop", Sync), secret("vault", "db", "one", Sync), secret("vault", "cert", "same", Sync))
			controller := start(w)
			controller.Stop()
			recreate(w, "db", "two")
			recreate(w, "cert", "same")
			start(w)
			expect(w, "shop", "db", "two", "Secret vault/db was recreated with another type while the controller was down. ")
			expectType(w, "db", "Secret vault/db was recreated with another type while the controller was down. ")
			expect(w, "shop", "cert", "same", "Secret vault/cert was recreated with another type and the same data while the controller was down. ")
			expectType(w, "cert", "Secret vault/cert was recreated with another type and the same data while the controller was down. ")
		}},
		check.Scene{Name: "the type changes while the watch is broken", Play: func(w *check.World) {
			w.Given(namespace("vault"), namespace("shop", Sync), secret("vault", "db", "one", Sync))
			start(w)
			w.BreakWatches("secrets", func() { recreate(w, "db", "two") })
			expect(w, "shop", "db", "two", "Secret vault/db was recreated with another type while the watch was broken. ")
			expectType(w, "db", "Secret vault/db was recreated with another type while the watch was broken. ")
		}},
		check.Scene{Name: "a user's Secret of another type is in the way", Play: func(w *check.World) {
			own := secret("shop", "db", "mine")
			own.Type = "example.com/own"
			w.Given(namespace("vault"), namespace("shop", Sync), own, secret("vault", "db", "one", Sync))
			start(w)
			expect(w, "shop", "db", "mine", "A user had created Secret shop/db, of another type. ")
		}},
		check.Scene{Name: "the type changes, and changes back", Play: func(w *check.World) {
			w.Given(namespace("vault"), namespace("shop", Sync), secret("vault", "db", "one", Sync))
			controller := start(w)
			controller.Stop()
			recreate(w, "db", "two")
			controller = start(w)
			controller.Stop()
			w.Delete("secrets", "vault", "db")
			w.Given(secret("vault", "db", "three", Sync))
			start(w)
			expect(w, "shop", "db", "three", "Secret vault/db was recreated with another type, and later with the first one again, while the controller was down. ")
			if got := check.Must(w.Client.CoreV1().Secrets("shop").Get(context.Background(), "db", metav1.GetOptions{})).Type; got != corev1.SecretTypeOpaque {
				w.Failf("Secret vault/db was recreated with another type, and later with the first one again. A minute later, its copy has the type %s.", got)
			}
		}},
		check.Scene{Name: "only the data change", Play: func(w *check.World) {
			w.Given(namespace("vault"), namespace("shop", Sync), secret("vault", "db", "one", Sync))
			start(w)
			edit(w, "vault", "db", func(s *corev1.Secret) { s.Data["password"] = []byte("two") })
			expect(w, "shop", "db", "two", "The password in Secret vault/db was changed. ")
			for _, r := range w.Writes() {
				if r.Verb == "delete" {
					w.Failf("The password in Secret vault/db was changed, and not its type. The controller deleted the copy shop/db to create it again: a Pod that starts in between does not find it.")
				}
			}
		}},
		check.Scene{Name: "the API server refuses all changes for a while", Play: func(w *check.World) {
			for _, status := range []int{500, 422} {
				w.Given(namespace("vault"), namespace("shop", Sync), secret("vault", "db", "one", Sync))
				controller := start(w)
				for _, verb := range []string{"create", "update", "patch"} {
					w.Inject(fmt.Sprintf("verb=%s,resource=secrets,refuse=%d", verb, status))
				}
				edit(w, "vault", "db", func(s *corev1.Secret) { s.Data["password"] = []byte("two") })
				w.Never(5*time.Minute, func() bool { return !w.Exists("secrets", "shop", "db") },
					"The password in Secret vault/db was changed, and the API server refused to create and to change Secrets with %d. Now the copy shop/db is gone.", status)
				w.Heal()
				w.Advance(30 * time.Minute) // more than the backoff of the last failure
				expect(w, "shop", "db", "two", "The API server refused all changes for five minutes, and worked again for half an hour. ")
				controller.Stop()
			}
		}},
		check.Scene{Name: "a copy is replaced before it is deleted", Play: func(w *check.World) {
			w.Given(namespace("vault"), namespace("shop", Sync), secret("vault", "db", "one", Sync))
			controller := start(w)
			controller.Stop()
			recreate(w, "db", "two")
			w.Before("delete", "secrets", func() {
				w.Delete("secrets", "shop", "db")
				w.Given(secret("shop", "db", "mine"))
			})
			start(w)
			expect(w, "shop", "db", "mine", "Secret vault/db was recreated with another type. Right before its old copy was deleted, a user replaced that by a Secret of that name. ")
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

// newType is the type that recreate gives to a Secret.
const newType = "example.com/database"

// recreate deletes a Secret of namespace vault, and creates it with another type and this password.
func recreate(w *check.World, name, password string) {
	w.Delete("secrets", "vault", name)
	source := secret("vault", name, password, Sync)
	source.Type = newType
	w.Given(source)
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

// expectType fails the check if the copy of a Secret that was recreated does not have its new type.
func expectType(w *check.World, name, why string) {
	if got := check.Must(w.Client.CoreV1().Secrets("shop").Get(context.Background(), name, metav1.GetOptions{})).Type; got != newType {
		w.Failf("%sA minute later, its copy shop/%s has type %s instead of %s.", why, name, got, newType)
	}
}
