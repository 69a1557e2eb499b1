package protocol

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"example.com/controllers/reboot/internal/nodetest"
)

// ledgerServer returns a client of an API server that has at most one ConfigMap, nil for none. As the API server does, and
// the fake clientset does not, it counts resourceVersions, and rejects an update of any but the current one.
func ledgerServer(configMap *corev1.ConfigMap) *fake.Clientset {
	client := &fake.Clientset{}
	version := 1
	store := func(object runtime.Object) *corev1.ConfigMap {
		configMap = object.(*corev1.ConfigMap).DeepCopy()
		configMap.Namespace = "reboot"
		version++
		configMap.ResourceVersion = strconv.Itoa(version)
		return configMap.DeepCopy()
	}
	if configMap != nil {
		store(configMap)
	}
	client.AddReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		if configMap == nil {
			return true, nil, apierrors.NewNotFound(corev1.Resource("configmaps"), "reboot-ledger")
		}
		return true, configMap.DeepCopy(), nil
	})
	client.AddReactor("create", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return true, store(action.(clienttesting.CreateAction).GetObject()), nil
	})
	client.AddReactor("update", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		object := action.(clienttesting.UpdateAction).GetObject()
		if object.(*corev1.ConfigMap).ResourceVersion != configMap.ResourceVersion {
			return true, nil, apierrors.NewConflict(corev1.Resource("configmaps"), "reboot-ledger", errors.New("changed"))
		}
		return true, store(object), nil
	})
	return client
}

func newConfigMap(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "reboot", Name: "reboot-ledger"}, Data: data}
}

func read(ctx context.Context, t *testing.T, client kubernetes.Interface) *Ledger {
	t.Helper()
	l, err := ReadLedger(ctx, client, "reboot", "reboot-ledger")
	require.NoError(t, err)
	require.NotNil(t, l.Slots)
	return l
}

func TestReadLedger(t *testing.T) {
	tests := map[string]struct {
		configMap *corev1.ConfigMap
		slots     map[string]string
		paused    bool
	}{
		"none":           {nil, map[string]string{}, false},
		"without data":   {newConfigMap(nil), map[string]string{}, false},
		"no slots":       {newConfigMap(map[string]string{"slots": "{}"}), map[string]string{}, false},
		"null":           {newConfigMap(map[string]string{"slots": "null"}), map[string]string{}, false},
		"slots":          {newConfigMap(map[string]string{"slots": `{"n1":"10","n2":"12345678901234567890123"}`}), map[string]string{"n1": "10", "n2": "12345678901234567890123"}, false},
		"other keys":     {newConfigMap(map[string]string{"note": "do not touch"}), map[string]string{}, false},
		"paused":         {newConfigMap(map[string]string{"paused": "true"}), map[string]string{}, true},
		"paused, True":   {newConfigMap(map[string]string{"paused": "True"}), map[string]string{}, true},
		"paused, yes":    {newConfigMap(map[string]string{"paused": "yes"}), map[string]string{}, true},
		"paused, empty":  {newConfigMap(map[string]string{"paused": ""}), map[string]string{}, true},
		"paused, a typo": {newConfigMap(map[string]string{"paused": "ture"}), map[string]string{}, true},
		"not paused":     {newConfigMap(map[string]string{"paused": "false"}), map[string]string{}, false},
		"not paused, 0":  {newConfigMap(map[string]string{"paused": "0"}), map[string]string{}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			client := ledgerServer(test.configMap)
			l := read(t.Context(), t, client)
			require.Equal(t, test.slots, l.Slots)
			require.Equal(t, test.paused, len(l.Pauses) > 0)
			require.Equal(t, test.configMap == nil, len(client.Actions()) > 1, "it creates the ConfigMap only if there is none")
		})
	}
}

