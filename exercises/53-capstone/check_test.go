//go:build exercise

package capstone

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/exercise/check"
)

func TestExercise(t *testing.T) {
	check.Run(t,
		check.Scene{Name: "a Deployment asks for a Service", Play: func(w *check.World) {
			w.Given(deployment("web", "8080"))
			start(w)
			expect(w, "web", 8080, "Deployment shop/web asks for a Service with port 8080. ")
			service := get(w, "web")
			if owner := metav1.GetControllerOf(service); owner == nil || owner.APIVersion != "apps/v1" || owner.Kind != "Deployment" || owner.Name != "web" {
				w.Failf("Service shop/web does not say that Deployment shop/web is its controller. When the Deployment is deleted, the Service stays.")
			}
			w.Given(deployment("api", "9090"))
			expect(w, "api", 9090, "Deployment shop/api was created and asks for a Service with port 9090. ")
		}},
		check.Scene{Name: "a Deployment asks for none", Play: func(w *check.World) {
			w.Given(deployment("web", ""))
			start(w)
			expect(w, "web", 0, "Deployment shop/web does not ask for a Service. ")
		}},
		check.Scene{Name: "the annotation is added, changed and removed", Play: func(w *check.World) {
			w.Given(deployment("web", ""))
			start(w)
			w.Given(deployment("web", "8080"))
			expect(w, "web", 8080, "The annotation of Deployment shop/web was added, with port 8080. ")
			w.Given(deployment("web", "8081"))
			expect(w, "web", 8081, "The annotation of Deployment shop/web was changed to port 8081. ")
			w.Given(deployment("web", ""))
			expect(w, "web", 0, "The annotation of Deployment shop/web was removed. ")
		}},
		check.Scene{Name: "somebody changes and deletes the Service", Play: func(w *check.World) {
			w.Given(deployment("web", "8080"))
			start(w)
			expect(w, "web", 8080, "Deployment shop/web asks for a Service with port 8080. ")
			edit(w, "web", func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "wrong"} })
			expect(w, "web", 8080, "Somebody changed the selector of Service shop/web. ")
			edit(w, "web", func(s *corev1.Service) { s.Spec.Selector["version"] = "old" })
			expect(w, "web", 8080, "Somebody added a label to the selector of Service shop/web. ")
			edit(w, "web", func(s *corev1.Service) {
				s.Spec.Ports = []corev1.ServicePort{{Port: 1, TargetPort: intstr.FromInt32(1)}}
			})
			expect(w, "web", 8080, "Somebody changed the port of Service shop/web. ")
			edit(w, "web", func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(1) })
			expect(w, "web", 8080, "Somebody changed the target port of Service shop/web. ")
			edit(w, "web", func(s *corev1.Service) {
				s.Spec.Ports[0].Name = "web"
				s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "debug", Port: 6060})
			})
			expect(w, "web", 8080, "Somebody added a port to Service shop/web. ")
			w.Delete("services", "shop", "web")
			expect(w, "web", 8080, "Somebody deleted Service shop/web. ")
		}},
		check.Scene{Name: "the API server and others add to the Service", Play: func(w *check.World) {
			w.Given(deployment("web", "8080"))
			start(w)
			expect(w, "web", 8080, "Deployment shop/web asks for a Service with port 8080. ")
			edit(w, "web", func(s *corev1.Service) {
				s.Spec.ClusterIP, s.Spec.Type = "10.96.0.7", corev1.ServiceTypeClusterIP
				s.Spec.Ports[0].Protocol, s.Spec.Ports[0].TargetPort = corev1.ProtocolTCP, intstr.FromInt32(8080)
				s.Annotations = map[string]string{"note": "mine"}
				s.Labels = map[string]string{"team": "shop"}
			})
			w.Given(deployment("web", "8081"))
			expect(w, "web", 8081, "The annotation of Deployment shop/web was changed to port 8081. ")
			switch service := get(w, "web"); {
			case service.Spec.ClusterIP != "10.96.0.7":
				w.Failf("The API server had given Service shop/web the cluster IP 10.96.0.7. When the port was changed, the controller removed it.")
			case service.Annotations["note"] != "mine":
				w.Failf("A user had given Service shop/web the annotation note. When the port was changed, the controller removed it.")
			case service.Labels["team"] != "shop":
				w.Failf("A user had given Service shop/web the label team. When the port was changed, the controller removed it.")
			}
		}},
		check.Scene{Name: "nothing changes", Play: func(w *check.World) {
			w.Given(deployment("web", "8080"), deployment("api", ""))
			start(w)
			expect(w, "web", 8080, "Deployment shop/web asks for a Service with port 8080. ")
			edit(w, "web", func(s *corev1.Service) { // as the API server does
				s.Spec.ClusterIP, s.Spec.Type = "10.96.0.7", corev1.ServiceTypeClusterIP
				s.Spec.Ports[0].Protocol, s.Spec.Ports[0].TargetPort = corev1.ProtocolTCP, intstr.FromInt32(8080)
			})
			w.Advance(time.Minute)
			before := len(w.Writes())
			scaled := deployment("web", "8080")
			scaled.Status.ReadyReplicas = 3
			w.Given(scaled)
			w.Advance(time.Hour)
			if after := len(w.Writes()); after > before {
				w.Failf("Service shop/web was right, and only the status of its Deployment changed. The controller wrote %d times.", after-before)
			}
		}},
		check.Scene{Name: "there is a Service of that name already", Play: func(w *check.World) {
			w.Given(own("web"), deployment("web", "8080"))
			other := own("api")
			isController := true
			other.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "App", Name: "api", UID: "4711", Controller: &isController}}
			w.Given(other, deployment("api", "8080"))
			start(w)
			w.Given(deployment("web", ""), deployment("api", ""))
			w.Advance(time.Minute)
			if service := get(w, "web"); service == nil || service.Spec.Ports[0].Port != 443 || len(service.OwnerReferences) > 0 {
				w.Failf("A user had created Service shop/web. The controller changed or deleted it, although it does not belong to Deployment shop/web.")
			}
			if service := get(w, "api"); service == nil || service.Spec.Ports[0].Port != 443 || !slices.EqualFunc(service.OwnerReferences, other.OwnerReferences, func(a, b metav1.OwnerReference) bool { return a.UID == b.UID }) {
				w.Failf("Service shop/api belongs to another object, whose name is api, too. The controller changed or deleted it, although it does not belong to Deployment shop/api.")
			}
		}},
		check.Scene{Name: "the Deployment is an owner of the Service, but not its controller", Play: func(w *check.World) {
			w.Given(deployment("web", ""))
			web := check.Must(w.Client.AppsV1().Deployments("shop").Get(w.T.Context(), "web", metav1.GetOptions{}))
			isController := true
			shared := own("web")
			shared.OwnerReferences = []metav1.OwnerReference{
				{APIVersion: "example.com/v1", Kind: "App", Name: "shop", UID: "4711", Controller: &isController},
				{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: web.UID},
			}
			w.Given(shared)
			start(w)
			for _, port := range []string{"8080", ""} {
				w.Given(deployment("web", port))
				w.Advance(time.Minute)
				if service := get(w, "web"); service == nil || service.Spec.Ports[0].Port != 443 || len(service.OwnerReferences) != 2 {
					w.Failf("App shop is the controller of Service shop/web. Deployment shop/web is only one of its owners, and the controller changed or deleted the Service all the same.")
				}
			}
		}},
		check.Scene{Name: "the Service is replaced while its deletion is on its way", Play: func(w *check.World) {
			w.Given(deployment("web", "8080"))
			start(w)
			expect(w, "web", 8080, "Deployment shop/web asks for a Service with port 8080. ")
			w.Before("delete", "services", func() {
				w.Delete("services", "shop", "web")
				w.Given(own("web"))
			})
			w.Given(deployment("web", ""))
			w.Advance(time.Minute)
			if get(w, "web") == nil {
				w.Failf("The annotation of Deployment shop/web was removed. While the deletion of Service shop/web was on its way, a user deleted the Service and created one of her own. The controller deleted that one.")
			}
		}},
		check.Scene{Name: "the Service that was there already is deleted", Play: func(w *check.World) {
			w.Given(own("web"), deployment("web", "8080"))
			start(w)
			w.Advance(time.Minute)
			w.Delete("services", "shop", "web")
			expect(w, "web", 8080, "A user had created Service shop/web, and deleted it. Deployment shop/web asks for a Service with port 8080. ")
		}},
		check.Scene{Name: "a port is no port", Play: func(w *check.World) {
			w.Given(deployment("a", "http"), deployment("b", "0"), deployment("c", "70000"), deployment("d", ""), deployment("web", "8080"))
			d := deployment("d", "8080")
			d.Annotations[Port] = ""
			w.Given(d)
			start(w)
			expect(w, "web", 8080, "Another Deployment asks for a port that is no number. ")
			for _, name := range []string{"a", "b", "c", "d"} {
				expect(w, name, 0, "Deployment shop/"+name+" asks for a port that is no number from 1 to 65535. ")
			}
			w.Given(deployment("a", "8080"))
			expect(w, "a", 8080, "The port of Deployment shop/a was corrected. ")
		}},
		check.Scene{Name: "the port of an existing Service is mistyped", Play: func(w *check.World) {
			w.Given(deployment("web", "8080"))
			start(w)
			expect(w, "web", 8080, "Deployment shop/web asks for a Service with port 8080. ")
			for i, typo := range []string{"808O", "80820", ""} {
				before := get(w, "web")
				web := deployment("web", "")
				web.Annotations[Port] = typo
				w.Given(web)
				expect(w, "web", before.Spec.Ports[0].Port, fmt.Sprintf("The port of Deployment shop/web was changed to %q by mistake. ", typo))
				corrected := int32(8081 + i)
				w.Given(deployment("web", strconv.Itoa(int(corrected))))
				expect(w, "web", corrected, fmt.Sprintf("The port of Deployment shop/web was changed to %q by mistake, and then to %d. ", typo, corrected))
				if get(w, "web").UID != before.UID {
					w.Failf("The port of Deployment shop/web was changed to %q by mistake, and corrected. Service shop/web was deleted in between, and is another one now.", typo)
				}
			}
		}},
		check.Scene{Name: "each write fails once", Play: func(w *check.World) {
			for _, verb := range []string{"create", "update", "patch", "delete"} {
				w.Inject("verb=" + verb + ",resource=services,nth=1,refuse=500")
			}
			w.Given(deployment("web", "8080"))
			start(w)
			expect(w, "web", 8080, "The API server refused to create Service shop/web once. ")
			w.Given(deployment("web", "8081"))
			expect(w, "web", 8081, "The API server refused to update Service shop/web once. ")
			w.Given(deployment("web", ""))
			expect(w, "web", 0, "The API server refused to delete Service shop/web once. ")
		}},
		check.Scene{Name: "everything changes while the controller is down", Play: func(w *check.World) {
			w.Given(deployment("web", "8080"), deployment("api", ""), deployment("old", "8080"))
			controller := start(w)
			expect(w, "web", 8080, "Deployment shop/web asks for a Service with port 8080. ")
			controller.Stop()
			w.Given(deployment("web", "8081"), deployment("api", "9090"), deployment("old", ""))
			start(w)
			expect(w, "web", 8081, "The annotation of Deployment shop/web was changed to port 8081 while the controller was down. ")
			expect(w, "api", 9090, "The annotation of Deployment shop/api was added while the controller was down. ")
			expect(w, "old", 0, "The annotation of Deployment shop/old was removed while the controller was down. ")
		}},
		check.Scene{Name: "a Service is deleted while the watch is broken", Play: func(w *check.World) {
			w.Given(deployment("web", "8080"))
			start(w)
			expect(w, "web", 8080, "Deployment shop/web asks for a Service with port 8080. ")
			w.BreakWatches("services", func() {
				w.Delete("services", "shop", "web")
				w.Advance(10 * time.Second)
			})
			expect(w, "web", 8080, "Service shop/web was deleted while the watch was broken. ")
		}},
		check.Scene{Name: "the API server is down for a while", Play: func(w *check.World) {
			w.Inject("verb=create,resource=services,refuse=503")
			w.Given(deployment("web", "8080"))
			start(w)
			w.Advance(15 * time.Minute)
			if creates := len(w.Writes()); creates > 200 {
				w.Failf("The API server refused all Services for a quarter of an hour. The controller made %d requests.", creates)
			}
			w.Heal()
			w.Advance(time.Hour)
			expect(w, "web", 8080, "The API server refused all Services for a quarter of an hour. An hour later: ")
		}},
		check.Scene{Name: "the controller is stopped while it creates a Service", Play: func(w *check.World) {
			w.Inject("verb=create,resource=services,delay=10s")
			controller := start(w)
			w.Given(deployment("web", "8080"))
			w.Advance(5 * time.Second)
			controller.Stop()
			if get(w, "web") == nil {
				w.Failf("The controller was asked to stop while it was creating Service shop/web. The creation was cut off, or Run did not wait for it.")
			}
		}},
	)
}

