//go:build exercise

package wholecopy

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
		check.Scene{Name: "the source is owned by another object", Play: func(w *check.World) {
			source := secret("vault", "db", "one", Sync)
			source.Annotations[corev1.LastAppliedConfigAnnotation] = `{"data":{"password":"last year"}}`
			source.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Database", Name: "db", UID: "4711"}}
			source.Finalizers = []string{"example.com/database"}
			source.Labels = map[string]string{"example.com/database": "db"}
			w.Given(namespace("vault"), namespace("shop", Sync), source)
			start(w)
			expect(w, "shop", "db", "one", "Secret vault/db is to be copied to namespace shop. ")
			c := check.Must(w.Client.CoreV1().Secrets("shop").Get(context.Background(), "db", metav1.GetOptions{}))
			if len(c.OwnerReferences) > 0 {
				w.Failf("The source vault/db is owned by a Database in namespace vault, and the copy shop/db says that it is owned by that Database, too. There is none in namespace shop, so the garbage collector deletes the copy.")
			}
			if text := c.Annotations[corev1.LastAppliedConfigAnnotation]; text != "" {
				w.Failf("The copy shop/db has the annotation last-applied-configuration of its source, with an old password in it.")
			}
			if len(c.Finalizers) > 0 {
				w.Failf("The source vault/db has a finalizer, and the copy shop/db has it, too. Whoever removes it from the source knows nothing of the copy, so the copy cannot be deleted.")
			}
			if _, ok := c.Labels["example.com/database"]; ok {
				w.Failf("The source vault/db has a label by which an operator finds its Secrets, and the copy shop/db has it, too. The operator takes the copy for one of its own.")
			}
		}},
		check.Scene{Name: "an annotation of the source tells another controller what to do", Play: func(w *check.World) {
			source := secret("vault", "db", "one", Sync)
			source.Annotations["example.com/rotate-every"] = "30d"
			w.Given(namespace("vault"), namespace("shop", Sync), source)
			start(w)
			c := check.Must(w.Client.CoreV1().Secrets("shop").Get(context.Background(), "db", metav1.GetOptions{}))
			if _, ok := c.Annotations["example.com/rotate-every"]; ok {
				w.Failf("An annotation of the source vault/db asks another controller to give it a new password every 30 days, and the copy shop/db has it, too. That controller now gives the copy another password than the source.")
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
