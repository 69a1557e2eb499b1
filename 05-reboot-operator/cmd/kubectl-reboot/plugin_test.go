package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"example.com/controllers/reboot"
	"example.com/controllers/reboot/internal/nodetest"
	"example.com/controllers/reboot/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var testTime = time.Date(2024, 11, 20, 12, 0, 0, 0, time.UTC)

// node returns a ready Node with annotations "name=value", of which the prefix is left out.
func node(name string, annotations ...string) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": name[:1]}, Annotations: map[string]string{}},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{BootID: fmt.Sprintf("%08d-2fa1-11d2-883f-0016d3cca427", len(name))},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, annotation := range annotations {
		key, value, _ := strings.Cut(annotation, "=")
		node.Annotations[protocol.Prefix+key] = value
	}
	return node
}

func cordoned(node *corev1.Node) *corev1.Node {
	node.Spec.Unschedulable = true
	return node
}

func notReady(node *corev1.Node) *corev1.Node {
	node.Status.Conditions[0].Status = corev1.ConditionUnknown
	return node
}

func before(d time.Duration) string { return testTime.Add(-d).Format(time.RFC3339) }

// ledger returns a ledger in which a controller has published its flags.
func ledger(namespace string, data ...string) *corev1.ConfigMap {
	controller := controllerCommand(&controllerFlags{})
	flags, err := json.Marshal(publishedValues(controller.Flags()))
	if err != nil {
		panic(err)
	}
	configMap := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "reboot-ledger"},
		Data:       map[string]string{"flags": string(flags)},
	}
	for _, entry := range data {
		key, value, _ := strings.Cut(entry, "=")
		configMap.Data[key] = value
	}
	return configMap
}

// pod returns a Pod of a ReplicaSet.
func pod(name, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, Labels: map[string]string{"app": name},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "rs", Controller: new(true)}},
	}, Spec: corev1.PodSpec{NodeName: node}}
}

// budget returns a PodDisruptionBudget that allows no disruption.
func budget(app string) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: app},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
	}
}

// forbid answers a request as RBAC does.
func forbid(action clienttesting.Action) (bool, runtime.Object, error) {
	return true, nil, apierrors.NewForbidden(action.GetResource().GroupResource(), "", errors.New("RBAC says no"))
}

// buffer may be read while a command writes to it.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// start runs a command against a client.
func start(ctx context.Context, client kubernetes.Interface, stdout, stderr *buffer, args ...string) error {
	root := &cobra.Command{
		Use: "kubectl-reboot", SilenceErrors: true, SilenceUsage: true,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl reboot"},
	}
	connect := func(*genericclioptions.ConfigFlags) (kubernetes.Interface, error) { return client, nil }
	root.AddCommand(pluginCommands(connect, func() time.Time { return testTime })...)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return root.ExecuteContext(ctx)
}

// run runs a command to its end.
func run(t *testing.T, client kubernetes.Interface, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	var out, errOut buffer
	err = start(t.Context(), client, &out, &errOut, args...)
	return out.String(), errOut.String(), err
}

// fleet is a cluster with a Node in each phase.
func fleet() []runtime.Object {
	return []runtime.Object{
		node("a", "last-attempt="+before(time.Hour)),
		cordoned(node("b", "reboot-needed=new kernel", "admitted="+before(time.Minute), "since="+before(time.Minute))),
		cordoned(node("c", "reboot-now=", "admitted="+before(time.Minute), "since="+before(10*time.Second))),
		notReady(cordoned(node("d", "reboot-in-progress=99999999-2fa1-11d2-883f-0016d3cca427", "admitted="+before(time.Minute), "since="+before(20*time.Second)))),
		node("e", "reboot-needed=", "failures=1", "last-attempt="+before(time.Minute)),
		node("f", "reboot-needed="),
		node("g"),
		pod("web", "b"), budget("web"),
	}
}

func TestStatusTable(t *testing.T) {
	stdout, stderr, err := run(t, fake.NewClientset(append(fleet(), ledger("default"))...), "status")
	require.NoError(t, err)
	require.Empty(t, stderr)
	require.Equal(t, `NODE   PHASE        SINCE       BOOT-BEFORE   BOOT-ID    WAITING FOR
d      InProgress   20s ago     99999999      00000001   the machine to come back
c      Approved     10s ago     <none>        00000001   the agent
b      Draining     60s ago     <none>        00000001   Pod shop/web (PodDisruptionBudget web allows no disruption)
f      Needed       <unknown>   <none>        00000001   a free slot
e      Needed       60s ago     <none>        00000001   a free slot
a      Idle         60m ago     <none>        00000001   <none>
g      Idle         <none>      <none>        00000001   <none>
`, stdout)
}

func TestStatusSelection(t *testing.T) {
	client := fake.NewClientset(append(fleet(), ledger("default"))...)
	const header = "NODE   PHASE    SINCE       BOOT-BEFORE   BOOT-ID    WAITING FOR\n"
	const row = "f      Needed   <unknown>   <none>        00000001   a free slot\n"
	for _, args := range [][]string{{"f"}, {"node/f"}, {"-l", "pool=f"}, {"f", "f"}} {
		stdout, stderr, err := run(t, client, append([]string{"status"}, args...)...)
		require.NoError(t, err)
		require.Empty(t, stderr)
		require.Equal(t, header+row, stdout)
	}
	stdout, _, err := run(t, client, "status", "f", "x", "y")
	require.EqualError(t, err, "node \"x\" not found\nnode \"y\" not found")
	require.Equal(t, header+row, stdout)
	stdout, stderr, err := run(t, fake.NewClientset(), "status")
	require.NoError(t, err)
	require.Empty(t, stdout)
	require.Equal(t, "The cluster has no Nodes.\n", stderr)
}

