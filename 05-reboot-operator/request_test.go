package reboot_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"example.com/controllers/reboot"
)

// nodeNow returns the Node, without what depends on the time.
func nodeNow(t *testing.T, client *fake.Clientset, name string) (phase reboot.Phase, annotations map[string]string) {
	t.Helper()
	node, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	annotations = map[string]string{}
	for key, value := range node.Annotations {
		if key == reboot.LastAttemptAnnotation && value != "" {
			value = "now"
		}
		annotations[key[len(reboot.Prefix):]] = value
	}
	return reboot.PhaseOf(node), annotations
}

func TestRequestAndCancel(t *testing.T) {
	request := func(ctx context.Context, client *fake.Clientset) (string, error) {
		return reboot.Request(ctx, client, "n", "new kernel")
	}
	cancel := func(ctx context.Context, client *fake.Clientset) (string, error) {
		return reboot.Cancel(ctx, client, "n")
	}
	for _, test := range []struct {
		name   string
		node   *corev1.Node
		do     func(context.Context, *fake.Clientset) (string, error)
		done   string
		err    error
		phase  reboot.Phase
		after  map[string]string
		writes int
	}{
		{"request", statusNode("n"), request, "reboot requested", nil, reboot.Needed, map[string]string{"reboot-needed": "new kernel"}, 1},
		{"request again", statusNode("n", "reboot-needed=old"), request, "reboot already requested", nil, reboot.Needed, map[string]string{"reboot-needed": "old"}, 0},
		{"request while draining", statusNode("n", "reboot-needed=old", "admitted="), request, "reboot already in progress", nil, reboot.Draining, map[string]string{"reboot-needed": "old", "admitted": ""}, 0},
		{"request during the reboot", statusNode("n", inProgress, "admitted="), request, "reboot already in progress", nil, reboot.InProgress, map[string]string{"reboot-in-progress": "boot-0", "admitted": ""}, 0},
		{"request after a cancel", statusNode("n", "admitted="), request, "reboot requested", nil, reboot.Draining, map[string]string{"reboot-needed": "new kernel", "admitted": ""}, 1},
		{"request, with a reboot-now from elsewhere", statusNode("n", approved), request, "reboot requested", nil, reboot.Needed, map[string]string{"reboot-needed": "new kernel", "reboot-now": ""}, 1},

		{"cancel", statusNode("n", "reboot-needed=old", "failures=2", "retry-after=later"), cancel, "reboot cancelled", nil, reboot.Idle, map[string]string{"sentinel-ignored": "old", "last-attempt": "now"}, 1},
		{"cancel a drain", statusNode("n", "reboot-needed=old", "admitted=", "cordoned=true"), cancel, "reboot cancelled", nil, reboot.Cancelled, map[string]string{"sentinel-ignored": "old", "last-attempt": "now", "admitted": "", "cordoned": "true"}, 1},
		{"cancel before the agent acts", statusNode("n", "reboot-now=old", "admitted="), cancel, "reboot cancelled", nil, reboot.Cancelled, map[string]string{"sentinel-ignored": "old", "last-attempt": "now", "admitted": ""}, 1},
		{"cancel too late", statusNode("n", inProgress, "admitted="), cancel, "", reboot.ErrTooLate, reboot.InProgress, map[string]string{"reboot-in-progress": "boot-0", "admitted": ""}, 0},
		{"cancel the second of two", statusNode("n", inProgress, "admitted=", "reboot-needed=new"), cancel, "reboot after the one in progress cancelled", nil, reboot.InProgress, map[string]string{"reboot-in-progress": "boot-0", "admitted": ""}, 1},
		{"cancel again", statusNode("n", "admitted="), cancel, "reboot already cancelled", nil, reboot.Cancelled, map[string]string{"admitted": ""}, 0},
		{"nothing to cancel", statusNode("n"), cancel, "no reboot requested", nil, reboot.Idle, map[string]string{}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			client := fake.NewClientset(test.node)
			done, err := test.do(t.Context(), client)
			require.ErrorIs(t, err, test.err)
			require.Equal(t, test.done, done)
			require.Equal(t, test.writes, countWrites(client))
			phase, annotations := nodeNow(t, client, "n")
			require.Equal(t, test.phase, phase)
			require.Equal(t, test.after, annotations)
		})
	}
}

func countWrites(client *fake.Clientset) (n int) {
	for _, action := range client.Actions() {
		switch action.GetVerb() {
		case "create", "update", "patch", "delete":
			n++
		}
	}
	return n
}

// A Node whose reboot begins between the reading and the writing of the plugin is not cancelled any more.
func TestCancelRepeatsAfterAConflict(t *testing.T) {
	client := fake.NewClientset(statusNode("n", "reboot-now=old", "admitted="))
	patches := 0
	client.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patches++
		if patches > 1 {
			return false, nil, nil
		}
		node := statusNode("n", inProgress, "admitted=")
		if err := client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, ""); err != nil {
			return true, nil, err
		}
		return true, nil, apierrors.NewConflict(corev1.Resource("nodes"), "n", errors.New("changed"))
	})
	_, err := reboot.Cancel(t.Context(), client, "n")
	require.ErrorIs(t, err, reboot.ErrTooLate)
	require.EqualError(t, err, `node "n": the reboot is in progress; it is too late to cancel it`)
	require.Equal(t, 1, patches)
}

