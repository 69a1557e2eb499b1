package torture

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/oracle"
	"example.com/controllers/harness/testinput"
)

// TestMain keeps test programs with the race detector from a second of sleep at their end.
func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	os.Exit(m.Run())
}

// hangs is how long anything may take that is waited for. It is no expectation, only an end.
const hangs = time.Minute

// read reads a scenario from text. There is a manifest there.yaml beside it.
func read(t *testing.T, text string) (*Scenario, error) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "there.yaml"), nil, 0o600))
	file := filepath.Join(dir, "scenario.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return Read(file)
}

func TestRead(t *testing.T) {
	s, err := read(t, `
controller: {module: ../.., package: ./cmd/shop, args: ["--kubeconfig={kubeconfig}"]}
manifests: [there.yaml, /bin/sh]
account: shop
resources: [pods, deployments.apps]
ready:
- rule: size(pods) == 2
setup:
- name: an old Pod
  do:
  - delete: {resource: pods, selector: app=frontend}
steps:
- name: a change
  when:
  - rule: size(deployments) == 1
    message: '"there are " + string(size(deployments))'
  do:
  - patch: {resource: deployments.apps, name: frontend, merge: {spec: {replicas: 3}}}
  - controller: stop
  - apply: {apiVersion: v1, kind: ConfigMap, metadata: {name: config}, data: {a: b}}
  - controller: start
  - delete: {resource: pods, name: a}
  - pause: 1500ms
  goOn: true
converged:
- rule: size(pods) == 3
patience: 20s
quiet: 3s
says: [done]
namespace: shop
invariants:
- rule: change.type != "DELETED" || now > timestamp(change.old.metadata.creationTimestamp)
mostTries: 9
mayDiffer:
  fields: ["pods: spec.nodeName", "deployments: status.*.x"]
  writes: [update pods/status, needless]
  atRest: [update leases]
stopsWith: -1
mayExit: 1
`)
	require.NoError(t, err)
	require.Equal(t, &Controller{Program: Program{Module: "../..", Package: "./cmd/shop", Args: []string{"--kubeconfig={kubeconfig}"}}}, s.Controller)
	require.Equal(t, []string{"pods", "deployments"}, s.plurals())
	require.Equal(t, 20*time.Second, s.Patience.Duration)
	require.Equal(t, 3*time.Second, s.Quiet.Duration)
	require.Equal(t, []string{"update pods/status", "needless"}, s.MayDiffer.Writes)
	require.Len(t, s.mayDiffer, 2)
	require.Equal(t, []string{"update leases"}, s.MayDiffer.AtRest)
	require.Equal(t, -1, s.StopsWith)
	require.Equal(t, 1, s.MayExit)
	require.Equal(t, 9, s.MostTries)
	do := s.Steps[0].Do
	require.Equal(t, &Reference{Resource: "deployments.apps", Name: "frontend"}, do[0].reference())
	require.Equal(t, map[string]any{"spec": map[string]any{"replicas": int64(3)}}, jsonNumbers(do[0].Patch.Merge))
	require.Equal(t, "stop", do[1].Controller)
	require.Equal(t, "ConfigMap", do[2].Apply["kind"])
	require.Equal(t, &Reference{Resource: "pods", Name: "a"}, do[4].Delete)
	require.Nil(t, do[4].reference())
	require.Equal(t, 1500*time.Millisecond, do[5].Pause.Duration)
	require.True(t, s.Steps[0].GoOn)
	require.Equal(t, filepath.Join(filepath.Dir(s.path), "there.yaml"), s.file("there.yaml"))
	require.Equal(t, "/there.yaml", s.file("/there.yaml"))

	require.False(t, s.rulesNameNamespace())
	r, err := s.compile("")
	require.NoError(t, err)
	require.Len(t, r.setup, 1)
	require.Len(t, r.when, 1)
	none := oracle.State{}
	require.Nil(t, r.setup[0].Check(none, nil))
	require.Equal(t, "there are 0", r.when[0].Check(none, nil).Message)
	require.Equal(t, "the rule does not hold: size(pods) == 2", r.ready.Check(none, nil).Message)
	require.Equal(t, "the rule does not hold: size(pods) == 3", r.converged.Check(none, nil).Message)
}

// jsonNumbers makes whole numbers of those that JSON has.
func jsonNumbers(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			value[key] = jsonNumbers(value[key])
		}
	case float64:
		return int64(value)
	}
	return value
}

const least = "resources: [pods]\nconverged: [{rule: 'true'}]\n"