func TestStatusFormats(t *testing.T) {
	client := fake.NewClientset(append(fleet(), ledger("default", "paused=true"))...)
	stdout, stderr, err := run(t, client, "status", "b", "f", "-o", "json")
	require.NoError(t, err)
	require.Equal(t, "ConfigMap default/reboot-ledger: reboots are paused; \"kubectl reboot resume\" resumes them.\n", stderr)
	require.JSONEq(t, `{
		"apiVersion": "reboot.controllers.example.com/v1", "kind": "NodeRebootStatusList", "paused": true,
		"items": [
			{"name": "b", "phase": "Draining", "since": "2024-11-20T11:59:00Z", "why": "new kernel", "bootID": "00000001-2fa1-11d2-883f-0016d3cca427",
			 "ready": true, "unschedulable": true, "waitingFor": "Pod shop/web (PodDisruptionBudget web allows no disruption)"},
			{"name": "f", "phase": "Needed", "bootID": "00000001-2fa1-11d2-883f-0016d3cca427",
			 "ready": true, "unschedulable": false, "waitingFor": "kubectl reboot resume", "decision": "Paused", "queuePosition": 1}
		]}`, stdout)

	stdout, _, err = run(t, client, "status", "-o", `jsonpath={.items[*].phase}`)
	require.NoError(t, err)
	require.Equal(t, "InProgress Approved Draining Needed Needed Idle Idle", stdout)

	stdout, _, err = run(t, client, "status", "g", "-o", "yaml")
	require.NoError(t, err)
	require.Equal(t, `apiVersion: reboot.controllers.example.com/v1
items:
- bootID: 00000001-2fa1-11d2-883f-0016d3cca427
  name: g
  phase: Idle
  ready: true
  unschedulable: false
kind: NodeRebootStatusList
paused: true
`, stdout)

	stdout, _, err = run(t, client, "status", "b", "-o", "wide")
	require.NoError(t, err)
	require.Equal(t, `NODE   PHASE      SINCE     BOOT-BEFORE   BOOT-ID    WAITING FOR                                                   READY   CORDONED   FAILURES   REASON
b      Draining   60s ago   <none>        00000001   Pod shop/web (PodDisruptionBudget web allows no disruption)   true    true       0          new kernel
`, stdout)

	stdout, _, err = run(t, fake.NewClientset(), "status", "-o", "json")
	require.NoError(t, err)
	require.JSONEq(t, `{"apiVersion": "reboot.controllers.example.com/v1", "kind": "NodeRebootStatusList", "items": []}`, stdout)
}

// Whoever may read nothing but Nodes still sees them.
func TestStatusWithFewRights(t *testing.T) {
	client := fake.NewClientset(append(fleet(), ledger("default", "paused=true"))...)
	for _, resource := range []string{"configmaps", "pods", "events", "leases", "poddisruptionbudgets"} {
		client.PrependReactor("*", resource, forbid)
	}
	stdout, stderr, err := run(t, client, "status")
	require.NoError(t, err)
	require.Equal(t, `Warning: look for the ledger reboot-ledger in all namespaces (--namespace names one): configmaps is forbidden: RBAC says no; cannot tell whether reboots are paused, nor what limits the controller has
Warning: cannot tell which Pods are left: list the Pods of Node b: pods is forbidden: RBAC says no
`, stderr)
	require.Equal(t, `NODE   PHASE        SINCE       BOOT-BEFORE   BOOT-ID    WAITING FOR
d      InProgress   20s ago     99999999      00000001   the machine to come back
c      Approved     10s ago     <none>        00000001   the agent
b      Draining     60s ago     <none>        00000001   its Pods to be evicted
e      Needed       60s ago     <none>        00000001   the controller to admit it
f      Needed       <unknown>   <none>        00000001   the controller to admit it
a      Idle         60m ago     <none>        00000001   <none>
g      Idle         <none>      <none>        00000001   <none>
`, stdout)

	client.PrependReactor("list", "nodes", forbid)
	_, _, err = run(t, client, "status")
	require.EqualError(t, err, "list the Nodes: nodes is forbidden: RBAC says no")
}

