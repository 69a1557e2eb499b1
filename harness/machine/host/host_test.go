package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/clustertest"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/machine"
	"example.com/controllers/harness/machine/host"
)

const asAgent = "be-an-agent"

// TestMain makes the test binary the process on a machine if its first argument says so.
func TestMain(m *testing.M) {
	guard.Main()
	if len(os.Args) > 1 && os.Args[1] == asAgent {
		if err := beAgent(os.Args[2]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // or each agent takes a second to end
	os.Exit(m.Run())
}

// beAgent prints what it knows about itself, starts a child and waits for SIGTERM.
func beAgent(node string) error {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	self, err := client.CoreV1().Nodes().Get(context.Background(), os.Getenv("NODE_NAME"), metav1.GetOptions{})
	if err != nil {
		return err
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(context.Background(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		return err
	}
	user := review.Status.UserInfo
	fmt.Printf("agent %s\nbootID %s\nuser %s\nnode of the token %v\nchild %d\n", node, self.Status.NodeInfo.BootID,
		user.Username, user.Extra["authentication.kubernetes.io/node-name"], child.Process.Pid)
	<-terminated
	fmt.Println("terminated")
	return nil
}

// output is what is printed, and can be waited for.
type output struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{} // closed at the next Write
	read    int           // up to where await has read
}

func newOutput() *output { return &output{changed: make(chan struct{})} }

// Write implements io.Writer.
func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.changed)
	o.changed = make(chan struct{})
	return o.text.Write(text)
}

// String implements fmt.Stringer.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// await waits for a line that begins with prefix, after the one that the last await has found, and returns the rest of it.
func (o *output) await(t *testing.T, prefix string) string {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		o.mu.Lock()
		all, changed := o.text.String(), o.changed
		o.mu.Unlock()
		for at := o.read; ; {
			line, _, complete := strings.Cut(all[at:], "\n")
			if !complete {
				break
			}
			at += len(line) + 1
			if rest, ok := strings.CutPrefix(line, prefix); ok {
				o.read = at
				return rest
			}
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("there is no line %q in:\n%s", prefix, all[o.read:])
		}
	}
}

// world is a namespace with machines of the test's own, on which processes run.
type world struct {
	*clustertest.Env
	t           *testing.T
	output, log *output
	stop        func() // and wait until Run has returned
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	return &world{Env: clustertest.New(t), t: t, output: newOutput(), log: newOutput()}
}

// add adds a machine to those that the processes run on.
func (w *world) add(name string) string {
	w.t.Helper()
	name = w.Namespace + "-" + name
	node := machine.Node(name, w.Version)
	node.Labels["test"] = w.Namespace
	node.Spec.Taints = []corev1.Taint{{Key: "test", Value: w.Namespace, Effect: corev1.TaintEffectNoSchedule}}
	_, err := w.Client.CoreV1().Nodes().Create(w.t.Context(), node, metav1.CreateOptions{})
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		if err := machine.Remove(context.Background(), w.Client, name); !apierrors.IsNotFound(err) {
			require.NoError(w.t, err)
		}
	})
	return name
}

func (w *world) node(name string) *corev1.Node {
	w.t.Helper()
	node, err := w.Client.CoreV1().Nodes().Get(w.t.Context(), name, metav1.GetOptions{})
	require.NoError(w.t, err)
	return node
}

// run runs a command on the machines until the end of the test, or until stop.
func (w *world) run(o host.Options) {
	w.t.Helper()
	o.Cluster, o.Selector, o.Output, o.Log = w.Cluster, "test="+w.Namespace, w.output, w.log
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- host.Run(ctx, o) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(w.t, <-ended)
	})
	w.t.Cleanup(w.stop)
}

func agent() []string { return []string{os.Args[0], asAgent, "{node}"} }

// awaitAgent waits until the agent of a machine has started, and returns its boot ID and the process ID of its child.
func (w *world) awaitAgent(name string) (bootID string, child int) {
	w.t.Helper()
	w.output.await(w.t, "["+name+"] agent "+name)
	bootID = w.output.await(w.t, "["+name+"] bootID ")
	child, err := strconv.Atoi(w.output.await(w.t, "["+name+"] child "))
	require.NoError(w.t, err)
	return bootID, child
}

