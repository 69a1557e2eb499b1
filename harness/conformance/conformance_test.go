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

// guard is how long a wait may take before it counts as hanging. No test expects a duration.
const guard = 2 * time.Minute

func TestMain(m *testing.M) {
	// The tests wait for the cluster, hardly ever for a processor, so many run at once. A -parallel on
	// the command line is read later and wins.
	if err := flag.Set("test.parallel", "32"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// world is the cluster as one test sees it.
type world struct {
	cluster   *cluster.Cluster
	client    kubernetes.Interface
	namespace string // of this test alone
	machines  int    // that it has added
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c, err := cluster.Shared()
	require.NoError(t, err)
	client, err := c.Client()
	require.NoError(t, err)
	created, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "conformance-"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	w := &world{cluster: c, client: client, namespace: created.Name}
	w.cleanup(t, func(ctx context.Context) error {
		return client.CoreV1().Namespaces().Delete(ctx, w.namespace, metav1.DeleteOptions{})
	})
	// A Pod is refused before its ServiceAccount is there.
	exists(t, client.CoreV1().ServiceAccounts(w.namespace), "default")
	return w
}

// cleanup removes something at the end of the test; that it is gone already is fine.
func (w *world) cleanup(t *testing.T, remove func(context.Context) error) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), guard)
		defer cancel()
		if err := remove(ctx); err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("clean up: %v", err)
		}
	})
}

// ownMark is the key of the label and the taint of a test's own machines. The value is the test's
// namespace: nobody else's Pods select the one or tolerate the other.
const ownMark = "conformance.controllers.example.com/test"

func (w *world) ownTaint() corev1.Taint {
	return corev1.Taint{Key: ownMark, Value: w.namespace, Effect: corev1.TaintEffectNoSchedule}
}

// addMachine adds a machine for Pods of this test alone and waits until it is Ready.
func (w *world) addMachine(t *testing.T) (name string) {
	t.Helper()
	w.machines++
	name = fmt.Sprintf("%s-%d", w.namespace, w.machines)
	node := machine.Node(name, w.cluster.Version)
	node.Labels[ownMark] = w.namespace
	node.Spec.Taints = []corev1.Taint{w.ownTaint()}
	_, err := w.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	require.NoError(t, err)
	w.cleanup(t, func(ctx context.Context) error { return w.discard(ctx, name) })
	w.becomesReady(t, name)
	return name
}

// discard removes a machine with the Pods on it, which would be Terminating for a minute otherwise.
func (w *world) discard(ctx context.Context, name string) error {
	if err := machine.Remove(ctx, w.client, name); err != nil {
		return err
	}
	pods, err := w.client.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + name})
	if err != nil {
		return err
	}
	for _, pod := range pods.Items {
		err := w.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0))
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// podSpec is a Pod's that may run on any Node.
func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "simulated:1"}}}
}

// ownPodSpec is a Pod's that runs on this test's own machines.
func (w *world) ownPodSpec() corev1.PodSpec {
	spec := podSpec()
	spec.NodeSelector = map[string]string{ownMark: w.namespace}
	spec.Tolerations = []corev1.Toleration{{Key: ownMark, Value: w.namespace, Effect: corev1.TaintEffectNoSchedule}}
	return spec
}

// createPod creates a Pod and waits until it runs.
func (w *world) createPod(t *testing.T, name string, spec corev1.PodSpec) *corev1.Pod {
	t.Helper()
	_, err := w.client.CoreV1().Pods(w.namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       spec,
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return becomes(t, w.client.CoreV1().Pods(w.namespace), name, "Ready", podReady)
}

// livePods returns the Pods of the test's namespace that are not on their way out.
func (w *world) livePods(ctx context.Context, selector string) ([]corev1.Pod, error) {
	all, err := w.client.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
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

// getter is a typed client of client-go.
type getter[T any] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
}

// becomes waits until the object is as wanted and returns it as it was then. how says what is wanted.
func becomes[T metav1.Object](t *testing.T, from getter[T], name, how string, ok func(T) bool) T {
	t.Helper()
	var object T
	eventually(t, func(ctx context.Context) error {
		var err error
		if object, err = from.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if !ok(object) {
			object.SetManagedFields(nil) // for the reader
			text, err := json.Marshal(object)
			if err != nil {
				return err
			}
			return fmt.Errorf("%s is not %s: %s", name, how, text)
		}
		return nil
	})
	return object
}

// exists waits until the object is there.
func exists[T metav1.Object](t *testing.T, from getter[T], name string) T {
	t.Helper()
	return becomes(t, from, name, "there", func(T) bool { return true })
}

// isGone waits until the object is not there any more.
func isGone[T any](t *testing.T, from getter[T], name string) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		_, err := from.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("%s is still there", name)
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// eventually waits until check has nothing to object to.
func eventually(t *testing.T, check func(ctx context.Context) error) {
	t.Helper()
	var objection error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, guard, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if ctx.Err() == nil {
			objection = err
		}
		return err == nil, nil
	})
	require.NoError(t, err, "the last objection: %v", objection)
}
