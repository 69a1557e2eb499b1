package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The lessons' controllers, each in its own namespace.
func TestControllers(t *testing.T) {
	t.Run("1", func(t *testing.T) { t.Parallel(); testNaiveLoop(t) })
	t.Run("2", func(t *testing.T) { t.Parallel(); testInformer(t) })
	t.Run("3", func(t *testing.T) { t.Parallel(); testWorkqueue(t) })
	t.Run("4", func(t *testing.T) { t.Parallel(); testNetworkController(t) })
}

func testNaiveLoop(t *testing.T) {
	f := newFrontend(t, "naive-loop", "01-naive-loop")
	f.change("good morning")
	// The Node of the controller's Pod comes from the downward API, and its labels from the API server.
	node := f.controllerPod().Spec.NodeName
	require.Contains(t, f.log(), fmt.Sprintf(`"Own Node" node=%q`, node))

	f.scaleController(0)
	f.changeAnd("good evening", func() { f.scaleController(1) })
}

// Lesson 2 loses changes that are made while its controller is down, so it gets none.
func testInformer(t *testing.T) {
	f := newFrontend(t, "informer", "02-informer")
	f.change("good morning")
}

func testWorkqueue(t *testing.T) {
	f := newFrontend(t, "workqueue", "03-workqueue")
	f.change("good morning")
	pod := f.controllerPod()
	metrics := kubectl(t, "get", "--raw", "/api/v1/namespaces/workqueue/pods/"+pod.Name+":8080/proxy/metrics")
	require.Contains(t, metrics, "workqueue_adds_total")

	f.scaleController(0)
	require.NotContains(t, f.podNames("app=workqueue"), pod.Name)
	f.changeAnd("good evening", func() { f.scaleController(1) })
}

// frontend is a lesson's controller in a namespace with the frontend that it manages.
type frontend struct {
	t         *testing.T
	namespace string // also the name of the controller's Deployment, and of its label app
}

func newFrontend(t *testing.T, namespace, lesson string) *frontend {
	t.Helper()
	f := &frontend{t, namespace}
	install(t, namespace, lesson+"/manifests")
	kubectl(t, "apply", "--namespace="+namespace, "-f", lesson+"/frontend.yaml")
	for _, name := range []string{namespace, "frontend"} {
		kubectl(t, "rollout", "status", "deployment/"+name, "--namespace="+namespace, "--timeout=3m")
	}
	eventually(t, "wait for the controller", func(context.Context) string {
		if strings.Contains(f.log(), "Caches synced") || strings.Contains(f.log(), "Current state") {
			return ""
		}
		return "its log is:\n" + f.log()
	})
	return f
}

// change changes the config, and waits until all Pods are newer.
func (f *frontend) change(greeting string) {
	f.t.Helper()
	f.changeAnd(greeting, func() {})
}

// changeAnd changes the config, calls then, and waits until all Pods are newer, and as many as before.
func (f *frontend) changeAnd(greeting string, then func()) {
	f.t.Helper()
	before := f.podNames("app=frontend")
	kubectl(f.t, "patch", "configmap", "frontend-config", "--namespace="+f.namespace, "--type=merge", "--patch", fmt.Sprintf(`{"data":{"greeting":%q}}`, greeting))
	then()
	eventually(f.t, "wait for newer Pods", func(context.Context) string {
		for _, pod := range f.podNames("app=frontend") {
			if slices.Contains(before, pod) {
				return pod + " is still there"
			}
		}
		return ""
	})
	kubectl(f.t, "rollout", "status", "deployment/frontend", "--namespace="+f.namespace, "--timeout=3m")
	require.Zero(f.t, f.controllerPod().Status.ContainerStatuses[0].RestartCount, "the controller has crashed")
}