func requireGone(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			return true
		}
		state, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // in a container, nobody may wait for orphans
		return strings.Contains(string(state), ") Z ")
	}, time.Minute, 10*time.Millisecond, "process %d is still running", pid)
}

func TestProcessDiesWithItsMachine(t *testing.T) {
	w := newWorld(t)
	name, other := w.add("a"), w.add("b")
	w.run(host.Options{Command: agent()})
	w.log.await(t, "["+other+"] host.test: started, boot 1")
	w.log.read = 0
	w.log.await(t, "["+name+"] host.test: started, boot 1")
	w.output.await(t, "["+other+"] agent ")
	w.output.read = 0
	bootID, child := w.awaitAgent(name)
	require.Equal(t, w.node(name).Status.NodeInfo.BootID, bootID)

	require.NoError(t, machine.SetPower(t.Context(), w.Client, name, false))
	w.log.await(t, "["+name+"] host.test: killed")
	requireGone(t, child)

	require.NoError(t, machine.SetPower(t.Context(), w.Client, name, true))
	second, child := w.awaitAgent(name)
	require.NotEqual(t, bootID, second)

	require.NoError(t, machine.Remove(t.Context(), w.Client, name))
	w.log.await(t, "["+name+"] host.test: killed")
	requireGone(t, child)

	w.add("a") // another machine with the same name
	third, child := w.awaitAgent(name)
	require.NotEqual(t, second, third)

	w.stop()
	require.Contains(t, w.output.String(), "["+name+"] terminated")
	require.Contains(t, w.output.String(), "["+other+"] terminated")
	require.NotContains(t, w.log.String(), "["+other+"] host.test: killed")
	requireGone(t, child)
}

func TestProcessOfMachineThatRebootsSeesNewBootID(t *testing.T) {
	for _, behavior := range []machine.Behavior{machine.Normal, machine.Fast, machine.SameBootID} {
		t.Run(string(behavior), func(t *testing.T) {
			w := newWorld(t)
			name := w.add("a")
			w.run(host.Options{Command: agent()})
			bootID, child := w.awaitAgent(name)
			require.NoError(t, machine.Reboot(t.Context(), w.Client, name, machine.RebootOptions{Behavior: behavior, BootTime: time.Millisecond}))
			second, _ := w.awaitAgent(name)
			requireGone(t, child)
			require.Equal(t, behavior == machine.SameBootID, bootID == second)
			require.NotContains(t, w.output.String(), "terminated")
			require.Equal(t, 2, strings.Count(w.log.String(), ": started"))
		})
	}
}

// Admission policies can tell from the token on which Node its owner runs.
func TestTokenIsBoundToTheNode(t *testing.T) {
	w := newWorld(t)
	_, err := w.Client.CoreV1().ServiceAccounts(w.Namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "agent"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	bindings := w.Client.RbacV1().ClusterRoleBindings()
	_, err = bindings.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: w.Namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: w.Namespace, Name: "agent"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, bindings.Delete(context.Background(), w.Namespace, metav1.DeleteOptions{})) })

	name := w.add("a")
	w.run(host.Options{Command: agent(), Account: w.Namespace + "/agent", Delay: time.Millisecond})
	require.Equal(t, "system:serviceaccount:"+w.Namespace+":agent", w.output.await(t, "["+name+"] user "))
	require.Equal(t, "["+name+"]", w.output.await(t, "["+name+"] node of the token "))
}

func TestProcessThatEndsIsStartedAgain(t *testing.T) {
	w := newWorld(t)
	name := w.add("a")
	w.run(host.Options{Command: []string{"sh", "-c", "echo for $0 with $EXTRA; exit 3", "{node}"}, Env: []string{"EXTRA=extra-{node}"}, Delay: time.Millisecond})
	for _, delay := range []string{"1ms", "2ms", "4ms"} {
		require.Equal(t, "for "+name+" with extra-"+name, w.output.await(t, "["+name+"] "))
		require.Equal(t, delay, w.log.await(t, "["+name+"] sh: exit status 3; starting it again in "))
	}
}

