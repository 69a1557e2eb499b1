package draft

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"example.com/controllers/harness/oracle"
)

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {app.kubernetes.io/name: web}
  managedFields:
  - manager: mine
    operation: Apply
    fieldsType: FieldsV1
    fieldsV1:
      f:metadata: {f:labels: {f:app.kubernetes.io/name: {}}}
      f:spec:
        f:replicas: {}
        f:paused: {}
        f:template: {f:spec: {f:containers: {'k:{"name":"web"}': {.: {}, f:name: {}, f:image: {}, f:args: {}}}}}
  - manager: kube-controller-manager
    operation: Update
    fieldsType: FieldsV1
    fieldsV1: {f:status: {f:replicas: {}}}
spec:
  replicas: 3
  template: {spec: {containers: [{name: side, image: side:1}, {name: web, image: "nginx:1.29", args: [a]}]}}
status: {replicas: 3}
`

func object(t *testing.T, text string) oracle.Object {
	data, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	var o oracle.Object
	require.NoError(t, json.Unmarshal(data, &o))
	return whole(o).(oracle.Object)
}

// whole returns a value in which numbers without a fraction are of the type that client-go decodes them to.
func whole(value any) any {
	switch value := value.(type) {
	case float64:
		if value == float64(int64(value)) {
			return int64(value)
		}
	case map[string]any:
		for key := range value {
			value[key] = whole(value[key])
		}
	case []any:
		for i := range value {
			value[i] = whole(value[i])
		}
	}
	return value
}

// The fields of a manager are those that it has set to a single value, but those by which items of a list are known.
func TestManaged(t *testing.T) {
	o := object(t, deployment)
	var paths []string
	for _, path := range managed(o, func(manager string) bool { return manager == "mine" }) {
		paths = append(paths, path.String())
	}
	require.Equal(t, []string{"spec.replicas", "spec.template.spec.containers[web].image", `metadata.labels["app.kubernetes.io/name"]`}, paths)
}

// A patch changes the field and nothing else. Of a list, it has all other items.
func TestChanges(t *testing.T) {
	o := object(t, deployment)
	web := target{resource: "deployments.apps", name: "web"}
	all := managed(o, func(manager string) bool { return manager == "mine" })
	var patches []string
	for _, path := range all {
		patch := changes(web, o, path)[0]
		require.Equal(t, web.reference(), patch.Reference)
		text, err := json.Marshal(patch.Merge)
		require.NoError(t, err)
		patches = append(patches, string(text))
	}
	require.Equal(t, []string{
		`{"spec":{"replicas":4}}`,
		`{"spec":{"template":{"spec":{"containers":[{"image":"side:1","name":"side"},{"args":["a"],"image":"nginx:1.30","name":"web"}]}}}}`,
		`{"metadata":{"labels":{"app.kubernetes.io/name":"web-changed"}}}`,
	}, patches)
	image, _ := get(o, all[1])
	require.Equal(t, "nginx:1.29", image, "the object itself is not changed")
}

// No value of a Secret gets into a scenario: neither into a step, nor into a rule.
func TestSecretsStaySecret(t *testing.T) {
	const password = "aHVudGVyMg=="
	of := target{resource: "secrets", name: "s"}
	path := fieldPath{"data", "password"}
	with := func(value string) oracle.Object {
		return object(t, fmt.Sprintf("{metadata: {name: s}, data: {password: %s}}", value))
	}
	values := []string{password}
	for range 3 { // it is changed again and again
		patches := changes(of, with(values[len(values)-1]), path)
		require.NotEmpty(t, patches)
		for _, patch := range patches {
			require.NotContains(t, fmt.Sprint(patch.Merge), password)
		}
		to, _ := get(patches[0].Merge, path)
		require.NotEqual(t, values[len(values)-1], to, "each change is one")
		values = append(values, to.(string))
	}
	for i, value := range values[:3] { // the person's, and both of ours
		text := field{of, path}.wants(value)
		require.NotContains(t, text, password)
		rules, err := oracle.NewRules([]string{"secrets"}, []oracle.Condition{{Rule: text}})
		require.NoError(t, err)
		for j, other := range values[:3] {
			holds := rules.Check(oracle.State{"secrets": {"s": with(other)}}, nil) == nil
			require.Equal(t, i == j, holds, "the rule of %q with %q", value, other)
		}
		require.NotNil(t, rules.Check(oracle.State{"secrets": {}}, nil), "without the Secret")
	}
	require.True(t, isVolatile(fieldPath{"metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"}, "{}"))
	require.Equal(t, `configmaps.exists(o, o.metadata.name == "s" && !has(o.metadata.deletionTimestamp) && o.?data.?password.orValue(null) == "x")`,
		field{target{resource: "configmaps", name: "s"}, path}.wants("x"), "a ConfigMap has no secrets")
}

func TestOthers(t *testing.T) {
	for _, c := range []struct {
		value any
		want  []any
	}{
		{true, []any{false}},
		{int64(3), []any{int64(4), int64(2)}},
		{"7", []any{"8", "7-changed", "changed"}},
		{"192.168.0.1", []any{"192.168.0.2", "192.168.0.1-changed", "changed"}},
		{"500m", []any{"501m", "500m-changed", "changed"}},
		{"hello", []any{"hello-changed", "changed"}},
		{"99999999999999999999", []any{"99999999999999999999-changed", "changed"}},
		{nil, nil},
	} {
		require.Equal(t, c.want, others(c.value), "%v", c.value)
	}
}

// The rule of a field holds for the object that it was read from, and not for one in which it is another or missing.
func TestRule(t *testing.T) {
	o := object(t, deployment)
	for _, c := range []struct {
		path fieldPath
		want string
	}{
		{fieldPath{"spec", "replicas"}, "o.?spec.?replicas.orValue(null) == 3"},
		{fieldPath{"metadata", "labels", "app.kubernetes.io/name"}, `o.?metadata.?labels[?"app.kubernetes.io/name"].orValue(dyn(null)) == "web"`},
		{fieldPath{"spec", "template", "spec", "containers", `k:{"name":"web"}`, "image"}, `o.?spec.?template.?spec.?containers.orValue([]).exists(p, p.?name.orValue(null) == "web" && p.?image.orValue(null) == "nginx:1.29")`},
	} {
		value, ok := get(o, c.path)
		require.True(t, ok)
		text := rule(variable, c.path, value)
		require.Equal(t, c.want, text)
		rules, err := oracle.NewRules([]string{"deployments"}, []oracle.Condition{{Rule: "deployments.all(o, " + text + ")"}})
		require.NoError(t, err)
		check := func(o oracle.Object) *oracle.Violation {
			return rules.Check(oracle.State{"deployments": {"web": o}}, nil)
		}
		require.Nil(t, check(o))
		other := object(t, deployment)
		set(other, c.path, "another")
		require.NotNil(t, check(other))
		require.NotNil(t, check(oracle.Object{"metadata": map[string]any{"name": "web"}}))
	}
}

func TestIsVolatile(t *testing.T) {
	for _, c := range []struct {
		path  fieldPath
		value any
		want  bool
	}{
		{fieldPath{"spec", "replicas"}, int64(3), false},
		{fieldPath{"status", "phase"}, "Ready", false},
		{fieldPath{"status", "message"}, "x", true},
		{fieldPath{"status", "lastTransitionTime"}, "x", true},
		{fieldPath{"metadata", "annotations", "restartedAt"}, "2026-11-29T07:00:00Z", true},
		{fieldPath{"status", "networkID"}, "0b6a3f3e-52a9-4a4e-8c58-9a6a0b9d0a55", true},
		{fieldPath{"spec", "clusterIP"}, "10.0.0.1", true},
		{fieldPath{"metadata", "annotations", "checksum"}, "9e107d9d372bb6826bd81d3542a419d6", true},
	} {
		require.Equal(t, c.want, isVolatile(c.path, c.value), "%s: %v", c.path, c.value)
	}
}