// scaleController scales the controller's Deployment, and waits until that many of its Pods exist and are ready.
func (f *frontend) scaleController(replicas int) {
	f.t.Helper()
	kubectl(f.t, "scale", "deployment/"+f.namespace, "--namespace="+f.namespace, fmt.Sprintf("--replicas=%d", replicas))
	eventually(f.t, "scale the controller", func(context.Context) string {
		if n := len(f.podNames("app=" + f.namespace)); n != replicas {
			return fmt.Sprintf("it has %d Pods", n)
		}
		return ""
	})
	kubectl(f.t, "rollout", "status", "deployment/"+f.namespace, "--namespace="+f.namespace, "--timeout=3m")
}

// podNames returns the names of the Pods with a label.
func (f *frontend) podNames(selector string) []string {
	f.t.Helper()
	var names []string
	for _, pod := range pods(f.t, f.namespace, selector) {
		names = append(names, pod.Name)
	}
	return names
}

// controllerPod returns the controller's Pod.
func (f *frontend) controllerPod() *corev1.Pod {
	f.t.Helper()
	all := pods(f.t, f.namespace, "app="+f.namespace)
	require.Len(f.t, all, 1)
	return &all[0]
}

func (f *frontend) log() string {
	f.t.Helper()
	return kubectl(f.t, "logs", "deployment/"+f.namespace, "--namespace="+f.namespace)
}

func pods(t *testing.T, namespace, selector string) []corev1.Pod {
	t.Helper()
	list, err := world.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	require.NoError(t, err)
	return list.Items
}

func testNetworkController(t *testing.T) {
	const namespace = "network-controller"
	kubectl(t, "apply", "-f", "e2e/manifests/openstack")
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_, err := tryKubectl(ctx, "delete", "--ignore-not-found", "--wait=false", "-f", "e2e/manifests/openstack", "-f", "04-crd/manifests/samplecrd.k8s.io_networks.yaml")
		require.NoError(t, err)
	})
	kubectl(t, "apply", "-f", "04-crd/manifests/samplecrd.k8s.io_networks.yaml")
	kubectl(t, "wait", "--for=condition=Established", "-f", "04-crd/manifests/samplecrd.k8s.io_networks.yaml", "--timeout=3m")
	install(t, namespace, "04-crd/manifests")
	t.Cleanup(func() { // before the namespace and the controller are deleted
		_, err := tryKubectl(context.WithoutCancel(t.Context()), "delete", "networks", "--all", "--namespace="+namespace, "--timeout=2m")
		require.NoError(t, err)
	})
	kubectl(t, "rollout", "status", "deployment/neutron", "--namespace=openstack", "--timeout=3m")
	kubectl(t, "rollout", "status", "deployment/network-controller", "--namespace="+namespace, "--timeout=3m")

	inCloud := func() string {
		subnets, err := world.client.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/openstack/services/neutron:9696/proxy/v2.0/subnets").
			SetHeader("X-User-Id", "e2e").SetHeader("X-Project-Id", "workshop").DoRaw(t.Context())
		require.NoError(t, err, "%s", subnets)
		return string(subnets)
	}
	kubectl(t, "apply", "--namespace="+namespace, "-f", "04-crd/example-network.yaml")
	kubectl(t, "wait", "--namespace="+namespace, "--for=condition=Ready", "network/example-network", "--timeout=3m")
	require.Contains(t, inCloud(), `"192.168.0.1"`)

	kubectl(t, "patch", "--namespace="+namespace, "network", "example-network", "--type=merge", "--patch", `{"spec":{"gateway":"192.168.0.254"}}`)
	kubectl(t, "wait", "--namespace="+namespace, "--for=jsonpath={.status.observedGeneration}=2", "network/example-network", "--timeout=3m")
	require.Contains(t, inCloud(), `"192.168.0.254"`)
	eventually(t, "wait for the Event", func(context.Context) string {
		events := kubectl(t, "get", "events", "--namespace="+namespace, "--field-selector=involvedObject.name=example-network")
		if strings.Contains(events, "Ready") {
			return ""
		}
		return events
	})

	kubectl(t, "delete", "--namespace="+namespace, "network", "example-network", "--timeout=3m")
	require.NotContains(t, inCloud(), "192.168.0.")
}
