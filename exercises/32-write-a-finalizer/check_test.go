//go:build exercise

package writeafinalizer

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/exercise/check"
	"example.com/controllers/harness/exercise/cloud"
)

func TestExercise(t *testing.T) {
	check.Run(t,
		check.Scene{Name: "a network is created, changed and deleted", Play: func(w *check.World) {
			c := start(w, network("10.0.0.0/24"))
			expect(w, c, "10.0.0.0/24", "ConfigMap net/blue was created. ")
			change(w, func(n *corev1.ConfigMap) { n.Data["cidr"] = "10.2.0.0/24" })
			expect(w, c, "10.2.0.0/24", "ConfigMap net/blue was changed. ")
			w.Delete("configmaps", "net", "blue")
			expect(w, c, "", "ConfigMap net/blue was deleted. ")
			gone(w, "ConfigMap net/blue was deleted. ")
		}},
		check.Scene{Name: "a network is deleted while the controller is down", Play: func(w *check.World) {
			c := start(w, network("10.0.0.0/24"))
			c.controller.Stop()
			w.Delete("configmaps", "net", "blue")
			c.run(w)
			expect(w, c, "", "ConfigMap net/blue was deleted while the controller was down. ")
			gone(w, "ConfigMap net/blue was deleted while the controller was down. ")
		}},
		check.Scene{Name: "the controller is killed as soon as the network exists", Play: func(w *check.World) {
			c := begin(w, network("10.0.0.0/24"))
			w.Eventually(time.Minute, func() bool { return c.CIDR("blue") != "" }, "ConfigMap net/blue was created. A minute later, there is no network.")
			if n := get(w); !slices.Contains(n.Finalizers, Finalizer) {
				w.Failf("Network blue exists in the cloud, and ConfigMap net/blue has no finalizer. If the controller dies now and the ConfigMap is deleted, the network stays.")
			}
		}},
		check.Scene{Name: "the cloud cannot delete the network for a while", Play: func(w *check.World) {
			c := start(w, network("10.0.0.0/24"))
			c.SetDown(true)
			w.Delete("configmaps", "net", "blue")
			w.Advance(10 * time.Minute)
			if !w.Exists("configmaps", "net", "blue") {
				w.Failf("ConfigMap net/blue is gone, and its network could not be deleted. Nobody will delete it now.")
			}
			c.SetDown(false)
			w.Advance(30 * time.Minute)
			expect(w, c, "", "The cloud could not delete network blue for ten minutes, and works again. ")
			gone(w, "The cloud could not delete network blue for ten minutes, and works again. ")
		}},
		check.Scene{Name: "somebody else has a finalizer, too", Play: func(w *check.World) {
			n := network("10.0.0.0/24")
			n.Finalizers = []string{"example.com/audit"}
			c := start(w, n)
			w.Delete("configmaps", "net", "blue")
			expect(w, c, "", "ConfigMap net/blue was deleted. ")
			if !w.Exists("configmaps", "net", "blue") {
				w.Failf("ConfigMap net/blue had somebody else's finalizer, example.com/audit. It is gone, and nobody but its owner may remove that.")
			}
			before, writes := c.Calls(), len(w.Writes())
			change(w, func(n *corev1.ConfigMap) { n.Data["cidr"] = "10.2.0.0/24" })
			w.Advance(time.Hour)
			if c.CIDR("blue") != "" {
				w.Failf("ConfigMap net/blue is being deleted and only waits for somebody else's finalizer. The controller created its network again.")
			}
			if c.Calls() > before+2 {
				w.Failf("ConfigMap net/blue is being deleted and only waits for somebody else's finalizer. The controller called the cloud %d times in an hour.", c.Calls()-before)
			}
			if count := len(w.Writes()) - writes; count > 2 {
				w.Failf("ConfigMap net/blue is being deleted and only waits for somebody else's finalizer. The controller tried to change it %d times in an hour.", count)
			}
			change(w, func(n *corev1.ConfigMap) { n.Finalizers = nil })
			gone(w, "All finalizers of ConfigMap net/blue were removed. ")
		}},
		check.Scene{Name: "somebody else adds a finalizer, and the watch is late", Play: func(w *check.World) {
			c := &world{Cloud: cloud.New(w)}
			c.run(w)
			w.Advance(time.Second)
			w.Inject("verb=watch,resource=configmaps,late=5m")
			w.Server.CutWatches("configmaps") // so that the next one is late
			w.Advance(time.Minute)
			w.Given(network("10.0.0.0/24"))
			w.Advance(time.Minute)
			change(w, func(n *corev1.ConfigMap) { n.Finalizers = append(n.Finalizers, "example.com/audit") })
			w.Advance(4*time.Minute + 30*time.Second) // the controller knows of the ConfigMap, and not of the other finalizer
			if n := get(w); !slices.Contains(n.Finalizers, "example.com/audit") {
				w.Failf("Somebody else added the finalizer example.com/audit to ConfigMap net/blue a minute after it was created. The watch was five minutes late, and the controller removed that finalizer.")
			}
			w.Advance(15 * time.Minute)
			expect(w, c, "10.0.0.0/24", "The watch was five minutes late. ")
		}},
		check.Scene{Name: "the API server refuses the finalizer at first", Play: func(w *check.World) {
			w.Inject("verb=update,resource=configmaps,refuse=500", "verb=patch,resource=configmaps,refuse=500")
			c := start(w, network("10.0.0.0/24"))
			if c.CIDR("blue") != "" {
				w.Failf("The API server refused for a minute to add the finalizer to ConfigMap net/blue. Its network was created without it. If the ConfigMap is deleted now while the controller is down, the network stays.")
			}
			w.Heal()
			w.Advance(10 * time.Minute) // more than the backoff of the last failure
			expect(w, c, "10.0.0.0/24", "The API server refused for a minute to add the finalizer, and works again. ")
			if n := get(w); !slices.Contains(n.Finalizers, Finalizer) {
				w.Failf("The API server refused for a minute to add the finalizer. Network blue exists in the cloud, and its ConfigMap has no finalizer.")
			}
		}},
		check.Scene{Name: "the API server refuses to remove the finalizer at first", Play: func(w *check.World) {
			c := start(w, network("10.0.0.0/24"))
			w.Inject("verb=update,resource=configmaps,nth=1-3,refuse=500", "verb=patch,resource=configmaps,nth=1-3,refuse=500")
			w.Delete("configmaps", "net", "blue")
			w.Advance(5 * time.Minute)
			expect(w, c, "", "The API server refused three times to remove the finalizer, and works again. ")
			gone(w, "The API server refused three times to remove the finalizer, and works again. ")
		}},
		check.Scene{Name: "the controller is stopped while the cloud does not answer", Play: func(w *check.World) {
			c := begin(w, network("10.0.0.0/24"))
			c.SetSlow(time.Hour)
			w.Advance(time.Minute)
			c.controller.Stop()
			c.SetSlow(time.Second)
			c.run(w)
			expect(w, c, "10.0.0.0/24", "The controller was stopped while the cloud did not answer, and was started again. ")
			c.SetSlow(time.Hour)
			w.Delete("configmaps", "net", "blue")
			w.Advance(time.Minute)
			c.controller.Stop()
			c.SetSlow(time.Second)
			c.run(w)
			expect(w, c, "", "The controller was stopped while the cloud did not answer, and was started again. ")
			gone(w, "The controller was stopped while the cloud did not answer, and was started again. ")
		}},
	)
}