func TestReadTheLeast(t *testing.T) {
	s, err := read(t, least)
	require.NoError(t, err)
	require.Equal(t, 30*time.Second, s.Patience.Duration)
	require.Equal(t, 2*time.Second, s.Quiet.Duration)
	require.Zero(t, s.StopsWith)
	_, err = s.Build(t.Context(), nil)
	require.EqualError(t, err, "the scenario names no controller; give its command after --")
}

func TestReadRefuses(t *testing.T) {
	const twoThings = "step 1: each entry of do must be one of patch, apply, delete, request, controller, stop, kill, start, machine, pause"
	const reference = "step 1: patch and delete need a resource, and either a name or a selector"
	do := func(action string) string { return least + "steps: [{name: a, do: [" + action + "]}]" }
	for name, c := range map[string]struct{ text, want string }{
		"no YAML":                        {"resources: [", "read the scenario "},
		"an unknown field":               {least + "color: red", `unknown field "color"`},
		"an unknown field of a step":     {least + "steps: [{name: a, then: []}]", `unknown field "then"`},
		"an unknown field of a patch":    {do("patch: {resource: pods, name: a, json: {}}"), `unknown field "json"`},
		"an unknown field of a rule":     {"resources: [pods]\nconverged: [{rule: 'true', why: no}]", `unknown field "why"`},
		"a field that is there twice":    {least + "resources: [secrets]", `"resources" already set`},
		"a duration without a unit":      {least + "patience: 5", "patience"},
		"nothing":                        {"", "resources is empty; name those whose objects count, such as pods"},
		"no resources":                   {"converged: [{rule: 'true'}]", "resources is empty; name those whose objects count, such as pods"},
		"no converged":                   {"resources: [pods]", "converged is empty; it needs a condition that holds when the controller has done its job"},
		"no patience":                    {least + "patience: -1s", "patience and quiet must not be negative"},
		"no quiet":                       {least + "quiet: -1s", "patience and quiet must not be negative"},
		"a negative number of tries":     {least + "mostTries: -1", "mostTries must not be negative"},
		"nothing to do":                  {least + "steps: [{name: a}]", "step 1: do is empty"},
		"nothing to do in a setup":       {least + "setup: [{name: a, do: []}]", "step 1: do is empty"},
		"an action that is none":         {do("{}"), twoThings},
		"an action with two things":      {do("{controller: stop, pause: 1s}"), twoThings},
		"a patch and a delete":           {do("{patch: {resource: pods, name: a, merge: {}}, delete: {resource: pods, name: a}}"), twoThings},
		"a patch without a name":         {do("patch: {resource: pods, merge: {}}"), reference},
		"a patch without a resource":     {do("patch: {name: a, merge: {}}"), reference},
		"a patch with both":              {do("patch: {resource: pods, name: a, selector: b=c, merge: {}}"), reference},
		"a delete without a name":        {do("delete: {resource: pods}"), reference},
		"a delete without a resource":    {do("delete: {selector: a=b}"), reference},
		"a controller that is neither":   {do("controller: restart"), `step 1: controller is "restart"; it must be stop or start`},
		"an apply that names a file":     {do("apply: {file: pod.yaml}"), "step 1: apply must be an object, written here, with apiVersion, kind and metadata.name; files with objects go into manifests"},
		"an apply without a name":        {do("apply: {apiVersion: v1, kind: Pod, metadata: {generateName: a-}}"), "step 1: apply must be an object"},
		"the second step":                {least + "steps: [{name: a, do: [pause: 1s]}, {name: b, do: [{}]}]", "step 2: each entry of do"},
		"a missing manifest":             {least + "manifests: [there.yaml, missing.yaml]", "missing.yaml: no such file or directory"},
		"a path that is none":            {least + "mayDiffer: {fields: [spec.nodeName]}", `mayDiffer.fields: "spec.nodeName" is not of the form RESOURCE: FIELD.FIELD`},
		"a path with a group":            {least + "mayDiffer: {fields: ['deployments.apps: spec']}", `mayDiffer.fields: "deployments.apps: spec" is not of the form`},
		"bad CEL":                        {"resources: [pods]\nconverged: [{rule: size(pods}]", `converged: rule "size(pods": `},
		"a rule that is no condition":    {"resources: [pods]\nconverged: [{rule: size(pods)}]", `converged: rule "size(pods)": it has type int, but must have type bool`},
		"a message that is none":         {least + "ready: [{rule: 'true', message: there are none}]", `ready: message "there are none": `},
		"a resource that is not watched": {"resources: [deployments.apps]\nconverged: [{rule: size(deployments) == 0}, {rule: size(pods) == 0}]", "undeclared reference to 'pods'"},
		"an invariant":                   {least + "invariants: [{rule: size(nodes) == 0}]", `invariants: rule "size(nodes) == 0": `},
		"a when":                         {least + "steps: [{name: the change, when: [{rule: size(nodes) == 0}], do: [pause: 1s]}]", `step "the change": rule "size(nodes) == 0": `},
		"a when of a setup":              {least + "setup: [{name: the change, when: [{rule: size(nodes) == 0}], do: [pause: 1s]}]", `setup "the change": rule "size(nodes) == 0": `},
		"the first of two":               {least + "ready: [{rule: a}]\ninvariants: [{rule: b}]", `ready: rule "a": `},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := read(t, c.text)
			require.Nil(t, s)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "scenario")
			require.ErrorContains(t, err, "scenario.yaml: ", "it says which file")
		})
	}
}