func TestWhy(t *testing.T) {
	lease := func(renewed time.Duration) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "reboot-controller"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("c-1"), LeaseDurationSeconds: new(int32(15)), RenewTime: &metav1.MicroTime{Time: testTime.Add(-renewed)}},
		}
	}
	event := func(kind, name, reason, note string, ago time.Duration) *eventsv1.Event {
		return &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: strings.ToLower(kind + "." + name + "." + reason + "." + ago.String())},
			Regarding:  corev1.ObjectReference{Kind: kind, Name: name}, Reason: reason, Note: note, EventTime: metav1.MicroTime{Time: testTime.Add(-ago)},
		}
	}
	repeated := event("Node", "e", "AgentTimeout", "Not rebooted; no agent", time.Hour)
	repeated.Series = &eventsv1.EventSeries{Count: 3, LastObservedTime: metav1.MicroTime{Time: testTime.Add(-30 * time.Second)}}
	pool := ledger("default", `flags={"max-unavailable":"100%"}`)
	pool.Name = "pool"
	poolsLease := lease(time.Hour)
	poolsLease.Name = "reboot-controller.pool"
	gaveUp := event("Node", "e", "DrainTimeout", "Not rebooted; next attempt in 5m0s: Pod shop/web cannot be evicted", time.Minute)
	for _, test := range []struct {
		name    string
		objects []runtime.Object
		args    []string
		want    string
		stderr  string
	}{
		{"idle", []runtime.Object{ledger("default"), lease(time.Hour)}, []string{"g"}, "Nobody has asked for a reboot of Node g; \"kubectl reboot request g\" does.\n", ""},
		{"needed", []runtime.Object{ledger("default"), lease(time.Second)}, []string{"f"}, `Node f needs a reboot, but is not admitted now: 3 of 7 Nodes are unavailable; --max-unavailable is 1.
Unavailable: b (Draining), c (Approved), d (InProgress).
It is number 1 of the 2 Nodes that wait.
`, ""},
		{"with another limit", []runtime.Object{ledger("default"), lease(time.Second)}, []string{"f", "--max-unavailable", "50%"}, `Nothing keeps Node f from being rebooted now; it waits for the controller to admit it.
It is number 1 of the 2 Nodes that wait.
`, ""},
		{"the controller is gone", []runtime.Object{ledger("default", `flags={"max-unavailable":"50%"}`), lease(time.Hour)}, []string{"f"}, `Nothing keeps Node f from being rebooted now; it waits for the controller to admit it.
It is number 1 of the 2 Nodes that wait.
No controller is running: c-1 last renewed Lease default/reboot-controller 60m ago.
`, ""},
		{"no controller so far", nil, []string{"f"}, `Node f needs a reboot and waits for the controller to admit it.
There is no ledger reboot-ledger: no controller has run, or it has another --ledger or --namespace.
`, ""},
		{"unknown limits", []runtime.Object{ledger("default", "flags=null")}, []string{"f"}, `Node f needs a reboot and waits for the controller to admit it.
The controller has not published its limits in the ledger; to take them into account, repeat its flags, such as --max-unavailable.
`, ""},
		{"given up", []runtime.Object{ledger("default", `flags={"max-unavailable":"50%"}`), gaveUp}, []string{"e"}, `Node e needs a reboot, but is not admitted now: 4 of 7 Nodes are unavailable; --max-unavailable is 50%.
Unavailable: b (Draining), c (Approved), d (InProgress), f (next).
It is number 2 of the 2 Nodes that wait.
Its last attempt ended without a reboot.
DrainTimeout, 60s ago: Not rebooted; next attempt in 5m0s: Pod shop/web cannot be evicted
`, ""},
		{"given up, and other Events", []runtime.Object{
			ledger("default", `flags={"max-unavailable":"100%"}`), gaveUp, event("Pod", "e", "DrainTimeout", "of a Pod", 0), event("Node", "f", "DrainTimeout", "of another Node", 0),
			event("Node", "e", "Approved", "of another kind", 0), event("Node", "e", "AgentTimeout", "older", time.Hour),
		}, []string{"e"}, `Nothing keeps Node e from being rebooted now; it waits for the controller to admit it.
It is number 2 of the 2 Nodes that wait.
Its last attempt ended without a reboot.
DrainTimeout, 60s ago: Not rebooted; next attempt in 5m0s: Pod shop/web cannot be evicted
`, ""},
		{"given up, and an older Event that was repeated since", []runtime.Object{ledger("default", `flags={"max-unavailable":"100%"}`), gaveUp, repeated}, []string{"e"}, `Nothing keeps Node e from being rebooted now; it waits for the controller to admit it.
It is number 2 of the 2 Nodes that wait.
Its last attempt ended without a reboot.
AgentTimeout, 30s ago: Not rebooted; no agent
`, ""},
		{"only the controller of a pool is gone", []runtime.Object{pool, lease(time.Second), poolsLease}, []string{"f", "--ledger=pool"}, `Nothing keeps Node f from being rebooted now; it waits for the controller to admit it.
It is number 1 of the 2 Nodes that wait.
No controller is running: c-1 last renewed Lease default/reboot-controller.pool 60m ago.
`, ""},
		{"an Event of an earlier request", []runtime.Object{ledger("default", `flags={"max-unavailable":"100%"}`), event("Node", "f", "DrainTimeout", "earlier", 0)}, []string{"f"}, `Nothing keeps Node f from being rebooted now; it waits for the controller to admit it.
It is number 1 of the 2 Nodes that wait.
`, ""},
		{"the API server refuses it", []runtime.Object{ledger("default", `flags={"max-unavailable":"100%"}`), event("Node", "f", "AdmissionRefused", "Not rebooting now: hands off", time.Minute)}, []string{"f"}, `Nothing keeps Node f from being rebooted now; it waits for the controller to admit it.
It is number 1 of the 2 Nodes that wait.
AdmissionRefused, 60s ago: Not rebooting now: hands off
`, ""},
		{"a Pod forbids it", []runtime.Object{ledger("default", `flags={"max-unavailable":"100%","blocking-pods":"app=db"}`), pod("db", "f")}, []string{"f"}, `Node f needs a reboot, but is not admitted now: Pod shop/db blocks it.
It is number 1 of the 2 Nodes that wait.
`, ""},
		{"unknown limits, and one of mine", []runtime.Object{ledger("default", "flags=null")}, []string{"f", "--max-unavailable", "4"}, `Nothing keeps Node f from being rebooted now; it waits for the controller to admit it.
It is number 1 of the 2 Nodes that wait.
`, ""},
		{"drained", []runtime.Object{ledger("default"), event("Node", "b", "DrainWaiting", "known from the Pods", 0)}, []string{"b"}, `Node b was admitted 60s ago and is being drained.
The drain waits for Pod shop/web (PodDisruptionBudget web allows no disruption).
At 2024-11-20T12:29:00Z, after --drain-timeout 30m, the controller gives up, uncordons it and retries later.
`, ""},
		{"in progress", []runtime.Object{ledger("default", `flags={"reboot-timeout":"10s"}`), lease(time.Hour)}, []string{"d"}, `The reboot of Node d has been in progress since 2024-11-20T11:59:40Z (20s ago), and ends when its agent sees a boot ID other than "99999999-2fa1-11d2-883f-0016d3cca427".
The Node is not ready: the machine is down, or still starting.
That is longer than --reboot-timeout 10s: check the machine. The Node keeps its slot; if the machine is gone for good, delete the Node.
`, ""},
		{"the API server refused an earlier attempt", []runtime.Object{ledger("default", `flags={"max-unavailable":"100%"}`),
			node("h", "reboot-needed=", "last-attempt="+before(30*time.Second)), event("Node", "h", "AdmissionRefused", "Not rebooting now: hands off", time.Minute)}, []string{"h"}, `Nothing keeps Node h from being rebooted now; it waits for the controller to admit it.
It is number 3 of the 3 Nodes that wait.
`, ""},
		{"flags of another version", []runtime.Object{ledger("default", `flags={"max-unavailable":"50%","unknown":"1","drain-timeout":"soon"}`)}, []string{"f"}, `Nothing keeps Node f from being rebooted now; it waits for the controller to admit it.
It is number 1 of the 2 Nodes that wait.
`, "Warning: the controller's --drain-timeout, which is \"soon\", is not understood here: time: invalid duration \"soon\"\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			stdout, stderr, err := run(t, fake.NewClientset(append(fleet(), test.objects...)...), append([]string{"why"}, test.args...)...)
			require.NoError(t, err)
			require.Equal(t, test.want, stdout)
			require.Equal(t, test.stderr, stderr)
		})
	}
}