type world struct {
	*cloud.Cloud
	controller *check.Process
}

func network(cidr string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "net", Name: "blue"}, Data: map[string]string{"cidr": cidr}}
}

func begin(w *check.World, n *corev1.ConfigMap) *world {
	c := &world{Cloud: cloud.New(w)}
	w.Given(n)
	c.run(w)
	return c
}

func start(w *check.World, n *corev1.ConfigMap) *world {
	c := begin(w, n)
	w.Advance(time.Minute)
	return c
}

func (c *world) run(w *check.World) {
	c.controller = w.Start(func(ctx context.Context, client kubernetes.Interface) error {
		return (&Controller{Client: client, Namespace: "net", Cloud: c.Cloud}).Run(ctx)
	})
}

func get(w *check.World) *corev1.ConfigMap {
	return check.Must(w.Client.CoreV1().ConfigMaps("net").Get(context.Background(), "blue", metav1.GetOptions{}))
}

func change(w *check.World, change func(*corev1.ConfigMap)) {
	n := get(w)
	change(n)
	check.Must(w.Client.CoreV1().ConfigMaps("net").Update(context.Background(), n, metav1.UpdateOptions{}))
}

// expect fails the check if the network does not have this CIDR within a minute; "" means no network.
func expect(w *check.World, c *world, cidr, why string) {
	w.Advance(time.Minute)
	switch got := c.CIDR("blue"); {
	case got == cidr:
	case cidr == "":
		w.Failf("%sA minute later, its network is still in the cloud.", why)
	case got == "":
		w.Failf("%sA minute later, there is no network.", why)
	default:
		w.Failf("%sA minute later, its network has %s instead of %s.", why, got, cidr)
	}
}

func gone(w *check.World, why string) {
	w.Advance(time.Minute)
	if w.Exists("configmaps", "net", "blue") {
		w.Failf("%sIts network has been deleted, and the ConfigMap still exists.", why)
	}
}