// The write names the Node that was read and its resourceVersion.
func TestRequestIsConditional(t *testing.T) {
	node := statusNode("n")
	node.UID, node.ResourceVersion = "uid-1", "42"
	client := fake.NewClientset(node)
	_, err := reboot.Request(t.Context(), client, "n", "")
	require.NoError(t, err)
	actions := client.Actions()
	var patch struct{ Metadata metav1.ObjectMeta }
	require.NoError(t, json.Unmarshal(actions[len(actions)-1].(clienttesting.PatchAction).GetPatch(), &patch))
	require.Equal(t, node.UID, patch.Metadata.UID)
	require.NotEmpty(t, patch.Metadata.ResourceVersion)
}

func TestSetPaused(t *testing.T) {
	client := fake.NewClientset()
	set := func(paused, wantChanged, wantCreated bool) {
		t.Helper()
		changed, created, err := reboot.SetPaused(t.Context(), client, "ns", "ledger", paused)
		require.NoError(t, err)
		require.Equal(t, []bool{wantChanged, wantCreated}, []bool{changed, created})
	}
	settings := func() *reboot.Settings {
		t.Helper()
		configMap, err := client.CoreV1().ConfigMaps("ns").Get(t.Context(), "ledger", metav1.GetOptions{})
		require.NoError(t, err)
		return reboot.SettingsOf(configMap)
	}
	set(false, false, false)
	set(true, true, true)
	require.True(t, settings().Paused)
	set(true, false, false)
	require.NoError(t, reboot.PublishFlags(t.Context(), client, "ns", "ledger", map[string]string{"max-unavailable": "2"}))
	require.True(t, settings().Paused)
	set(false, true, false)
	require.False(t, settings().Paused)
	require.Equal(t, map[string]string{"max-unavailable": "2"}, settings().Flags)
	set(false, false, false)

	client.ClearActions()
	require.NoError(t, reboot.PublishFlags(t.Context(), client, "ns", "ledger", map[string]string{"max-unavailable": "2"}))
	require.Zero(t, countWrites(client), "the flags have not changed")
}

// A key without a value pauses reboots, too.
func TestResumeALedgerWhoseSwitchIsEmpty(t *testing.T) {
	client := fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "ledger"}, Data: map[string]string{"paused": ""}})
	changed, _, err := reboot.SetPaused(t.Context(), client, "ns", "ledger", false)
	require.NoError(t, err)
	require.True(t, changed)
	configMap, err := client.CoreV1().ConfigMaps("ns").Get(t.Context(), "ledger", metav1.GetOptions{})
	require.NoError(t, err)
	require.False(t, reboot.SettingsOf(configMap).Paused)
}

// Somebody else creates the ledger, or deletes it, between the read and the write.
func TestSetPausedWhileTheLedgerComesAndGoes(t *testing.T) {
	ledger := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "ledger"}}
	configMaps := corev1.SchemeGroupVersion.WithResource("configmaps")
	for name, test := range map[string]struct {
		verb      string // of the first write
		meanwhile func(client *fake.Clientset) error
		created   bool
	}{
		"comes": {"create", func(client *fake.Clientset) error { return client.Tracker().Add(ledger.DeepCopy()) }, false},
		"goes":  {"patch", func(client *fake.Clientset) error { return client.Tracker().Delete(configMaps, "ns", "ledger") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			if test.verb == "patch" {
				require.NoError(t, client.Tracker().Add(ledger.DeepCopy()))
			}
			var once sync.Once
			client.PrependReactor(test.verb, "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
				once.Do(func() { require.NoError(t, test.meanwhile(client)) })
				return false, nil, nil
			})
			changed, created, err := reboot.SetPaused(t.Context(), client, "ns", "ledger", true)
			require.NoError(t, err)
			require.True(t, changed)
			require.Equal(t, test.created, created)
			configMap, err := client.CoreV1().ConfigMaps("ns").Get(t.Context(), "ledger", metav1.GetOptions{})
			require.NoError(t, err)
			require.True(t, reboot.SettingsOf(configMap).Paused)
		})
	}
}

func TestSettingsOfAStrangeLedger(t *testing.T) {
	for name, test := range map[string]struct {
		data    map[string]string
		warning string
	}{
		"empty":         {nil, ""},
		"paused":        {map[string]string{"paused": "true"}, ""},
		"resumed":       {map[string]string{"paused": "false"}, ""},
		"almost paused": {map[string]string{"paused": "yes"}, `paused is "yes", which is neither true nor false, and pauses reboots`},
		"broken slots":  {map[string]string{"slots": "n1"}, "slots cannot be read, and the controller admits no Node: invalid character '1' in literal null (expecting 'u')"},
		"no slots":      {map[string]string{"slots": "null"}, ""},
		"unknown flags": {map[string]string{"flags": `{"not-a-flag":"1"}`}, ""},
		"flags by hand": {map[string]string{"flags": "--max-unavailable=1"}, "flags cannot be read: invalid character '-' in numeric literal"},
	} {
		t.Run(name, func(t *testing.T) {
			settings := reboot.SettingsOf(&corev1.ConfigMap{Data: test.data})
			require.Equal(t, test.warning, settings.Warning)
			require.Empty(t, settings.Slots(nil, ""))
		})
	}
}

