//go:build exercise

package emptylist

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/exercise/check"
	"example.com/controllers/harness/history"
)

func TestExercise(t *testing.T) {
	check.Run(t,
		check.Scene{Name: "copies are created, and deleted with their source", Play: func(w *check.World) {
			w.Given(secret("vault", "db"), secret("vault", "mail"))
			start(w)
			w.Advance(10 * time.Second)
			if !w.Exists("secrets", "shop", "db") || !w.Exists("secrets", "shop", "mail") {
				w.Failf("The Secrets db and mail have not been copied from namespace vault to namespace shop.")
			}
			w.Delete("secrets", "vault", "mail")
			w.Advance(10 * time.Minute)
			if w.Exists("secrets", "shop", "mail") {
				w.Failf("Secret vault/mail was deleted, and ten minutes later its copy shop/mail is still there.")
			}
			w.Delete("secrets", "vault", "db")
			w.Advance(10 * time.Minute)
			if w.Exists("secrets", "shop", "db") {
				w.Failf("Secret vault/db, the last source, was deleted, and ten minutes later its copy shop/db is still there.")
			}
		}},
		check.Scene{Name: "the sources cannot be listed", Play: func(w *check.World) {
			w.Given(secret("vault", "db"), secret("vault", "mail"))
			w.Inject("verb=list,resource=secrets,namespace=vault,nth=2-,refuse=500,for=150s")
			start(w)
			w.Advance(10 * time.Second)
			w.Never(3*time.Minute, func() bool { return !w.Exists("secrets", "shop", "db") },
				"The API server could not list the Secrets in namespace vault for a while. The controller deleted their copies in namespace shop, although no source was deleted.")
			w.Delete("secrets", "vault", "mail")
			w.Advance(10 * time.Minute)
			if w.Exists("secrets", "shop", "mail") {
				w.Failf("After the lists had failed for a while, Secret vault/mail was deleted. Ten minutes later, its copy shop/mail is still there.")
			}
		}},
		check.Scene{Name: "the sources cannot be listed, for other reasons", Play: func(w *check.World) {
			w.Given(secret("vault", "db"))
			start(w)
			w.Advance(10 * time.Second)
			for _, fault := range []string{"refuse=403", "refuse=404", "refuse=429", "refuse=503", "refuse=504", "lost=request"} {
				w.Inject("verb=list,resource=secrets,namespace=vault,"+fault, "verb=get,resource=secrets,namespace=vault,"+fault)
				keeps(w, "db", "The API server could not say which Secrets are in namespace vault (%s). The controller deleted their copies in namespace shop, although no source was deleted.", fault)
				w.Heal()
			}
		}},
		check.Scene{Name: "the controller is restarted while the sources cannot be listed", Play: func(w *check.World) {
			w.Given(secret("vault", "db"))
			copier := start(w)
			w.Advance(10 * time.Second)
			copier.Stop()
			w.Inject("verb=list,resource=secrets,namespace=vault,refuse=403", "verb=get,resource=secrets,namespace=vault,refuse=403")
			start(w)
			keeps(w, "db", "The controller was restarted while it was forbidden to list the Secrets in namespace vault. It deleted their copies in namespace shop, although no source was deleted.")
		}},
		check.Scene{Name: "there are Secrets that are no copies", Play: func(w *check.World) {
			w.Given(secret("vault", "db"), secret("vault", "tls"))
			w.Given(secret("shop", "private"))
			mine := secret("shop", "tls")
			mine.Data = map[string][]byte{"password": []byte("mine")}
			w.Given(mine)
			start(w)
			keeps(w, "private", "Secret shop/private is no copy. The controller deleted it.")
			mine, err := w.Client.CoreV1().Secrets("shop").Get(w.T.Context(), "tls", metav1.GetOptions{})
			if err != nil || string(mine.Data["password"]) != "mine" {
				w.Failf("There was a Secret shop/tls, which is no copy, when vault/tls was to be copied. The controller replaced it.")
			}
			w.Delete("secrets", "vault", "tls")
			keeps(w, "tls", "Secret vault/tls was deleted. The controller deleted its namesake shop/tls, which is no copy.")
		}},
		check.Scene{Name: "a copy cannot be created", Play: func(w *check.World) {
			w.Given(secret("vault", "db"))
			w.Inject("verb=create,resource=secrets,namespace=shop,refuse=403")
			start(w)
			w.Advance(10 * time.Minute)
		}},
		check.Scene{Name: "there are many Secrets", Play: func(w *check.World) {
			for i := range 501 {
				source, copied := secret("vault", fmt.Sprintf("s-%03d", i)), secret("shop", fmt.Sprintf("s-%03d", i))
				copied.Labels = map[string]string{CopyOf: copied.Name}
				w.Given(source, copied)
			}
			start(w)
			keeps(w, "s-500", "There are 501 Secrets in namespace vault, and 501 copies. The controller deleted a copy, although no source was deleted.")
		}},
	)
}

// keeps fails the check if a Secret in namespace shop is deleted within five minutes, even if it is created again.
func keeps(w *check.World, name, format string, args ...any) {
	w.Advance(5 * time.Minute)
	isDeleted := func(r history.Request) bool { return r.Verb == "delete" && r.Name == name && !r.Failed() }
	if slices.ContainsFunc(w.Writes(), isDeleted) || !w.Exists("secrets", "shop", name) {
		w.Failf(format, args...)
	}
}

func secret(namespace, name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{"password": []byte("x")}}
}

func start(w *check.World) *check.Process {
	return w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return (&Copier{Client: client, From: "vault", To: "shop", Interval: time.Minute}).Run(ctx)
	})
}
