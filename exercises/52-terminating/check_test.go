//go:build exercise

package terminating

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
		check.Scene{Name: "a namespace is being deleted", Play: func(w *check.World) {
			begin(w)
			expect(w, "shop", "db", "one", "Namespace blog is being deleted, and namespace shop is not. ")
			before := len(w.Writes())
			w.Advance(time.Hour)
			tries := 0
			for _, request := range w.Writes()[before:] {
				if request.Namespace == "blog" {
					tries++
				}
			}
			if tries > 0 {
				w.Failf("Namespace blog is being deleted, and the API server creates nothing in it. The controller went on trying: %d times in an hour.", tries)
			}
			blogs := w.Client.CoreV1().Namespaces()
			blog, err := blogs.Get(w.T.Context(), "blog", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				w.Failf("Namespace blog was being deleted, and waited for the finalizer example.com/slow of another controller. The finalizer was removed before that controller had done its work.")
			}
			w.Say("the other controller has done its work and removes its finalizer")
			check.Must(blog, err).Finalizers = nil
			check.Must(blogs.Update(w.T.Context(), blog, metav1.UpdateOptions{}))
			w.Given(namespace("blog", Sync))
			expect(w, "blog", "db", "one", "Namespace blog was deleted, and created again. ")
		}},
		check.Scene{Name: "a source is deleted, and a namespace with a copy is being deleted", Play: func(w *check.World) {
			blog := namespace("blog", Sync)
			blog.Finalizers = []string{"example.com/slow"}
			w.Given(namespace("vault"), blog, secret("vault", "db", "one", Sync), secret("vault", "mail", "one", Sync))
			start(w)
			expect(w, "blog", "db", "one", "Namespace blog has a finalizer, and is not being deleted. ")
			w.Delete("namespaces", "", "blog")
			w.Advance(time.Minute)
			w.Delete("secrets", "vault", "db")
			expect(w, "blog", "db", "", "Secret vault/db was deleted. Namespace blog is being deleted, too, but its Secrets can be read until its last Pod has ended. ")
			expect(w, "blog", "mail", "one", "Namespace blog is being deleted, and its last Pod still uses its Secrets. Secret vault/mail was not deleted. ")
			w.Delete("secrets", "vault", "mail")
			expect(w, "blog", "mail", "", "Secret vault/mail was deleted, too, while namespace blog was still being deleted. ")
		}},
		check.Scene{Name: "one namespace refuses for another reason", Play: func(w *check.World) {
			w.Given(namespace("vault"), namespace("blog", Sync), namespace("shop", Sync), secret("vault", "db", "one", Sync))
			w.Inject("verb=create,resource=secrets,namespace=blog,refuse=403")
			start(w)
			expect(w, "shop", "db", "one", "The API server refuses Secrets in namespace blog, because of a quota. ")
			w.Heal()
			w.Say("the quota is raised")
			w.Advance(time.Hour)
			expect(w, "blog", "db", "one", "The API server refused Secrets in namespace blog for two minutes. ")
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

// begin starts the controller in a world in which namespace blog is being deleted.
func begin(w *check.World) {
	blog := namespace("blog", Sync)
	blog.Finalizers = []string{"example.com/slow"}
	w.Given(namespace("vault"), blog, namespace("shop", Sync), secret("vault", "db", "one", Sync))
	w.Delete("namespaces", "", "blog")
	start(w)
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
