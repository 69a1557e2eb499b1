package protocol_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"example.com/controllers/reboot/internal/nodetest"
	"example.com/controllers/reboot/protocol"
)

// nodeNow returns the Node, without what depends on the time.
func nodeNow(t *testing.T, client *fake.Clientset, name string) (phase protocol.Phase, annotations map[string]string) {
	t.Helper()
	node, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	annotations = map[string]string{}
	for key, value := range node.Annotations {
		if key == protocol.LastAttemptAnnotation && value != "" {
			value = "now"
		}
		annotations[key[len(protocol.Prefix):]] = value
	}
	return protocol.PhaseOf(node), annotations
}

func TestRequestAndCancel(t *testing.T) {
	request := func(ctx context.Context, client *fake.Clientset) (string, error) {
		return protocol.Request(ctx, client, "n", "new kernel")
	}
	cancel := func(ctx context.Context, client *fake.Clientset) (string, error) {
		return protocol.Cancel(ctx, client, "n")
	}
	for _, test := range []struct {
		name   string
		node   *corev1.Node
		do     func(context.Context, *fake.Clientset) (string, error)
		done   string
		err    error
		phase  protocol.Phase
		after  map[string]string
		writes int
	}{
		{"request", nodetest.WithAnnotations("n"), request, "reboot requested", nil, protocol.Needed, map[string]string{"reboot-needed": "new kernel"}, 1},
		{"request again", nodetest.WithAnnotations("n", "reboot-needed=old"), request, "reboot already requested", nil, protocol.Needed, map[string]string{"reboot-needed": "old"}, 0},
		{"request while draining", nodetest.WithAnnotations("n", "reboot-needed=old", "admitted="), request, "reboot already in progress", nil, protocol.Draining, map[string]string{"reboot-needed": "old", "admitted": ""}, 0},
		{"request during the reboot", nodetest.WithAnnotations("n", "reboot-in-progress=boot-0", "admitted="), request, "reboot already in progress", nil, protocol.InProgress, map[string]string{"reboot-in-progress": "boot-0", "admitted": ""}, 0},
		{"request after a cancel", nodetest.WithAnnotations("n", "admitted="), request, "reboot requested", nil, protocol.Draining, map[string]string{"reboot-needed": "new kernel", "admitted": ""}, 1},
		{"request, with a reboot-now from elsewhere", nodetest.WithAnnotations("n", "reboot-now="), request, "reboot requested", nil, protocol.Needed, map[string]string{"reboot-needed": "new kernel", "reboot-now": ""}, 1},

		{"cancel", nodetest.WithAnnotations("n", "reboot-needed=old", "failures=2", "retry-after=later"), cancel, "reboot cancelled", nil, protocol.Idle, map[string]string{"sentinel-ignored": "old", "last-attempt": "now"}, 1},
		{"cancel a drain", nodetest.WithAnnotations("n", "reboot-needed=old", "admitted=", "cordoned=true"), cancel, "reboot cancelled", nil, protocol.Cancelled, map[string]string{"sentinel-ignored": "old", "last-attempt": "now", "admitted": "", "cordoned": "true"}, 1},
		{"cancel before the agent acts", nodetest.WithAnnotations("n", "reboot-now=old", "admitted="), cancel, "reboot cancelled", nil, protocol.Cancelled, map[string]string{"sentinel-ignored": "old", "last-attempt": "now", "admitted": ""}, 1},
		{"cancel too late", nodetest.WithAnnotations("n", "reboot-in-progress=boot-0", "admitted="), cancel, "", protocol.ErrTooLate, protocol.InProgress, map[string]string{"reboot-in-progress": "boot-0", "admitted": ""}, 0},
		{"cancel the second of two", nodetest.WithAnnotations("n", "reboot-in-progress=boot-0", "admitted=", "reboot-needed=new"), cancel, "reboot after the one in progress cancelled", nil, protocol.InProgress, map[string]string{"reboot-in-progress": "boot-0", "admitted": ""}, 1},
		{"cancel again", nodetest.WithAnnotations("n", "admitted="), cancel, "reboot already cancelled", nil, protocol.Cancelled, map[string]string{"admitted": ""}, 0},
		{"nothing to cancel", nodetest.WithAnnotations("n"), cancel, "no reboot requested", nil, protocol.Idle, map[string]string{}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			client := fake.NewClientset(test.node)
			done, err := test.do(t.Context(), client)
			require.ErrorIs(t, err, test.err)
			require.Equal(t, test.done, done)
			require.Equal(t, test.writes, nodetest.CountWrites(client.Actions()))
			phase, annotations := nodeNow(t, client, "n")
			require.Equal(t, test.phase, phase)
			require.Equal(t, test.after, annotations)
		})
	}
}