// Without the right to list Pods, the last Event says what a drain waits for.
func TestWhyWithFewRights(t *testing.T) {
	client := fake.NewClientset(append(fleet(), ledger("default", `flags={"max-unavailable":"100%","blocking-pods":"app=db"}`), &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b.1"}, Regarding: corev1.ObjectReference{Kind: "Node", Name: "b"},
		Reason: "DrainWaiting", Note: "Pod shop/web cannot be evicted", EventTime: metav1.MicroTime{Time: testTime.Add(-time.Minute)},
	})...)
	client.PrependReactor("list", "pods", forbid)
	stdout, stderr, err := run(t, client, "why", "b")
	require.NoError(t, err)
	require.Contains(t, stdout, "DrainWaiting, 60s ago: Pod shop/web cannot be evicted\n")
	require.Contains(t, stderr, "Warning: cannot tell which Pods forbid reboots: pods is forbidden: RBAC says no\n")
	client.PrependReactor("list", "events", forbid)
	stdout, stderr, err = run(t, client, "why", "b")
	require.NoError(t, err)
	require.NotContains(t, stdout, "DrainWaiting")
	require.Contains(t, stderr, "Warning: cannot tell what the last Event says: events.events.k8s.io is forbidden: RBAC says no\n")
}

func TestPublishedFlagsComeBack(t *testing.T) {
	controller := controllerCommand(&controllerFlags{})
	require.NoError(t, controller.Flags().Parse([]string{
		"--max-unavailable=25%", "--node-selector=pool in (a,b)", "--reboot-days=mon,tue", "--start-time=22:00", "--end-time=04:00", "--time-zone=Europe/Berlin",
		"--blocking-pods=critical,tier in (a,b)", "--blocking-pods=migrates", "--own-node=n1", "--agent-pods=app=agent", "--pause-after-reboot=10m", "--drain-timeout=7m", "--delete-unmanaged-pods",
	}))
	values := publishedValues(controller.Flags())
	flags := &controllerFlags{}
	o := &observer{flags: flags, flagSet: flags.published(), warnings: t.Output(), warned: map[string]bool{}}
	o.setFlags(values)
	require.Empty(t, o.warned)
	require.NoError(t, flags.parsePolicy())
	require.Equal(t, "25%", flags.options.MaxUnavailable.String())
	require.Equal(t, "pool in (a,b)", flags.options.Selector.String())
	require.Equal(t, []string{"critical,tier in (a,b)", "migrates"}, flags.blockingPods)
	require.Equal(t, "app=agent", flags.options.AgentPods.String())
	require.Equal(t, 10*time.Minute, flags.options.PauseAfterReboot)
	require.Equal(t, []string{"mon", "tue"}, flags.days)
	require.Equal(t, "n1", flags.options.OwnNode)
	require.Equal(t, 7*time.Minute, flags.options.DrainTimeout)
	require.True(t, flags.options.DeleteUnmanagedPods)
	require.NotNil(t, flags.options.Window)
	require.Equal(t, values, publishedValues(o.flagSet))
}

func TestRequestAndCancelPrint(t *testing.T) {
	client := fake.NewClientset(fleet()...)
	stdout, stderr, err := run(t, client, "request", "--all", "--reason", "new kernel")
	require.NoError(t, err)
	require.Empty(t, stderr)
	require.Equal(t, `node/a reboot requested
node/b reboot already in progress
node/c reboot already in progress
node/d reboot already in progress
node/e reboot already requested
node/f reboot already requested
node/g reboot requested
`, stdout)
	stdout, _, err = run(t, client, "cancel", "b", "node/a", "d", "x", "g")
	require.EqualError(t, err, "node \"d\": the reboot is in progress; it is too late to cancel it\nnode \"x\" not found")
	require.Equal(t, `node/b reboot cancelled
node/a reboot cancelled
node/g reboot cancelled
`, stdout)
	stdout, _, err = run(t, client, "request", "-l", "pool in (a,g)")
	require.NoError(t, err)
	require.Equal(t, "node/a reboot requested\nnode/g reboot requested\n", stdout)

	client.PrependReactor("patch", "nodes", forbid)
	_, _, err = run(t, client, "cancel", "a")
	require.EqualError(t, err, "change Node a: nodes is forbidden: RBAC says no")
}

