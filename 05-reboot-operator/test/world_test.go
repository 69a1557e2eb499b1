package test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/clustertest"
	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/machine"
	"example.com/controllers/harness/machine/host"
	"example.com/controllers/harness/suite"
	"example.com/controllers/reboot/protocol"
)

func TestMain(m *testing.M) {
	guard.Main()
	os.Exit(m.Run())
}

// world is a control plane of the test's own with machines, because the tests act on its Nodes.
type world struct {
	*clustertest.Env
	t       *testing.T
	program string // kubectl-reboot

	mu       sync.Mutex
	versions []*corev1.Node // every version of every Node, in the API server's order
}

// newWorld starts a control plane with machines, node-0, node-1 and so on, and installs the RBAC rules and the policy.
func newWorld(t *testing.T, machines int) *world {
	t.Helper()
	suite.Long(t, "it starts a control plane")
	t.Parallel()
	program := clustertest.BuildProgram(t, "..", "./cmd/kubectl-reboot")
	c, err := cluster.Start(t.Context(), cluster.Options{Nodes: machines, Progress: io.Discard})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Stop()) })
	w := &world{Env: clustertest.On(t, c), t: t, program: program}
	w.Namespace = "reboot-operator" // the manifests' own
	w.Kubectl("create", "namespace", w.Namespace)
	w.Install("../manifests")
	w.Kubectl("delete", "daemonset/reboot-agent", "deployment/reboot-controller") // they run as processes
	w.record()
	return w
}

// record collects every version of every Node.
func (w *world) record() {
	list, err := w.Client.CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	watcher, err := w.Client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	require.NoError(w.t, err)
	var reading sync.WaitGroup
	reading.Go(func() {
		for event := range watcher.ResultChan() {
			if node, ok := event.Object.(*corev1.Node); ok {
				if event.Type == watch.Deleted {
					node.DeletionTimestamp = new(metav1.Now())
				}
				w.mu.Lock()
				w.versions = append(w.versions, node)
				w.mu.Unlock()
			}
		}
	})
	w.t.Cleanup(func() {
		cancel()
		watcher.Stop()
		reading.Wait()
	})
}

// mostAdmitted returns how many Nodes held a slot, or were rebooted and not Ready yet, at the same time at most, in the
// API server's own order of writes.
func (w *world) mostAdmitted() (most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	unavailable := map[string]bool{}
	for _, node := range w.versions {
		delete(unavailable, node.Name)
		switch phase := protocol.PhaseOf(node); {
		case node.DeletionTimestamp != nil:
		case phase != protocol.Idle && phase != protocol.Needed, !isReady(node):
			unavailable[node.Name] = true
		}
		most = max(most, len(unavailable))
	}
	return most
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// kubeconfig returns the path of a kubeconfig for a ServiceAccount whose token is bound to a Node, or to none if it is "".
func (w *world) kubeconfig(account, node string) string {
	w.t.Helper()
	request := &authenticationv1.TokenRequest{}
	if node != "" {
		bound, err := w.Client.CoreV1().Nodes().Get(w.t.Context(), node, metav1.GetOptions{})
		require.NoError(w.t, err)
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: bound.UID}
	}
	token, err := w.Client.CoreV1().ServiceAccounts(w.Namespace).CreateToken(w.t.Context(), account, request, metav1.CreateOptions{})
	require.NoError(w.t, err)
	config, err := clientcmd.LoadFromFile(w.Cluster.Kubeconfig)
	require.NoError(w.t, err)
	for _, user := range config.AuthInfos {
		*user = clientcmdapi.AuthInfo{Token: token.Status.Token}
	}
	path := filepath.Join(w.t.TempDir(), "kubeconfig")
	require.NoError(w.t, clientcmd.WriteToFile(*config, path))
	return path
}

// client returns a client that authenticates like [world.kubeconfig].
func (w *world) client(account, node string) kubernetes.Interface {
	w.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", w.kubeconfig(account, node))
	require.NoError(w.t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(w.t, err)
	return client
}

// startController starts a controller with its own rights, and waits until it has synced its caches.
func (w *world) startController(args ...string) *clustertest.Running {
	w.t.Helper()
	run := w.startStandby(args...)
	run.AwaitLog("Caches synced")
	return run
}

// startStandby starts a controller that may have to wait for its Lease.
func (w *world) startStandby(args ...string) *clustertest.Running {
	w.t.Helper()
	return clustertest.StartProgram(w.t, w.program, append([]string{"controller", "--kubeconfig", w.kubeconfig("reboot-controller", ""),
		"--namespace", w.Namespace, "--address", "127.0.0.1:0"}, args...)...)
}

// startAgents starts an agent on each machine, with the rights of a Pod there.
func (w *world) startAgents(args ...string) {
	w.t.Helper()
	harness, err := filepath.Abs("../../harness")
	require.NoError(w.t, err)
	workshop, err := gobuild.Build(w.t.Context(), gobuild.Workshop(harness), os.Stderr)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- host.Run(ctx, host.Options{
			Cluster: w.Cluster, Account: w.Namespace + "/reboot-agent", Output: io.Discard,
			Command: append([]string{w.program, "agent", "--address", "127.0.0.1:0", "--boot-id", "node", "--reboot-retry", "10s",
				"--reboot-method", "command", "--reboot-command", workshop + " node reboot {node}"}, args...),
		})
	}()
	w.t.Cleanup(func() {
		cancel()
		require.NoError(w.t, <-ended)
	})
}

// names returns the names of that many machines.
func names(count int) (names []string) {
	for i := range count {
		names = append(names, machine.Name(i))
	}
	return names
}