// A ledger that cannot be read stops admissions: whoever admits without it may exceed the budget.
func TestReadLedgerErrors(t *testing.T) {
	const where = `read the ledger, ConfigMap reboot/reboot-ledger: `
	const key = where + `key "slots": `
	const do = "; no Node is admitted until the key is corrected, or removed while no Node is being rebooted"
	for text, want := range map[string]string{
		``:                key + "unexpected end of JSON input" + do,
		`n1=10`:           key + "invalid character '1' in literal null (expecting 'u')" + do,
		`["n1"]`:          key + "json: cannot unmarshal array into Go value of type map[string]string" + do,
		`{"n1":10}`:       key + "json: cannot unmarshal number into Go value of type string" + do,
		`{"n1":""}`:       key + `the entry of Node n1: "" is not a resourceVersion` + do,
		`{"n1":null}`:     key + `the entry of Node n1: "" is not a resourceVersion` + do,
		`{"n1":"0"}`:      key + `the entry of Node n1: "0" is not a resourceVersion` + do,
		`{"n1":"ten"}`:    key + `the entry of Node n1: "ten" is not a resourceVersion` + do,
		`{"n1":"1","n1":`: key + "unexpected end of JSON input" + do,
	} {
		t.Run(text, func(t *testing.T) {
			_, err := ReadLedger(t.Context(), ledgerServer(newConfigMap(map[string]string{"slots": text})), "reboot", "reboot-ledger")
			require.ErrorContains(t, err, want)
		})
	}

	forbidden := apierrors.NewForbidden(corev1.Resource("configmaps"), "reboot-ledger", errors.New("no RBAC"))
	for _, verb := range []string{"get", "create"} {
		t.Run("not allowed to "+verb, func(t *testing.T) {
			client := ledgerServer(nil)
			client.PrependReactor(verb, "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, forbidden })
			_, err := ReadLedger(t.Context(), client, "reboot", "reboot-ledger")
			require.ErrorContains(t, err, where)
			require.ErrorIs(t, err, forbidden)
		})
	}
}

func TestSaveKeepsWhatElseIsInTheLedger(t *testing.T) {
	client := ledgerServer(newConfigMap(map[string]string{"slots": `{"n1":"10"}`, "paused": "true", "note": "do not touch"}))
	l := read(t.Context(), t, client)
	delete(l.Slots, "n1")
	l.Slots["n2"] = "20"
	require.NoError(t, l.Save(t.Context(), client))

	again := read(t.Context(), t, client)
	require.Equal(t, map[string]string{"n2": "20"}, again.Slots)
	require.Equal(t, map[string]string{"slots": `{"n2":"20"}`, "paused": "true", "note": "do not touch"}, again.configMap.Data)

	l.Slots["n3"] = "30"
	require.NoError(t, l.Save(t.Context(), client), "one ledger can be saved twice")
	require.Equal(t, map[string]string{"n2": "20", "n3": "30"}, read(t.Context(), t, client).Slots)
}

func TestSaveFailsIfTheLedgerHasChanged(t *testing.T) {
	tests := map[string]func(t *testing.T, client kubernetes.Interface){
		"another controller admitted a Node": func(t *testing.T, client kubernetes.Interface) {
			other := read(t.Context(), t, client)
			other.Slots["n2"] = "20"
			require.NoError(t, other.Save(t.Context(), client))
		},
		"somebody paused reboots": func(t *testing.T, client kubernetes.Interface) {
			configMap := read(t.Context(), t, client).configMap
			configMap.Data = map[string]string{"paused": "true"}
			_, err := client.CoreV1().ConfigMaps("reboot").Update(t.Context(), configMap, metav1.UpdateOptions{})
			require.NoError(t, err)
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			client := ledgerServer(nil)
			l := read(t.Context(), t, client)
			change(t, client)
			l.Slots["n1"] = "10"
			err := l.Save(t.Context(), client)
			require.True(t, apierrors.IsConflict(err), "%v", err)
			require.ErrorContains(t, err, "write the ledger, ConfigMap reboot/reboot-ledger: ")
			require.NotContains(t, read(t.Context(), t, client).Slots, "n1")
		})
	}
}