func TestReadNothing(t *testing.T) {
	_, err := Read(filepath.Join(t.TempDir(), "missing.yaml"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "read the scenario: ")
}

// The state of a resource is known by its plural.
func TestTwoResourcesOfOnePlural(t *testing.T) {
	_, err := read(t, "resources: [events, events.events.k8s.io]\nconverged: [{rule: 'true'}]")
	require.ErrorContains(t, err, "events")
}

// The scenarios of the workshop can be read.
func TestReadOurs(t *testing.T) {
	lessons, err := filepath.Glob("../../0*")
	require.NoError(t, err)
	testinput.DeclareOnly("../..") // a lesson may come
	for _, lesson := range lessons {
		testinput.DeclareOnly(filepath.Join(lesson, "test"), filepath.Join(lesson, "test", "torture")) // or get a scenario
	}
	var files []string
	for _, pattern := range []string{"../../*/test/torture/scenario.yaml", "../others/*.yaml"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		files = append(files, found...)
	}
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if !hasLine(string(text), "converged:") { // a manifest
			continue
		}
		t.Run(file, func(t *testing.T) {
			_, err := Read(file)
			require.NoError(t, err)
		})
	}
}

// {namespace} stands for the run's namespace wherever a step or a rule may name it.
func TestNamespaceOfTheRun(t *testing.T) {
	s, err := read(t, `
scope: cluster
resources: [configmaps]
converged:
- rule: configmaps.exists(c, c.metadata.namespace == "{namespace}")
  message: '"nothing in {namespace}"'
steps:
- name: a change
  do:
  - apply: {apiVersion: v1, kind: ConfigMap, metadata: {name: "{namespace}-a", namespace: "{namespace}", generation: 3}, data: {list: ["in {namespace}"]}}
  - patch: {resource: configmaps, namespace: "{namespace}", name: a, merge: {data: {a: "{namespace}"}}}
  - delete: {resource: configmaps, selector: "in={namespace}"}
  - pause: 1500ms
`)
	require.NoError(t, err)
	require.True(t, s.rulesNameNamespace())
	do := s.Steps[0].Do
	in := func(a Action) Action {
		replaced, err := inNamespace(a, "shop")
		require.NoError(t, err)
		return replaced
	}
	require.Equal(t, map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"list": []any{"in shop"}},
		"metadata": map[string]any{"name": "shop-a", "namespace": "shop", "generation": 3.0},
	}, in(do[0]).Apply)
	require.Equal(t, &Patch{Reference{Resource: "configmaps", Namespace: "shop", Name: "a"}, map[string]any{"data": map[string]any{"a": "shop"}}}, in(do[1]).Patch)
	require.Equal(t, "in=shop", in(do[2]).Delete.Selector)
	require.Equal(t, do[3], in(do[3]))
	require.Equal(t, "{namespace}-a", do[0].Apply["metadata"].(map[string]any)["name"], "the scenario itself stays as it is")

	r, err := s.compile("shop")
	require.NoError(t, err)
	state := func(namespace string) oracle.State {
		return oracle.State{"configmaps": {"a": {"metadata": map[string]any{"namespace": namespace}}}}
	}
	require.Nil(t, r.converged.Check(state("shop"), nil))
	violation := r.converged.Check(state("other"), nil)
	require.Equal(t, "nothing in shop", violation.Message)
	require.Equal(t, s.Converged[0].Rule, causeOf(violation, "shop"), "the cause is the same in every run")
}