// A Node whose reboot begins between the reading and the writing of the plugin is not cancelled any more.
func TestCancelRepeatsAfterAConflict(t *testing.T) {
	client := fake.NewClientset(nodetest.WithAnnotations("n", "reboot-now=old", "admitted="))
	patches := 0
	client.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patches++
		if patches > 1 {
			return false, nil, nil
		}
		node := nodetest.WithAnnotations("n", "reboot-in-progress=boot-0", "admitted=")
		if err := client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, ""); err != nil {
			return true, nil, err
		}
		return true, nil, apierrors.NewConflict(corev1.Resource("nodes"), "n", errors.New("changed"))
	})
	_, err := protocol.Cancel(t.Context(), client, "n")
	require.ErrorIs(t, err, protocol.ErrTooLate)
	require.EqualError(t, err, `node "n": the reboot is in progress; it is too late to cancel it`)
	require.Equal(t, 1, patches)
}

// The write names the Node that was read and its resourceVersion.
func TestRequestIsConditional(t *testing.T) {
	node := nodetest.WithAnnotations("n")
	node.UID, node.ResourceVersion = "uid-1", "42"
	client := fake.NewClientset(node)
	_, err := protocol.Request(t.Context(), client, "n", "")
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
		changed, created, err := protocol.SetPaused(t.Context(), client, "ns", "ledger", protocol.Pause{}, paused)
		require.NoError(t, err)
		require.Equal(t, []bool{wantChanged, wantCreated}, []bool{changed, created})
	}
	settings := func() *protocol.Settings {
		t.Helper()
		configMap, err := client.CoreV1().ConfigMaps("ns").Get(t.Context(), "ledger", metav1.GetOptions{})
		require.NoError(t, err)
		return protocol.SettingsOf(configMap)
	}
	set(false, false, false)
	set(true, true, true)
	require.NotEmpty(t, settings().Pauses)
	set(true, false, false)
	require.NoError(t, protocol.PublishFlags(t.Context(), client, "ns", "ledger", map[string]string{"max-unavailable": "2"}))
	require.NotEmpty(t, settings().Pauses)
	set(false, true, false)
	require.Empty(t, settings().Pauses)
	require.Equal(t, map[string]string{"max-unavailable": "2"}, settings().Flags)
	set(false, false, false)

	client.ClearActions()
	require.NoError(t, protocol.PublishFlags(t.Context(), client, "ns", "ledger", map[string]string{"max-unavailable": "2"}))
	require.Zero(t, nodetest.CountWrites(client.Actions()), "the flags have not changed")
}

// A key without a value pauses reboots, too.
func TestResumeALedgerWhoseSwitchIsEmpty(t *testing.T) {
	client := fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "ledger"}, Data: map[string]string{"paused": ""}})
	changed, _, err := protocol.SetPaused(t.Context(), client, "ns", "ledger", protocol.Pause{}, false)
	require.NoError(t, err)
	require.True(t, changed)
	configMap, err := client.CoreV1().ConfigMaps("ns").Get(t.Context(), "ledger", metav1.GetOptions{})
	require.NoError(t, err)
	require.Empty(t, protocol.SettingsOf(configMap).Pauses)
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
			changed, created, err := protocol.SetPaused(t.Context(), client, "ns", "ledger", protocol.Pause{}, true)
			require.NoError(t, err)
			require.True(t, changed)
			require.Equal(t, test.created, created)
			configMap, err := client.CoreV1().ConfigMaps("ns").Get(t.Context(), "ledger", metav1.GetOptions{})
			require.NoError(t, err)
			require.NotEmpty(t, protocol.SettingsOf(configMap).Pauses)
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
			settings := protocol.SettingsOf(&corev1.ConfigMap{Data: test.data})
			require.Equal(t, test.warning, settings.Warning)
			require.Empty(t, settings.Slots(nil, ""))
		})
	}
}

func TestSettingsSlots(t *testing.T) {
	settings := protocol.SettingsOf(&corev1.ConfigMap{Data: map[string]string{"slots": `{"about-to-drain":"10","drains":"10","done":"10","deleted":"10","new":"30"}`}})
	at := func(node *corev1.Node, version string) *corev1.Node {
		node.ResourceVersion = version
		return node
	}
	nodes := []*corev1.Node{
		at(nodetest.WithAnnotations("about-to-drain", "reboot-needed="), "10"),
		at(nodetest.WithAnnotations("drains", "reboot-needed=", "admitted="), "11"),
		at(nodetest.WithAnnotations("done"), "12"),
	}
	want := map[string]bool{"about-to-drain": true, "drains": true, "new": true}
	require.Equal(t, want, settings.Slots(nodes, "20"))
	require.Equal(t, want, settings.Slots(nodes, "20"), "the first call has changed the settings")
}
