//go:build exercise

package tooearly

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
		check.Scene{Name: "the list of the sources is slow", Play: func(w *check.World) {
			w.Inject("verb=list,resource=secrets,namespace=vault,delay=30s", "verb=watch,resource=secrets,namespace=vault,delay=30s")
			start(w)
			notDeleted(w, "It took half a minute to list the sources in namespace vault.")
			orphanDeleted(w)
		}},
		check.Scene{Name: "the sources cannot be listed", Play: func(w *check.World) {
			w.Inject("verb=list,resource=secrets,namespace=vault,refuse=500", "verb=watch,resource=secrets,namespace=vault,refuse=500")
			start(w)
			for range 5 {
				notDeleted(w, "The API server could not list the sources in namespace vault.")
			}
			w.Heal()
			w.Advance(time.Minute)
			if w.Exists("secrets", "shop", "old") {
				w.Failf("For five minutes, the API server could not list the sources in namespace vault. Another minute later, the copy shop/old, whose source was deleted, is still there.")
			}
		}},
		check.Scene{Name: "a source is deleted", Play: func(w *check.World) {
			start(w)
			w.Advance(time.Minute)
			orphanDeleted(w)
			w.Delete("secrets", "vault", "mail")
			w.Advance(time.Minute)
			if w.Exists("secrets", "shop", "mail") {
				w.Failf("Secret vault/mail was deleted. A minute later, its copy shop/mail is still there.")
			}
			if !w.Exists("secrets", "shop", "db") {
				w.Failf("The copy shop/db was deleted, although its source vault/db exists.")
			}
		}},
		check.Scene{Name: "the list of the copies is slow", Play: func(w *check.World) {
			w.Inject("verb=list,resource=secrets,namespace=shop,delay=30s", "verb=watch,resource=secrets,namespace=shop,delay=30s")
			start(w)
			notDeleted(w, "It took half a minute to list the copies in namespace shop.")
			orphanDeleted(w)
			w.Delete("secrets", "vault", "mail")
			w.Heal()
			w.Advance(time.Minute)
			if w.Exists("secrets", "shop", "mail") {
				w.Failf("Secret vault/mail was deleted. A minute later, its copy shop/mail is still there.")
			}
		}},
	)
}

func notDeleted(w *check.World, why string) {
	w.Never(time.Minute, func() bool { return !w.Exists("secrets", "shop", "db") || !w.Exists("secrets", "shop", "mail") },
		"%s The controller deleted copies in namespace shop, although all of their sources exist.", why)
}

func orphanDeleted(w *check.World) {
	if w.Exists("secrets", "shop", "old") {
		w.Failf("The source of the copy shop/old was deleted while the controller was down. A minute after its start, the copy is still there.")
	}
}

// start starts the controller in a world with two sources and their copies, and one copy without a source.
func start(w *check.World) {
	for _, name := range []string{"db", "mail"} {
		w.Given(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vault", Name: name}})
		w.Given(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{CopyOf: name}}})
	}
	w.Given(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "old", Labels: map[string]string{CopyOf: "old"}}})
	w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return (&Controller{Client: client, From: "vault", To: "shop"}).Run(ctx)
	})
}