// reboots sets how long the machines take to reboot, and how.
func (w *world) reboots(behavior machine.Behavior, nodes ...string) {
	w.t.Helper()
	for _, node := range nodes {
		require.NoError(w.t, machine.SetReboots(w.t.Context(), w.Client, node, machine.RebootOptions{Behavior: behavior, BootTime: time.Second}))
	}
}

// annotate sets an annotation of a Node, or removes it if the value is nil.
func (w *world) annotate(node, annotation string, value *string) {
	w.t.Helper()
	text := "null"
	if value != nil {
		text = fmt.Sprintf("%q", *value)
	}
	_, err := w.Client.CoreV1().Nodes().Patch(w.t.Context(), node, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, annotation, text), metav1.PatchOptions{})
	require.NoError(w.t, err)
}

func (w *world) request(nodes ...string) {
	for _, node := range nodes {
		w.annotate(node, protocol.NeededAnnotation, new("kernel"))
	}
}

// node returns a Node.
func (w *world) node(name string) *corev1.Node {
	w.t.Helper()
	node, err := w.Client.CoreV1().Nodes().Get(w.t.Context(), name, metav1.GetOptions{})
	require.NoError(w.t, err)
	return node
}

// becomes waits until a Node is in a phase.
func (w *world) becomes(name string, phase protocol.Phase) {
	w.t.Helper()
	w.Eventually("the phase of "+name, func(ctx context.Context) string {
		node, err := w.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if got := protocol.PhaseOf(node); got != phase {
			return string(got)
		}
		return ""
	})
}

// reaches waits until a Node has been in a phase that it may have left again.
func (w *world) reaches(name string, phase protocol.Phase) {
	w.t.Helper()
	w.Eventually("the phase of "+name, func(context.Context) string {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, node := range w.versions {
			if node.Name == name && protocol.PhaseOf(node) == phase {
				return ""
			}
		}
		return "it has not been " + string(phase)
	})
}

// rebooted waits until machines have been rebooted that often, and are Ready, schedulable and idle.
func (w *world) rebooted(times int, nodes ...string) {
	w.t.Helper()
	for _, name := range nodes {
		w.Eventually("the reboot of "+name, func(ctx context.Context) string {
			node, err := w.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			switch {
			case err != nil:
				return err.Error()
			case machine.Reboots(node) != times || machine.Boots(node) != times+1:
				return fmt.Sprintf("it was rebooted %d times, and is %s", machine.Boots(node)-1, protocol.PhaseOf(node))
			case protocol.PhaseOf(node) != protocol.Idle || node.Spec.Unschedulable || !isReady(node):
				return fmt.Sprintf("%s, unschedulable: %t, ready: %t", protocol.PhaseOf(node), node.Spec.Unschedulable, isReady(node))
			}
			return ""
		})
	}
}

// deploy runs Pods in namespace default, with a PodDisruptionBudget that wants that many of them.
func (w *world) deploy(replicas, available int) {
	w.t.Helper()
	selector := map[string]string{"app": "web"}
	_, err := w.Client.AppsV1().Deployments("default").Create(w.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(replicas)), Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: selector},
				Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(1)), Containers: []corev1.Container{{Name: "web", Image: "nginx:1.29"}}},
			},
		},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	_, err = w.Client.PolicyV1().PodDisruptionBudgets("default").Create(w.t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(int32(available))), Selector: &metav1.LabelSelector{MatchLabels: selector}},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	w.Eventually("the Pods", func(ctx context.Context) string {
		deployment, err := w.Client.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if deployment.Status.AvailableReplicas != int32(replicas) {
			return fmt.Sprintf("%d are available", deployment.Status.AvailableReplicas)
		}
		return ""
	})
	// Until the disruption controller has counted the Pods, the API server refuses evictions for other reasons.
	w.Eventually("the PodDisruptionBudget", func(ctx context.Context) string {
		budget, err := w.Client.PolicyV1().PodDisruptionBudgets("default").Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if budget.Status.ObservedGeneration != budget.Generation || budget.Status.CurrentHealthy != int32(replicas) {
			return fmt.Sprintf("it counts %d healthy Pods", budget.Status.CurrentHealthy)
		}
		return ""
	})
}

// told waits for an Event about a Node, and returns its text.
func (w *world) told(node, reason string) (note string) {
	w.t.Helper()
	w.Eventually("Event "+reason, func(ctx context.Context) string {
		list, err := w.Client.EventsV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "regarding.name=" + node + ",reason=" + reason})
		if err != nil {
			return err.Error()
		}
		if len(list.Items) == 0 {
			return "there is none about " + node
		}
		note = strings.TrimSpace(list.Items[0].Note)
		return ""
	})
	return note
}

// allTold returns the texts of all Events about a Node with that reason, a line each.
func (w *world) allTold(ctx context.Context, node, reason string) string {
	list, err := w.Client.EventsV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "regarding.name=" + node + ",reason=" + reason})
	if err != nil {
		return err.Error()
	}
	var notes []string
	for _, event := range list.Items {
		notes = append(notes, event.Note)
	}
	return strings.Join(notes, "\n")
}

// why returns what "kubectl reboot why" says about a Node.
func (w *world) why(node string) string {
	w.t.Helper()
	output, err := exec.CommandContext(w.t.Context(), w.program, "why", node, "--kubeconfig", w.Cluster.Kubeconfig, "--namespace", w.Namespace).CombinedOutput()
	require.NoError(w.t, err, "%s", output)
	return string(output)
}

// missing returns what is to be reported if a text does not contain another: "" if it does.
func missing(text, want string) string {
	if strings.Contains(text, want) {
		return ""
	}
	return "it does not say " + want + ", but " + text
}