func TestPauseAndResume(t *testing.T) {
	const unused = "Warning: no controller has used this ledger so far. It pauses only a controller with --namespace default and --ledger reboot-ledger.\n"
	client := fake.NewClientset()
	for _, step := range []struct{ command, stdout, stderr string }{
		{"resume", "configmap/reboot-ledger in namespace default: does not exist, so reboots are not paused\n", ""},
		{"pause", "configmap/reboot-ledger in namespace default: reboots paused\n", unused},
		{"pause", "configmap/reboot-ledger in namespace default: reboots already paused\n", unused},
		{"resume", "configmap/reboot-ledger in namespace default: reboots resumed\n", ""},
		{"resume", "configmap/reboot-ledger in namespace default: reboots are not paused\n", ""},
	} {
		stdout, stderr, err := run(t, client, step.command)
		require.NoError(t, err)
		require.Equal(t, step.stdout, stdout)
		require.Equal(t, step.stderr, stderr)
	}
}

// Others pause beside the administrator, and each ends only its own.
func TestPauseBySomebody(t *testing.T) {
	client := fake.NewClientset(ledger("default"))
	const name = "configmap/reboot-ledger in namespace default: "
	for _, step := range []struct{ command, stdout string }{
		{"pause --by ceph --reason HEALTH_WARN", "reboots paused by ceph"},
		{"pause --by ceph --reason HEALTH_WARN", "reboots already paused by ceph"},
		{"pause", "reboots paused"},
		{"resume", `that pause has ended, but reboots are paused by ceph: HEALTH_WARN; "kubectl reboot resume --by ceph" resumes them`},
		{"resume --by alerts", `there is no such pause, but reboots are paused by ceph: HEALTH_WARN; "kubectl reboot resume --by ceph" resumes them`},
		{"resume --by ceph", "reboots resumed"},
		{"resume --by ceph", "reboots are not paused by ceph"},
	} {
		stdout, stderr, err := run(t, client, strings.Fields(step.command)...)
		require.NoError(t, err, step.command)
		require.Equal(t, name+step.stdout+"\n", stdout, step.command)
		require.Empty(t, stderr)
	}
	for command, want := range map[string]string{
		"resume --by=":           "--by is empty; without it, this is about the administrator's own pause",
		"pause --reason x":       "--reason needs --by, the name of who pauses",
		"pause --by a/b":         `--by is "a/b"; it may have letters, digits, "-", "_" and "."`,
		"pause --by a --by b":    "invalid argument \"b\" for \"--by\" flag: --by may be given only once, and was \"a\" before",
		"resume --by x --reason": "unknown flag: --reason",
	} {
		_, _, err := run(t, client, strings.Fields(command)...)
		require.EqualError(t, err, want, command)
	}
}

// A standby whose limits differ from the leader's says so: perhaps the two are for different Nodes.
func TestAStandbyWithOtherFlags(t *testing.T) {
	for name, test := range map[string]struct {
		leader, own map[string]string
		want        string // in the log; "" for nothing
	}{
		"the same":          {map[string]string{"max-unavailable": "1", "own-node": "a"}, map[string]string{"max-unavailable": "1", "own-node": "b"}, ""},
		"an older leader":   {map[string]string{"max-unavailable": "1", "gone": "1"}, map[string]string{"max-unavailable": "1", "new": "1"}, ""},
		"nothing published": {nil, map[string]string{"max-unavailable": "1"}, ""},
		"other Nodes": {map[string]string{"max-unavailable": "1", "node-selector": "pool=a"}, map[string]string{"max-unavailable": "2", "node-selector": "pool=b"},
			`differences=["--max-unavailable is \"1\" there and \"2\" here","--node-selector is \"pool=a\" there and \"pool=b\" here"]`},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			if test.leader != nil {
				require.NoError(t, protocol.PublishFlags(t.Context(), client, "reboot", "reboot-ledger", test.leader))
			}
			logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
			f := &controllerFlags{options: reboot.Options{Namespace: "reboot", Ledger: "reboot-ledger"}, values: test.own}
			f.compareFlags(klog.NewContext(t.Context(), logger), client)
			log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
			if test.want == "" {
				require.Empty(t, log)
				return
			}
			require.Contains(t, log, "if this controller is for other Nodes, give it another --ledger")
			require.Contains(t, log, test.want)
		})
	}
}

// Nodes that another controller has admitted are not explained by the limits of this one.
func TestWhyOfANodeOfAnotherController(t *testing.T) {
	other := node("a")
	other.Spec.Unschedulable = true
	other.Annotations = map[string]string{protocol.NeededAnnotation: "", protocol.AdmittedAnnotation: protocol.FormatTime(testTime), protocol.AdmittedByAnnotation: "batch/pool"}
	client := fake.NewClientset(ledger("default"), other)
	stdout, _, err := run(t, client, "why", "a")
	require.NoError(t, err)
	require.Equal(t, "Node a is rebooted by another controller: that of the ledger batch/pool admitted it 0s ago.\n"+
		"To see more: kubectl reboot why a --namespace batch --ledger pool.\n"+
		"If that controller is gone, hand the Node over: kubectl annotate node a --overwrite reboot.controllers.example.com/admitted-by=default/reboot-ledger.\n", stdout)
	stdout, _, err = run(t, client, "status", "a")
	require.NoError(t, err)
	require.Contains(t, stdout, "the controller of ledger batch/pool")
}

// Whether an agent runs is taken into account as the controller does.
func TestWhyWithoutAnAgent(t *testing.T) {
	waiting := node("a")
	waiting.Annotations = map[string]string{protocol.NeededAnnotation: ""}
	client := fake.NewClientset(waiting)
	require.NoError(t, protocol.PublishFlags(t.Context(), client, "default", "reboot-ledger", map[string]string{"max-unavailable": "1", "agent-pods": "app=agent"}))
	stdout, _, err := run(t, client, "why", "a")
	require.NoError(t, err)
	require.Contains(t, stdout, "Node a needs a reboot, but is not admitted now: no agent is running on it, so nobody would reboot it after the drain. See why: kubectl describe daemonsets,pods --namespace default -l \"app=agent\".\n")
	agent := nodetest.NewPod("agent", "a")
	agent.Namespace = "default"
	require.NoError(t, client.Tracker().Add(agent))
	stdout, _, err = run(t, client, "why", "a")
	require.NoError(t, err)
	require.Contains(t, stdout, "Nothing keeps Node a from being rebooted now")
}

