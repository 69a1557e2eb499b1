package conformance_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/machine"
)

// hangTimeout bounds every wait, so that a test fails instead of hanging. No test expects a duration.
const hangTimeout = 5 * time.Minute

func TestMain(m *testing.M) {
	// The tests mostly wait for the cluster, so many of them can run in parallel. A -parallel flag on the command line
	// is parsed later and overrides this.
	if err := flag.Set("test.parallel", "32"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// testEnv is what a test gets: the shared cluster and a namespace in it.
type testEnv struct {
	cluster   *cluster.Cluster
	client    kubernetes.Interface // a cluster administrator's
	namespace string               // used by this test only, and deleted when it is over
	machines  int                  // how many machines addMachine has added
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	c, err := cluster.Shared()
	require.NoError(t, err)
	client, err := c.Client()
	require.NoError(t, err)
	created, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "conformance-"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	e := &testEnv{cluster: c, client: client, namespace: created.Name}
	e.cleanup(t, func(ctx context.Context) error {
		return client.CoreV1().Namespaces().Delete(ctx, e.namespace, metav1.DeleteOptions{})
	})
	// Until the ServiceAccount exists, the API server refuses to create Pods.
	waitForCreation(t, client.CoreV1().ServiceAccounts(e.namespace), "default")
	return e
}

// cleanup calls remove at the end of the test. remove may return a NotFound error.
func (e *testEnv) cleanup(t *testing.T, remove func(context.Context) error) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hangTimeout)
		defer cancel()
		if err := remove(ctx); err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("clean up: %v", err)
		}
	})
}

// ownKey is the key of a label and a taint of the machines that a test adds. The value of both is the test's namespace,
// so that only Pods of the same test are scheduled there.
const ownKey = "conformance.controllers.example.com/test"

func (e *testEnv) ownTaint() corev1.Taint {
	return corev1.Taint{Key: ownKey, Value: e.namespace, Effect: corev1.TaintEffectNoSchedule}
}

// addMachine adds a machine that only Pods of this test are scheduled on, and waits until it is Ready.
func (e *testEnv) addMachine(t *testing.T) (name string) {
	t.Helper()
	e.machines++
	name = fmt.Sprintf("%s-%d", e.namespace, e.machines)
	node := machine.Node(name, e.cluster.Version)
	node.Labels[ownKey] = e.namespace
	node.Spec.Taints = []corev1.Taint{e.ownTaint()}
	_, err := e.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	require.NoError(t, err)
	e.cleanup(t, func(ctx context.Context) error { return e.removeMachine(ctx, name) })
	e.waitForReadyNode(t, name)
	return name
}

// removeMachine removes a machine and the Pods on it, which would otherwise be Terminating for a minute.
func (e *testEnv) removeMachine(ctx context.Context, name string) error {
	if err := machine.Remove(ctx, e.client, name); err != nil {
		return err
	}
	pods, err := e.client.CoreV1().Pods(e.namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + name})
	if err != nil {
		return err
	}
	for _, pod := range pods.Items {
		err := e.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0))
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// podSpec returns the spec of a Pod for any Node without taints.
func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "simulated:1"}}}
}

// ownPodSpec returns the spec of a Pod for the machines that addMachine has added.
func (e *testEnv) ownPodSpec() corev1.PodSpec {
	spec := podSpec()
	spec.NodeSelector = map[string]string{ownKey: e.namespace}
	spec.Tolerations = []corev1.Toleration{{Key: ownKey, Value: e.namespace, Effect: corev1.TaintEffectNoSchedule}}
	return spec
}

// createPod creates a Pod and waits until it is Ready.
func (e *testEnv) createPod(t *testing.T, name string, spec corev1.PodSpec) *corev1.Pod {
	t.Helper()
	_, err := e.client.CoreV1().Pods(e.namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       spec,
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return waitUntil(t, e.client.CoreV1().Pods(e.namespace), name, "Ready", podReady)
}

// livePods returns the Pods in the test's namespace that match selector and are not being deleted.
func (e *testEnv) livePods(ctx context.Context, selector string) ([]corev1.Pod, error) {
	all, err := e.client.CoreV1().Pods(e.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	var live []corev1.Pod
	for _, pod := range all.Items {
		if pod.DeletionTimestamp == nil {
			live = append(live, pod)
		}
	}
	return live, nil
}

func podReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return pod.Status.Phase == corev1.PodRunning && condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// getter is any typed client of client-go.
type getter[T any] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
}

// waitUntil waits until ok returns true for the object of that name, and returns that object. state describes in the
// failure message what ok checks.
func waitUntil[T metav1.Object](t *testing.T, from getter[T], name, state string, ok func(T) bool) T {
	t.Helper()
	var object T
	eventually(t, func(ctx context.Context) error {
		var err error
		if object, err = from.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if !ok(object) {
			object.SetManagedFields(nil) // which only make the message longer
			text, err := json.Marshal(object)
			if err != nil {
				return err
			}
			return fmt.Errorf("%s is not %s: %s", name, state, text)
		}
		return nil
	})
	return object
}

// waitForCreation waits until the object exists and returns it.
func waitForCreation[T metav1.Object](t *testing.T, from getter[T], name string) T {
	t.Helper()
	return waitUntil(t, from, name, "created", func(T) bool { return true })
}

// waitForDeletion waits until the object does not exist.
func waitForDeletion[T any](t *testing.T, from getter[T], name string) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		_, err := from.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("%s still exists", name)
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// eventually waits until check succeeds. If it does not, the failure message has its last error.
func eventually(t *testing.T, check func(ctx context.Context) error) {
	t.Helper()
	var lastErr error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, hangTimeout, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if ctx.Err() == nil {
			lastErr = err
		}
		return err == nil, nil
	})
	require.NoError(t, err, "the last error: %v", lastErr)
}