func TestSettle(t *testing.T) {
	version := func(version string) nodetest.Property {
		return func(node *corev1.Node) { node.ResourceVersion = version }
	}
	by := func(ledger string) nodetest.Property { return nodetest.Annotation(AdmittedByAnnotation, ledger) }
	tests := map[string]struct {
		node       *corev1.Node // in the cache; the ledger has it with resourceVersion 10
		cache      string       // its resourceVersion
		kept       bool
		unfinished bool
	}{
		"not admitted yet": {nodetest.New("n1", nodetest.Needed, version("10")), "15", true, true},
		"not admitted yet, and nothing newer is cached": {nodetest.New("n1", nodetest.Needed, version("10")), "10", true, true},
		"admitted":                                      {nodetest.New("n1", nodetest.Draining, version("11")), "15", true, false},
		"drained":                                       {nodetest.New("n1", nodetest.Approved, version("12")), "15", true, false},
		"in progress":                                   {nodetest.New("n1", nodetest.InProgress, version("13")), "15", true, false},
		"cancelled":                                     {nodetest.New("n1", nodetest.Cancelled, version("13")), "15", true, false},
		"admitted by this one":                          {nodetest.New("n1", nodetest.Draining, version("11"), by("ns/ledger")), "15", true, false},
		"admitted by another":                           {nodetest.New("n1", nodetest.Draining, version("11"), by("other/ledger")), "15", false, false},
		"admitted by another, long ago":                 {nodetest.New("n1", nodetest.Draining, version("9"), by("other/ledger")), "15", true, false},
		"rebooted":                                      {nodetest.New("n1", version("14")), "15", false, false},
		"rebooted, and needed again":                    {nodetest.New("n1", nodetest.Needed, version("14")), "15", false, false},
		"given up":                                      {nodetest.New("n1", nodetest.Needed, version("14"), nodetest.LastAttempt(0)), "15", false, false},
		"changed before it was admitted":                {nodetest.New("n1", nodetest.Needed, version("11")), "15", false, false},
		"cancelled before it was admitted":              {nodetest.New("n1", version("11")), "15", false, false},
		"the cache has it from before":                  {nodetest.New("n1", version("9")), "9", true, false},
		"the cache has it from before, and needed":      {nodetest.New("n1", nodetest.Needed, version("9")), "9", true, false},
		"from before, as a number":                      {nodetest.New("n1", version("9")), "10", true, false},
		"newer, as a number":                            {nodetest.New("n1", version("100")), "100", false, false},
		"the Node is gone":                              {nil, "11", false, false},
		"the Node is too new for the cache":             {nil, "9", true, false},
		"the cache does not show that the Node is gone": {nil, "10", true, false},
		"another Node came under the same name":         {nodetest.New("n1", version("14")), "15", false, false},
		"the Node's version cannot be compared":         {nodetest.New("n1", version("")), "15", true, false},
		"the cache's version is not known":              {nil, "", true, false},
		"the cache's version cannot be compared":        {nil, "eleven", true, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := &Ledger{ID: "ns/ledger", Slots: map[string]string{"n1": "10"}}
			nodes := []*corev1.Node{nodetest.New("n2", nodetest.Needed, version("10"))} // not in the ledger
			if test.node != nil {
				nodes = append(nodes, test.node)
			}
			unfinished := l.Settle(nodes, test.cache)
			if test.unfinished {
				require.Equal(t, []*corev1.Node{test.node}, unfinished)
			} else {
				require.Empty(t, unfinished)
			}
			require.Equal(t, test.kept, l.Names()["n1"])
			require.Equal(t, len(l.Slots), len(l.Names()))
		})
	}
}

func TestSettleEachEntry(t *testing.T) {
	l := &Ledger{Slots: map[string]string{"done": "10", "begun": "11", "entered": "12", "gone": "13"}}
	entered := nodetest.New("entered", nodetest.Needed, func(node *corev1.Node) { node.ResourceVersion = "12" })
	unfinished := l.Settle([]*corev1.Node{
		nodetest.New("done", func(node *corev1.Node) { node.ResourceVersion = "20" }),
		nodetest.New("begun", nodetest.Draining, func(node *corev1.Node) { node.ResourceVersion = "21" }),
		entered,
	}, "21")
	require.Equal(t, []*corev1.Node{entered}, unfinished)
	require.Equal(t, map[string]string{"begun": "11", "entered": "12"}, l.Slots)
}