// The ledger is that of the controller, in whatever namespace, and not a new one that would pause nothing.
func TestPauseFindsTheLedger(t *testing.T) {
	client := fake.NewClientset(ledger("reboot"), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "other"}})
	stdout, stderr, err := run(t, client, "pause")
	require.NoError(t, err)
	require.Empty(t, stderr)
	require.Equal(t, "configmap/reboot-ledger in namespace reboot: reboots paused\n", stdout)

	stdout, _, err = run(t, client, "pause", "--namespace", "mine", "--ledger", "mine")
	require.NoError(t, err)
	require.Equal(t, "configmap/mine in namespace mine: reboots paused\n", stdout)

	stray := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "reboot-ledger"}, Data: map[string]string{"paused": "true"}}
	slotsOnly := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "reboot", Name: "reboot-ledger"}, Data: map[string]string{"slots": "{}"}}
	for _, used := range []*corev1.ConfigMap{ledger("reboot"), slotsOnly} {
		stdout, stderr, err = run(t, fake.NewClientset(stray, used), "pause")
		require.NoError(t, err)
		require.Empty(t, stderr)
		require.Equal(t, "configmap/reboot-ledger in namespace reboot: reboots paused\n", stdout)
	}
	client = fake.NewClientset(stray, ledger("reboot"))
	client.PrependReactor("list", "configmaps", forbid)
	stdout, stderr, err = run(t, client, "pause")
	require.NoError(t, err)
	require.Contains(t, stderr, "Warning: no controller has used this ledger so far")
	require.Equal(t, "configmap/reboot-ledger in namespace default: reboots already paused\n", stdout)

	client = fake.NewClientset(ledger("two"), ledger("one"))
	_, _, err = run(t, client, "pause")
	require.EqualError(t, err, "there is a ledger reboot-ledger in each of the namespaces one, two; choose one with --namespace")
	_, stderr, err = run(t, client, "status")
	require.NoError(t, err)
	require.Contains(t, stderr, "Warning: there is a ledger reboot-ledger in each of the namespaces one, two; choose one with --namespace; cannot tell")

	client.PrependReactor("*", "configmaps", forbid)
	_, _, err = run(t, client, "pause", "--namespace", "one")
	require.EqualError(t, err, "read the ledger: configmaps is forbidden: RBAC says no")
}

func TestWrongInput(t *testing.T) {
	client := fake.NewClientset(append(fleet(), ledger("default"))...)
	for _, test := range []struct{ args, want string }{
		{"why", `"kubectl reboot why" is about one Node: kubectl reboot why NODE`},
		{"why a b", `"kubectl reboot why" is about one Node: kubectl reboot why NODE`},
		{"why x", `node "x" not found`},
		{"why f --max-unavailable 0", `--max-unavailable: "0" would never let a Node reboot; it must be at least 1; to pause all reboots, use "kubectl reboot pause"`},
		{"why f --max-unavailable 150%", `--max-unavailable: "150%" is more than all Nodes; it must be at most 100%`},
		{"why f --blocking-pods a=", ""}, // an empty value is one
		{"why f --blocking-pods =", `--blocking-pods: found '=', expected: !, identifier, or 'end of string'`},
		{"status x", `node "x" not found`},
		{"status a -l pool=a", "names of Nodes and --selector exclude each other"},
		{"status -l pool=none", "no Node matches --selector pool=none"},
		{"status -l !", "--selector: unable to parse requirement: found '', expected: identifier"},
		{"status a/b", `"a/b" is not the name of a Node`},
		{"status -o xml", `--output is "xml"; it must be jsonpath=..., go-template=..., wide, json or yaml`},
		{"status -o jsonpath={", "--output: error parsing jsonpath {, unclosed action"},
		{"request", `no Node is selected; name one, as in "kubectl reboot request NODE", or use --selector or --all`},
		{"cancel", `no Node is selected; name one, as in "kubectl reboot cancel NODE", or use --selector or --all`},
		{"request -l pool=none", "no Node matches --selector pool=none"},
		{"request --selector=", "--selector is empty, which would select all Nodes; use --all if you mean that"},
		{"request a --all", "--all excludes names of Nodes and --selector"},
		{"request a --selector pool=a", "names of Nodes and --selector exclude each other"},
		{"request x", `node "x" not found`},
		{"cancel d", `node "d": the reboot is in progress; it is too late to cancel it`},
		{"pause b", `"kubectl reboot pause" takes no arguments, and is about all Nodes; "kubectl reboot cancel b" is about one`},
		{"resume b", `"kubectl reboot resume" takes no arguments, and is about all Nodes; "kubectl reboot request b" is about one`},
		{"drain", `unknown command "drain" for "kubectl reboot"`},
	} {
		t.Run(test.args, func(t *testing.T) {
			client.ClearActions()
			_, _, err := run(t, client, strings.Fields(test.args)...)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, test.want)
			for _, action := range client.Actions() {
				require.Contains(t, []string{"get", "list"}, action.GetVerb())
			}
		})
	}
}