// A process that has no kubeconfig yet is tried again, like one that has ended.
func TestProcessWithoutAccountIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	name := w.add("a")
	w.run(host.Options{Command: []string{"sh", "-c", "echo started; exec sleep 1000"}, Account: w.Namespace + "/late", Delay: time.Millisecond})
	w.log.await(t, "["+name+"] sh: create a token for ServiceAccount "+w.Namespace+"/late: ")
	_, err := w.Client.CoreV1().ServiceAccounts(w.Namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "late"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	w.output.await(t, "["+name+"] started")
}

func TestRunLeavesNothing(t *testing.T) {
	e := clustertest.New(t)
	w := &world{Env: e, t: t, output: newOutput(), log: newOutput()}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	ignore := goleak.IgnoreCurrent()
	name := w.add("a")
	w.run(host.Options{Command: []string{"sh", "-c", `trap "" TERM; sleep 1000 & echo $!; while true; do sleep 1000; done`}})
	child, err := strconv.Atoi(w.output.await(t, "["+name+"] "))
	require.NoError(t, err)
	w.stop()
	requireGone(t, child)
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left)
	goleak.VerifyNone(t, ignore)
}

func TestRunRefuses(t *testing.T) {
	w := newWorld(t)
	for want, o := range map[string]host.Options{
		"no command to run":                         {},
		"executable file not found":                 {Command: []string{"no-such-program"}},
		`account "x" is not of the form NAMESPACE/`: {Command: []string{"true"}, Account: "x"},
		`selector "a in": `:                         {Command: []string{"true"}, Selector: "a in"},
		"read kubeconfig /nowhere":                  {Command: []string{"true"}, Cluster: &cluster.Cluster{Kubeconfig: "/nowhere"}},
	} {
		if o.Cluster == nil {
			o.Cluster = w.Cluster
		}
		require.ErrorContains(t, host.Run(t.Context(), o), want)
	}
}

// The watch may miss that a machine was off. Then the count of its boots tells.
func TestFollowNoticesEveryBoot(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	noMachine := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "no-machine"}}
	node := machine.Node("a", "v1")
	node.UID = "1"
	off := machine.Node("off", "v1")
	off.Labels[machine.PowerLabel] = "off"
	client := fake.NewClientset(noMachine, node, off)
	calls := make(chan string, 10)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- host.Follow(ctx, client, "", func(node *corev1.Node) {
			calls <- fmt.Sprintf("on %s %d", node.Name, machine.Boots(node))
		}, func(node *corev1.Node) { calls <- "off " + node.Name })
	}()
	require.Equal(t, "on a 1", <-calls)
	// A watch of the fake clientset has no events from before it began.
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(client.Actions(), func(action clienttesting.Action) bool { return action.GetVerb() == "watch" })
	}, time.Minute, time.Millisecond)

	update := func(change func(*corev1.Node)) {
		t.Helper()
		node = node.DeepCopy()
		change(node)
		var err error
		node, err = client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	update(func(node *corev1.Node) { node.Annotations["other"] = "changed" }) // no call
	update(func(node *corev1.Node) { node.Annotations[machine.BootsAnnotation] = "2" })
	require.Equal(t, "off a", <-calls)
	require.Equal(t, "on a 2", <-calls)
	update(func(node *corev1.Node) { node.UID = "2" })
	require.Equal(t, "off a", <-calls)
	require.Equal(t, "on a 2", <-calls)
	update(func(node *corev1.Node) { node.Labels[machine.PowerLabel] = "off" })
	require.Equal(t, "off a", <-calls)
	require.NoError(t, client.CoreV1().Nodes().Delete(ctx, "a", metav1.DeleteOptions{})) // no call
	switchedOn := off.DeepCopy()
	switchedOn.Labels[machine.PowerLabel] = "on"
	_, err := client.CoreV1().Nodes().Update(ctx, switchedOn, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, "on off 1", <-calls)
	cancel()
	require.NoError(t, <-ended)
	require.Empty(t, calls)
	goleak.VerifyNone(t, ignore)
}
