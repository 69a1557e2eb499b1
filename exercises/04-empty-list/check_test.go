//go:build exercise

package emptylist

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/exercise/check"
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
	)
}

func secret(namespace, name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{"password": []byte("x")}}
}

func start(w *check.World) {
	w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return (&Copier{Client: client, From: "vault", To: "shop", Interval: time.Minute}).Run(ctx)
	})
}