// eventually waits for a condition that an informer brings about.
func eventually(t *testing.T, condition func() bool, output fmt.Stringer) {
	t.Helper()
	for range 12_000 { // two minutes, only so that a hang ends
		if condition() {
			return
		}
		select {
		case <-t.Context().Done():
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	require.FailNow(t, "the output does not come", output.String())
}

func TestStatusWatch(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	web := pod("web", "b")
	client := fake.NewClientset(node("a"), node("b"), ledger("default"), web)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout, stderr buffer
	ended := make(chan error, 1)
	go func() { ended <- start(ctx, client, &stdout, &stderr, "status", "--watch") }()

	want := `NODE   PHASE   SINCE    BOOT-BEFORE   BOOT-ID    WAITING FOR
a      Idle    <none>   <none>        00000001   <none>
b      Idle    <none>   <none>        00000001   <none>
`
	expect := func(rows string) {
		t.Helper()
		want += rows
		eventually(t, func() bool { return stdout.String() == want }, &stdout)
	}
	expect("")
	// A watch of the fake clientset has no events from before it began.
	watched := func(resource string, times int) {
		t.Helper()
		eventually(t, func() bool {
			watches := 0
			for _, action := range client.Actions() {
				if action.GetVerb() == "watch" && action.GetResource().Resource == resource {
					watches++
				}
			}
			return watches >= times
		}, &stdout)
	}
	watched("nodes", 1)
	watched("configmaps", 1)
	update := func(n *corev1.Node) {
		t.Helper()
		_, err := client.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	update(node("b", "reboot-needed=")) // now, which is after testTime
	expect("b      Needed   0s ago   <none>        00000001   the controller to admit it\n")

	_, _, err := protocol.SetPaused(ctx, client, "default", "reboot-ledger", protocol.Pause{}, true)
	require.NoError(t, err)
	expect("b      Needed   0s ago   <none>        00000001   kubectl reboot resume\n")
	require.Equal(t, "ConfigMap default/reboot-ledger: reboots are paused; \"kubectl reboot resume\" resumes them.\n", stderr.String())

	update(cordoned(node("b", "reboot-needed=", "admitted="+before(0), "since="+before(0))))
	expect("b      Draining   0s ago   <none>        00000001   Pod shop/web\n")
	watched("pods", 1)
	require.NoError(t, client.CoreV1().Pods("shop").Delete(ctx, "web", metav1.DeleteOptions{}))
	expect("b      Draining   0s ago   <none>        00000001   the controller to approve the reboot\n")

	update(notReady(cordoned(node("b", "reboot-in-progress=99999999-2fa1-11d2-883f-0016d3cca427", "admitted="+before(0), "since="+before(0)))))
	expect("b      InProgress   0s ago   99999999      00000001   the machine to come back\n")
	heartbeat := notReady(cordoned(node("b", "reboot-in-progress=99999999-2fa1-11d2-883f-0016d3cca427", "admitted="+before(0), "since="+before(0))))
	heartbeat.Status.Conditions[0].Message = "changes nothing"
	update(heartbeat)
	require.NoError(t, client.CoreV1().Nodes().Delete(ctx, "a", metav1.DeleteOptions{}))
	expect("a      Deleted      <none>   <none>        <none>     <none>\n")

	cancel()
	require.NoError(t, <-ended)
	require.Equal(t, want, stdout.String())
}

// follower runs "status --watch" until the test is over.
type follower struct {
	client         *fake.Clientset
	stdout, stderr buffer
}

func follow(t *testing.T, client *fake.Clientset, args ...string) *follower {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	f := &follower{client: client}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- start(ctx, client, &f.stdout, &f.stderr, append([]string{"status", "--watch"}, args...)...)
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return f
}

// awaitWatch waits for the first watch of a resource that contains a selector.
func (f *follower) awaitWatch(t *testing.T, resource, selector string) {
	t.Helper()
	eventually(t, func() bool { return slices.Contains(f.watches(resource), selector) }, &f.stdout)
}

// watches returns the selectors of the watches of a resource so far.
func (f *follower) watches(resource string) (selectors []string) {
	for _, action := range f.client.Actions() {
		if watch, ok := action.(clienttesting.WatchAction); ok && watch.GetResource().Resource == resource {
			restrictions := watch.GetWatchRestrictions()
			selectors = append(selectors, strings.Trim(restrictions.Labels.String()+","+restrictions.Fields.String(), ","))
		}
	}
	return selectors
}

func (f *follower) awaitRow(t *testing.T, row string) {
	t.Helper()
	eventually(t, func() bool { return strings.HasSuffix(f.stdout.String(), row+"\n") }, &f.stdout)
}

func (f *follower) update(t *testing.T, node *corev1.Node) {
	t.Helper()
	_, err := f.client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func TestStatusWatchOfTheFirstNode(t *testing.T) {
	f := follow(t, fake.NewClientset(node("a"), node("b")))
	f.awaitWatch(t, "nodes", "")
	f.update(t, node("a", "reboot-needed=", "since="+before(0)))
	f.awaitRow(t, "a      Needed   0s ago   <none>        00000001   the controller to admit it")
	f.update(t, node("a"))
	f.awaitRow(t, "a      Idle     <none>   <none>        00000001   <none>")
	require.NoError(t, f.client.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}))
	f.awaitRow(t, "a      Deleted   <none>   <none>        <none>     <none>")
	f.update(t, node("b", "reboot-needed="))
	f.awaitRow(t, "b      Needed    0s ago   <none>        00000001   the controller to admit it")
	require.NoError(t, f.client.CoreV1().Nodes().Delete(t.Context(), "b", metav1.DeleteOptions{}))
	f.awaitRow(t, "b      Deleted   <none>   <none>        <none>     <none>")
}

func TestStatusWatchPrintsAColumnThatOnlyTheWideTableHas(t *testing.T) {
	f := follow(t, fake.NewClientset(node("a")), "-o", "wide")
	f.awaitWatch(t, "nodes", "")
	f.update(t, cordoned(node("a")))
	f.awaitRow(t, "a      Idle    <none>   <none>        00000001   <none>        true    true       0          <none>")
}

// A Node that is deleted between the first list and that of the informer has no event.
func TestStatusWatchOfANodeThatIsDeletedMeanwhile(t *testing.T) {
	client := fake.NewClientset(node("b"))
	lists := 0
	client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		lists++
		return lists == 1, &corev1.NodeList{Items: []corev1.Node{*node("a"), *node("b")}}, nil
	})
	follow(t, client).awaitRow(t, "a      Deleted   <none>   <none>        <none>     <none>")
}