func TestSettingsSlots(t *testing.T) {
	settings := reboot.SettingsOf(&corev1.ConfigMap{Data: map[string]string{"slots": `{"about-to-drain":"10","drains":"10","done":"10","deleted":"10","new":"30"}`}})
	at := func(node *corev1.Node, version string) *corev1.Node {
		node.ResourceVersion = version
		return node
	}
	nodes := []*corev1.Node{
		at(statusNode("about-to-drain", "reboot-needed="), "10"),
		at(statusNode("drains", "reboot-needed=", "admitted="), "11"),
		at(statusNode("done"), "12"),
	}
	want := map[string]bool{"about-to-drain": true, "drains": true, "new": true}
	require.Equal(t, want, settings.Slots(nodes, "20"))
	require.Equal(t, want, settings.Slots(nodes, "20"), "the first call has changed the settings")
}

func TestRemaining(t *testing.T) {
	pod := func(name string, change func(*corev1.Pod)) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, Labels: map[string]string{"app": name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "rs", Controller: new(true)}},
		}, Spec: corev1.PodSpec{NodeName: "n"}}
		if change != nil {
			change(pod)
		}
		return pod
	}
	budget := func(name, app string, allowed int32) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
			Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
		}
	}
	terminating := func(pod *corev1.Pod) {
		pod.DeletionTimestamp = new(metav1.Now())
		pod.Finalizers = []string{"example.com/keep"}
	}
	for name, test := range map[string]struct {
		objects []runtime.Object
		force   bool
		want    string
	}{
		"nothing":         {nil, false, ""},
		"a Pod":           {[]runtime.Object{pod("a", nil)}, false, "Pod shop/a"},
		"a budget":        {[]runtime.Object{pod("a", nil), budget("keep", "a", 0), budget("let-go", "a", 1), budget("other", "b", 0)}, false, "Pod shop/a (PodDisruptionBudget keep allows no disruption)"},
		"terminating":     {[]runtime.Object{pod("a", terminating), budget("keep", "a", 0)}, false, "Pod shop/a (terminating)"},
		"many":            {[]runtime.Object{pod("e", nil), pod("d", nil), pod("c", nil), pod("b", nil), pod("a", nil)}, false, "Pod shop/a, Pod shop/b, Pod shop/c, and 2 more"},
		"unmanaged":       {[]runtime.Object{pod("a", func(pod *corev1.Pod) { pod.OwnerReferences = nil })}, false, "somebody to delete Pods that the drain does not evict: cannot delete Pods that declare no controller (use --force to override): shop/a"},
		"force unmanaged": {[]runtime.Object{pod("a", func(pod *corev1.Pod) { pod.OwnerReferences = nil })}, true, "Pod shop/a"},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(test.objects...)
			got, err := reboot.Remaining(t.Context(), client, "n", reboot.Options{DeleteUnmanagedPods: test.force})
			require.NoError(t, err)
			require.Equal(t, test.want, got)
			require.Zero(t, countWrites(client))
		})
	}

	selector, err := labels.Parse("app=a")
	require.NoError(t, err)
	got, err := reboot.Remaining(t.Context(), fake.NewClientset(pod("a", nil), pod("b", nil)), "n", reboot.Options{BlockingPods: selector})
	require.NoError(t, err)
	require.Equal(t, "Pod shop/a, which blocks the reboot", got)

	client := fake.NewClientset(pod("a", nil), budget("keep", "a", 0))
	client.PrependReactor("list", "poddisruptionbudgets", forbid)
	got, err = reboot.Remaining(t.Context(), client, "n", reboot.Options{})
	require.NoError(t, err)
	require.Equal(t, "Pod shop/a", got)
	client.PrependReactor("list", "pods", forbid)
	_, err = reboot.Remaining(t.Context(), client, "n", reboot.Options{})
	require.ErrorContains(t, err, "list the Pods of Node n: ")
}

func TestBlockers(t *testing.T) {
	pod := func(name, node string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase},
		}
	}
	pods := []*corev1.Pod{
		pod("a", "m", corev1.PodSucceeded), pod("b", "m", corev1.PodFailed), pod("c", "", corev1.PodPending),
		pod("d", "n", corev1.PodRunning), pod("e", "n", corev1.PodPending), pod("f", "o", corev1.PodUnknown),
	}
	want := map[string]string{"n": "shop/d", "o": "shop/f"}
	require.Equal(t, want, reboot.Blockers(pods))
	slices.Reverse(pods)
	require.Equal(t, want, reboot.Blockers(pods), "the order of the Pods in a cache is random")
}

// forbid answers a request as RBAC does.
func forbid(action clienttesting.Action) (bool, runtime.Object, error) {
	return true, nil, apierrors.NewForbidden(action.GetResource().GroupResource(), "", errors.New("RBAC says no"))
}