// deployment returns a Deployment that asks for a Service with this port; "" for none.
func deployment(name, port string) *appsv1.Deployment {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: map[string]string{"owner": "ops"}},
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}},
	}
	if port != "" {
		d.Annotations[Port] = port
	}
	return d
}

// own returns a Service that a user has created.
func own(name string) *corev1.Service {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	service.Spec.Ports = []corev1.ServicePort{{Port: 443}}
	return service
}

func start(w *check.World) *check.Process {
	controller := w.Start(func(ctx context.Context, client kubernetes.Interface) error { return Run(ctx, client, "shop") })
	w.Advance(time.Second)
	return controller
}

// get returns a Service, or nil if there is none.
func get(w *check.World, name string) *corev1.Service {
	service, err := w.Client.CoreV1().Services("shop").Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return check.Must(service, err)
}

func edit(w *check.World, name string, change func(*corev1.Service)) {
	service := get(w, name)
	change(service)
	check.Must(w.Client.CoreV1().Services("shop").Update(context.Background(), service, metav1.UpdateOptions{}))
}

// expect fails the check if a Deployment's Service does not have this port within a minute; 0 means no Service.
func expect(w *check.World, name string, port int32, why string) {
	w.Advance(time.Minute)
	service := get(w, name)
	switch {
	case port == 0 && service != nil:
		w.Failf("%sA minute later, there is a Service shop/%s.", why, name)
	case port == 0:
	case service == nil:
		w.Failf("%sA minute later, there is no Service shop/%s.", why, name)
	case len(service.Spec.Ports) != 1 || service.Spec.Ports[0].Port != port:
		w.Failf("%sA minute later, the ports of Service shop/%s are %v; there should be one, %d.", why, name, ports(service), port)
	case service.Spec.Ports[0].TargetPort != (intstr.IntOrString{}) && service.Spec.Ports[0].TargetPort != intstr.FromInt32(port):
		w.Failf("%sA minute later, port %d of Service shop/%s leads to port %s of the Pods.", why, port, name, service.Spec.Ports[0].TargetPort.String())
	case len(service.Spec.Selector) != 1 || service.Spec.Selector["app"] != name:
		w.Failf("%sA minute later, the selector of Service shop/%s is %v; the one of the Deployment is %v.", why, name, service.Spec.Selector, map[string]string{"app": name})
	}
}

func ports(service *corev1.Service) []int32 {
	var numbers []int32
	for _, port := range service.Spec.Ports {
		numbers = append(numbers, port.Port)
	}
	return numbers
}
