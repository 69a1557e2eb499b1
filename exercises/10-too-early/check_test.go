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
			w.Advance(15 * time.Minute) // more than the backoff after five minutes of failures
			if w.Exists("secrets", "shop", "old") {
				w.Failf("For five minutes, the API server could not list the sources in namespace vault. A quarter of an hour later, the copy shop/old, whose source was deleted, is still there.")
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
		check.Scene{Name: "the list of the sources is slow, and none of them can be read", Play: func(w *check.World) {
			w.Inject("verb=list,resource=secrets,namespace=vault,delay=30s", "verb=watch,resource=secrets,namespace=vault,delay=30s",
				"verb=get,resource=secrets,namespace=vault,refuse=500")
			start(w)
			notDeleted(w, "It took half a minute to list the sources in namespace vault, and the API server refused every request for a single one.")
			w.Heal()
			w.Advance(15 * time.Minute)
			if w.Exists("secrets", "shop", "old") {
				w.Failf("The sources in namespace vault could not be read for a minute. A quarter of an hour later, the copy shop/old, whose source was deleted, is still there.")
			}
		}},
		check.Scene{Name: "there are no sources", Play: func(w *check.World) {
			w.Given(secret("shop", "old", "old"), secret("shop", "private", ""))
			run(w)
			w.Advance(time.Minute)
			orphanDeleted(w)
			if !w.Exists("secrets", "shop", "private") {
				w.Failf("Secret shop/private is no copy: it has no label that says so. The controller deleted it.")
			}
		}},
		check.Scene{Name: "the controller is stopped while the sources cannot be listed", Play: func(w *check.World) {
			w.Inject("verb=list,resource=secrets,namespace=vault,refuse=503", "verb=watch,resource=secrets,namespace=vault,refuse=503")
			controller := start(w)
			w.Advance(time.Minute)
			controller.Stop()
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

// secret returns a Secret; copyOf is "" if it is no copy.
func secret(namespace, name, copyOf string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if copyOf != "" {
		s.Labels = map[string]string{CopyOf: copyOf}
	}
	return s
}

// start starts the controller in a world with two sources and their copies, and one copy without a source.
func start(w *check.World) *check.Process {
	for _, name := range []string{"db", "mail"} {
		w.Given(secret("vault", name, ""), secret("shop", name, name))
	}
	w.Given(secret("shop", "old", "old"))
	return run(w)
}

func run(w *check.World) *check.Process {
	return w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return (&Controller{Client: client, From: "vault", To: "shop"}).Run(ctx)
	})
}