func TestStatusWatchOfPodsThatForbidReboots(t *testing.T) {
	f := follow(t, fake.NewClientset(node("a", "reboot-needed="), ledger("default", `flags={"max-unavailable":"1","blocking-pods":"app=db"}`)))
	f.awaitWatch(t, "pods", "app=db")
	_, err := f.client.CoreV1().Pods("shop").Create(t.Context(), pod("db", "a"), metav1.CreateOptions{})
	require.NoError(t, err)
	f.awaitRow(t, "a      Needed   <unknown>   <none>        00000001   Pod shop/db to end")
}

// With several selectors, the Pods of each forbid reboots, and one that goes leaves the others. The Pods are there from the start,
// because the fake clientset's lists heed label selectors, and its watches do not.
func TestStatusWatchOfPodsOfSeveralSelectors(t *testing.T) {
	f := follow(t, fake.NewClientset(node("a", "reboot-needed="), pod("db", "a"), pod("migration", "a"),
		ledger("default", `flags={"max-unavailable":"1","blocking-pods":"app=db\napp=migration"}`)))
	for _, app := range []string{"db", "migration"} {
		f.awaitWatch(t, "pods", "app="+app)
	}
	require.NoError(t, f.client.CoreV1().Pods("shop").Delete(t.Context(), "migration", metav1.DeleteOptions{}))
	f.awaitRow(t, "a      Needed   <unknown>   <none>        00000001   Pod shop/db to end")
}

// Of the Nodes that are being drained, only the Pods of those that are selected are watched, and all of them.
func TestStatusWatchOfDrains(t *testing.T) {
	drained := func(name string) *corev1.Node {
		return cordoned(node(name, "reboot-needed=", "admitted="+before(0), "since="+before(0)))
	}
	client := fake.NewClientset(drained("a"), node("b"), drained("c"), node("d"), node("e"), node("f"))
	f := follow(t, client, "a", "b", "d", "e", "f")
	f.awaitWatch(t, "pods", "spec.nodeName=a")
	f.awaitWatch(t, "nodes", "")
	for _, name := range []string{"b", "d", "e", "f"} {
		f.update(t, drained(name))
		f.awaitWatch(t, "pods", "spec.nodeName="+name)
	}
	require.NotContains(t, f.watches("pods"), "spec.nodeName=c")
}

// The same Node is drained a second time, after one that was given up: its Pods are watched again.
func TestStatusWatchOfASecondDrain(t *testing.T) {
	f := follow(t, fake.NewClientset(node("a"), pod("db", "a")))
	f.awaitWatch(t, "nodes", "")
	for drains := range 2 {
		f.update(t, cordoned(node("a", "reboot-needed=", "admitted="+before(0), "since="+before(0))))
		f.awaitRow(t, "a      Draining   0s ago   <none>        00000001   Pod shop/db")
		name := fmt.Sprint("web-", drains)
		eventually(t, func() bool {
			watches := slices.DeleteFunc(f.watches("pods"), func(selector string) bool { return selector != "spec.nodeName=a" })
			return len(watches) > drains
		}, &f.stdout)
		_, err := f.client.CoreV1().Pods("shop").Create(t.Context(), pod(name, "a"), metav1.CreateOptions{})
		require.NoError(t, err)
		f.awaitRow(t, "a      Draining   0s ago   <none>        00000001   Pod shop/db, Pod shop/"+name)
		require.NoError(t, f.client.CoreV1().Pods("shop").Delete(t.Context(), name, metav1.DeleteOptions{}))
		f.awaitRow(t, "a      Draining   0s ago   <none>        00000001   Pod shop/db")
		f.update(t, node("a", "reboot-needed="))
		f.awaitRow(t, "a      Needed     0s ago   <none>        00000001   the controller to admit it")
	}
}

func TestStatusWatchThatIsInterrupted(t *testing.T) {
	client := fake.NewClientset(node("a"))
	client.PrependWatchReactor("nodes", func(action clienttesting.Action) (bool, apiwatch.Interface, error) {
		_, _, err := forbid(action)
		return true, nil, err
	})
	f := follow(t, client)
	eventually(t, func() bool {
		return f.stderr.String() == "Warning: a watch was interrupted, and is retried: nodes is forbidden: RBAC says no\n"
	}, &f.stderr)
}

func TestStatusWatchAsJSON(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout, stderr buffer
	ended := make(chan error, 1)
	go func() {
		ended <- start(ctx, fake.NewClientset(node("a"), node("b")), &stdout, &stderr, "status", "-w", "-o", "json")
	}()
	eventually(t, func() bool { return strings.Count(stdout.String(), "\n}\n") == 2 }, &stdout)
	cancel()
	require.NoError(t, <-ended)
	decoder := json.NewDecoder(strings.NewReader(stdout.String()))
	for _, name := range []string{"a", "b"} {
		var document map[string]any
		require.NoError(t, decoder.Decode(&document))
		require.Equal(t, map[string]any{
			"apiVersion": "reboot.controllers.example.com/v1", "kind": "NodeRebootStatus", "name": name, "phase": "Idle",
			"bootID": "00000001-2fa1-11d2-883f-0016d3cca427", "ready": true, "unschedulable": false,
		}, document)
	}
}
