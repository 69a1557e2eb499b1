//go:build exercise

package gonealready

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/exercise/check"
)

func TestExercise(t *testing.T) {
	check.Run(t,
		check.Scene{Name: "all listed ConfigMaps exist", Play: func(w *check.World) {
			w.Given(configMap(ListName, "blue green red"), configMap("blue", ""), configMap("green", ""), configMap("red", ""), configMap("white", ""))
			start(w)
			w.Advance(10 * time.Minute)
			expect(w, map[string]bool{"blue": false, "green": false, "red": false, "white": true}, "")
		}},
		check.Scene{Name: "one of them is gone already", Play: func(w *check.World) {
			w.Given(configMap(ListName, "blue green red"), configMap("green", ""), configMap("red", ""), configMap("white", ""))
			start(w)
			w.Advance(10 * time.Minute)
			expect(w, map[string]bool{"green": false, "red": false, "white": true}, "ConfigMap blue, the first in the list, was gone already. ")
			before := w.Errors()
			w.Advance(10 * time.Minute)
			if errs := w.Errors() - before; errs > 0 {
				w.Failf("ConfigMap blue is gone, as it should be. The controller still logged %d errors in ten minutes.", errs)
			}
			if names := check.Must(w.Client.CoreV1().ConfigMaps("shop").Get(context.Background(), ListName, metav1.GetOptions{})).Data["names"]; names != "blue green red" {
				w.Failf("ConfigMap blue was gone already. The list in ConfigMap retired, which belongs to the users, was %q, and the controller has changed it to %q.", "blue green red", names)
			}
			w.Given(configMap("blue", ""))
			w.Advance(10 * time.Minute)
			expect(w, map[string]bool{"blue": false}, "ConfigMap blue was gone already, and somebody created it again. ")
		}},
		check.Scene{Name: "the API server refuses one request", Play: func(w *check.World) {
			w.Given(configMap(ListName, "blue green red"), configMap("green", ""), configMap("red", ""), configMap("white", ""))
			w.Inject("verb=delete,resource=configmaps,name=green,nth=1,refuse=500")
			start(w)
			w.Advance(10 * time.Minute)
			expect(w, map[string]bool{"green": false, "red": false, "white": true}, "The API server refused to delete ConfigMap green once. ")
		}},
		check.Scene{Name: "the API server refuses to delete for ten minutes", Play: func(w *check.World) {
			w.Given(configMap(ListName, "green"), configMap("green", ""))
			w.Inject("verb=delete,resource=configmaps,refuse=403")
			start(w)
			w.Advance(10 * time.Minute)
			if w.Errors() == 0 {
				w.Failf("For ten minutes, the API server has refused to delete ConfigMap green. The controller has logged no error.")
			}
			w.Heal()
			w.Advance(10 * time.Minute)
			expect(w, map[string]bool{"green": false}, "The API server refused to delete ConfigMap green for ten minutes, and then allowed it. ")
		}},
		check.Scene{Name: "a policy protects one of them", Play: func(w *check.World) {
			w.Given(configMap(ListName, "blue green red"), configMap("blue", ""), configMap("green", ""), configMap("red", ""), configMap("white", ""))
			w.Inject("verb=delete,resource=configmaps,name=blue,refuse=403")
			start(w)
			w.Advance(10 * time.Minute)
			expect(w, map[string]bool{"blue": true, "green": false, "red": false, "white": true}, "The API server refuses to delete ConfigMap blue, the first in the list. ")
			w.Given(configMap("green", ""), configMap("red", ""))
			before := w.Errors()
			w.Advance(10 * time.Minute)
			expect(w, map[string]bool{"green": false, "red": false}, "The API server still refuses to delete ConfigMap blue, and the others were created again. ")
			if w.Errors() == before {
				w.Failf("For ten minutes, the API server has refused to delete ConfigMap blue. The controller has logged no error.")
			}
			w.Heal()
			w.Advance(10 * time.Minute)
			expect(w, map[string]bool{"blue": false}, "The API server refused to delete ConfigMap blue for twenty minutes, and then allowed it. ")
		}},
		check.Scene{Name: "the list cannot be read for ten minutes", Play: func(w *check.World) {
			w.Given(configMap(ListName, "green"), configMap("green", ""))
			w.Inject("verb=get,resource=configmaps,name=retired,refuse=500", "verb=list,resource=configmaps,refuse=500")
			start(w)
			w.Advance(10 * time.Minute)
			if w.Errors() == 0 {
				w.Failf("For ten minutes, the API server has refused to return the list, ConfigMap retired. The controller has logged no error.")
			}
			w.Heal()
			w.Advance(10 * time.Minute)
			expect(w, map[string]bool{"green": false}, "The API server refused to return the list, ConfigMap retired, for ten minutes, and then returned it. ")
		}},
		check.Scene{Name: "one of them cannot be read", Play: func(w *check.World) {
			w.Given(configMap(ListName, "green"), configMap("green", ""))
			w.Inject("verb=get,resource=configmaps,name=green,refuse=500")
			start(w)
			w.Advance(10 * time.Minute) // the controller need not read it; if it does, it must log that it failed
		}},
		check.Scene{Name: "the service of an admission policy is not found", Play: func(w *check.World) {
			w.Given(configMap(ListName, "green"), configMap("green", ""))
			w.StartNamed(check.ControllerName, func(ctx context.Context, config *rest.Config) error {
				config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &noWebhook{RoundTripper: next, w: w} })
				return run(ctx, kubernetes.NewForConfigOrDie(config))
			})
			w.Advance(10 * time.Minute)
			if w.Errors() == 0 {
				w.Failf("For ten minutes, the API server has refused to delete ConfigMap green, because the service of an admission policy was not found. The controller has logged no error.")
			}
		}},
	)
}

func configMap(name, names string) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	if names != "" {
		c.Data = map[string]string{"names": names}
	}
	return c
}

func start(w *check.World) {
	w.Start(run)
}

func run(ctx context.Context, client kubernetes.Interface) error {
	return (&Cleaner{Client: client, Namespace: "shop", Interval: time.Minute}).Run(ctx)
}

// noWebhook refuses deletions as an API server does whose admission webhook has no service.
type noWebhook struct {
	http.RoundTripper
	w *check.World
}

func (n *noWebhook) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodDelete {
		return n.RoundTripper.RoundTrip(r)
	}
	n.w.Say("the API server refuses a deletion with 500: the service of a webhook is not found")
	status := apierrors.NewInternalError(errors.New(`failed calling webhook "policy.example.com": service "policy" not found`)).Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	body, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		Status: "500 Internal Server Error", StatusCode: http.StatusInternalServerError, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r,
	}, nil
}

// expect fails the check if a ConfigMap exists that should not, or the other way round. why is the first sentence.
func expect(w *check.World, exists map[string]bool, why string) {
	for _, name := range []string{"blue", "green", "red", "white"} {
		want, ok := exists[name]
		switch got := w.Exists("configmaps", "shop", name); {
		case !ok || got == want:
		case got:
			w.Failf("%sTen minutes later, ConfigMap %s has not been deleted, although it is in the list.", why, name)
		default:
			w.Failf("%sConfigMap %s was deleted, although it is not in the list.", why, name)
		}
	}
}
