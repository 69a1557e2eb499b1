package oracle_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/oracle"
)

// object reads an object from JSON.
func object(t *testing.T, text string) oracle.Object {
	t.Helper()
	var o oracle.Object
	require.NoError(t, json.Unmarshal([]byte(text), &o))
	return o
}

// paths reads what may differ.
func paths(t *testing.T, texts ...string) []oracle.Path {
	t.Helper()
	var all []oracle.Path
	for _, text := range texts {
		path, err := oracle.ParsePath(text)
		require.NoError(t, err)
		all = append(all, path)
	}
	return all
}

func TestParsePath(t *testing.T) {
	for text, is := range map[string]bool{
		"pods: spec.nodeName":              true,
		"pods:spec":                        true,
		"pods: status.*.a":                 true,
		"pods/web: spec":                   true,
		`pods: metadata.labels["a.b/c"].x`: true,
		`pods: metadata.labels[a]`:         false,
		`pods: metadata.labels["a`:         false,
		"pods: .spec":                      false,
		"pods: spec..x":                    false,
		"pods: spec.":                      false,
		"pods/: spec":                      false,
		"":                                 false,
		"pods":                             false,
		"spec.nodeName":                    false,
		"pods:":                            false,
		"pods: ":                           false,
		": spec":                           false,
		"deployments.apps: spec":           false,
		"the pods: spec.nodeName":          false,
	} {
		t.Run(text, func(t *testing.T) {
			_, err := oracle.ParsePath(text)
			if is {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "is not of the form RESOURCE: FIELD.FIELD, such as pods: spec.nodeName")
			require.ErrorContains(t, err, strconv.Quote(text))
		})
	}
}

func TestNormalizeRemovesWhatNeverIsEqual(t *testing.T) {
	for name, c := range map[string]struct{ one, two string }{
		"UIDs": {`{"metadata":{"name":"a","uid":"1","ownerReferences":[{"name":"o","uid":"2"}]}}`,
			`{"metadata":{"name":"a","uid":"3","ownerReferences":[{"name":"o","uid":"4"}]}}`},
		"times": {`{"metadata":{"name":"a","creationTimestamp":"2026-01-02T03:04:05Z"},"status":{"conditions":[{"at":"2026-01-02T03:04:05.678Z"}]}}`,
			`{"metadata":{"name":"a","creationTimestamp":"2027-01-02T03:04:05Z"},"status":{"conditions":[{"at":"2026-01-02T03:04:05.000001+01:00"}]}}`},
		"what etcd and the API server say": {`{"metadata":{"name":"a","resourceVersion":"1","selfLink":"x","managedFields":[{"manager":"m"}]}}`,
			`{"metadata":{"name":"a","resourceVersion":"2"}}`},
		"generated names": {`{"metadata":{"name":"a-x1","generateName":"a-"}}`, `{"metadata":{"name":"a-y2","generateName":"a-"}}`},
		"where a Pod is": {
			`{"metadata":{"name":"a"},"spec":{"nodeName":"n1"},"status":{"podIP":"1","podIPs":[{"ip":"1"}],"hostIP":"2","hostIPs":[],
				"containerStatuses":[{"name":"c","containerID":"1"}],"initContainerStatuses":[{"containerID":"1"}]}}`,
			`{"metadata":{"name":"a"},"spec":{"nodeName":"n2"},"status":{"podIP":"3","hostIP":"4",
				"containerStatuses":[{"name":"c","containerID":"2"}],"initContainerStatuses":[{"containerID":"2"}]}}`},
		"the address of a Service": {`{"metadata":{"name":"a"},"spec":{"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"]}}`,
			`{"metadata":{"name":"a"},"spec":{"clusterIP":"10.0.0.2","clusterIPs":["10.0.0.2"]}}`},
		"the volume of a token": {`{"metadata":{"name":"a"},"spec":{"volumes":[{"name":"kube-api-access-x1y2z"}],"mounts":["kube-api-access-x1y2z"]}}`,
			`{"metadata":{"name":"a"},"spec":{"volumes":[{"name":"kube-api-access-abcde"}],"mounts":["kube-api-access-abcde"]}}`},
		"the namespace": {`{"metadata":{"name":"a","namespace":"run-one"},"data":{"url":"http://a.run-one.svc","run-one":"1"}}`,
			`{"metadata":{"name":"a","namespace":"run-two"},"data":{"url":"http://a.run-two.svc","run-two":"1"}}`},
		"how many changes of the spec there were": {
			`{"metadata":{"name":"a","generation":2,"annotations":{"deployment.kubernetes.io/revision":"2","x":"y"}},
				"status":{"observedGeneration":2,"conditions":[{"type":"Ready","observedGeneration":2}]}}`,
			`{"metadata":{"name":"a","generation":3,"annotations":{"deployment.kubernetes.io/revision":"3","x":"y"}},
				"status":{"observedGeneration":3,"conditions":[{"type":"Ready","observedGeneration":3}]}}`},
		"how old a status is that is out of date": {`{"metadata":{"name":"a","generation":3},"status":{"observedGeneration":2}}`,
			`{"metadata":{"name":"a","generation":3},"status":{"observedGeneration":1}}`},
		"a UID in another object": {`{"metadata":{"name":"a","labels":{"of":"net-11111111-2222-3333-4444-555555555555"}},"data":{"claim":"pvc 11111111-2222-3333-4444-555555555555"}}`,
			`{"metadata":{"name":"a","labels":{"of":"net-99999999-2222-3333-4444-555555555555"}},"data":{"claim":"pvc 99999999-2222-3333-4444-555555555555"}}`},
		"the order of keys": {`{"metadata":{"name":"a"},"data":{"x":1,"y":2}}`, `{"data":{"y":2,"x":1},"metadata":{"name":"a"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			one := oracle.Normalize(oracle.State{"pods": {"any": object(t, c.one)}}, oracle.Scope{Namespace: "run-one"}, nil)
			two := oracle.Normalize(oracle.State{"pods": {"other": object(t, c.two)}}, oracle.Scope{Namespace: "run-two"}, nil)
			require.Len(t, one, 1)
			require.Equal(t, one, two)
			require.Empty(t, oracle.Compare(one, two))
		})
	}
}

// A status that is about an older spec than the one in the object differs from one that is not.
func TestStaleObservedGenerations(t *testing.T) {
	normalize := func(text string) []string {
		return oracle.Normalize(oracle.State{"networks": {"a": object(t, text)}}, oracle.Scope{Namespace: "shop"}, nil)
	}
	current := `{"metadata":{"name":"a","generation":3},"status":{"observedGeneration":3,"conditions":[{"observedGeneration":3}]}}`
	for stale, want := range map[string]string{
		`{"metadata":{"name":"a","generation":3},"status":{"observedGeneration":2,"conditions":[{"observedGeneration":3}]}}`: `network a: status.observedGeneration is "NOT CURRENT", should be "CURRENT"`,
		`{"metadata":{"name":"a","generation":4},"status":{"observedGeneration":3,"conditions":[{"observedGeneration":4}]}}`: `network a: status.observedGeneration is "NOT CURRENT", should be "CURRENT"`,
		`{"metadata":{"name":"a","generation":3},"status":{"observedGeneration":3,"conditions":[{"observedGeneration":2}]}}`: `network a: status.conditions is [{"observedGeneration":"NOT CURRENT"}], should be [{"observedGeneration":"CURRENT"}]`,
		`{"metadata":{"name":"a","generation":3},"status":{"conditions":[{"observedGeneration":3}]}}`:                        `network a: status.observedGeneration is missing, should be "CURRENT"`,
	} {
		differences := oracle.Compare(normalize(current), normalize(stale))
		require.Len(t, differences, 1)
		require.Equal(t, want, differences[0].String())
	}
	const outside = `{"metadata":{"name":"a"},"spec":{"observedGeneration":1},"status":{"observedGeneration":1}}`
	require.Equal(t, []string{"networks " + outside}, normalize(outside), "an object without a generation stays as it is")
}

// A Node has the address of its machine; that of a Gateway is the answer of a controller.
func TestNormalizeRemovesAddressesOfNodes(t *testing.T) {
	const text = `{"metadata":{"name":"a"},"status":{"addresses":[{"address":"10.0.0.1"}]}}`
	state := oracle.State{"nodes": {"a": object(t, text)}, "gateways": {"a": object(t, text)}}
	require.Equal(t, []string{"gateways " + text, `nodes {"metadata":{"name":"a"},"status":{}}`}, oracle.Normalize(state, oracle.Scope{Namespace: "shop"}, nil))
}

func TestNormalize(t *testing.T) {
	o := object(t, `{"metadata":{"name":"a","namespace":"shop","creationTimestamp":"2026-01-02T03:04:05Z","uid":"u"},"spec":{"day":"2026-01-02"}}`)
	before := object(t, `{"metadata":{"name":"a","namespace":"shop","creationTimestamp":"2026-01-02T03:04:05Z","uid":"u"},"spec":{"day":"2026-01-02"}}`)
	rootCA := object(t, `{"metadata":{"name":"kube-root-ca.crt"}}`)
	state := oracle.State{"pods": {"a": o}, "configmaps": {"kube-root-ca.crt": rootCA, "a": o}, "services": {}}
	texts := oracle.Normalize(state, oracle.Scope{Namespace: "shop"}, nil)
	const is = `{"metadata":{"creationTimestamp":"TIME","name":"a","namespace":"NAMESPACE"},"spec":{"day":"2026-01-02"}}`
	require.Equal(t, []string{"configmaps " + is, "pods " + is}, texts)
	require.Equal(t, before, o, "an object of a state is not changed")
	require.Empty(t, oracle.Normalize(nil, oracle.Scope{Namespace: "shop"}, nil))
}

func TestMayDiffer(t *testing.T) {
	const text = `{"metadata":{"name":"a","labels":{"x":"1","y":"2"}},"spec":{"nodes":[{"on":"1","at":"2"},{"on":"3"}],"map":{"k":{"on":"1"},"l":{"on":"2"}},"on":"7"}}`
	for path, want := range map[string]string{
		"pods: spec":                    `{"metadata":{"labels":{"x":"1","y":"2"},"name":"a"}}`,
		"pods: spec.nodes":              `{"metadata":{"labels":{"x":"1","y":"2"},"name":"a"},"spec":{"map":{"k":{"on":"1"},"l":{"on":"2"}},"on":"7"}}`,
		"pods: spec.nodes.*.on":         `{"metadata":{"labels":{"x":"1","y":"2"},"name":"a"},"spec":{"map":{"k":{"on":"1"},"l":{"on":"2"}},"nodes":[{"at":"2"},{}],"on":"7"}}`,
		"pods: spec.map.*.on":           `{"metadata":{"labels":{"x":"1","y":"2"},"name":"a"},"spec":{"map":{"k":{},"l":{}},"nodes":[{"at":"2","on":"1"},{"on":"3"}],"on":"7"}}`,
		"pods: spec.*.*.on":             `{"metadata":{"labels":{"x":"1","y":"2"},"name":"a"},"spec":{"map":{"k":{},"l":{}},"nodes":[{"at":"2"},{}],"on":"7"}}`,
		"pods: spec.map.*":              `{"metadata":{"labels":{"x":"1","y":"2"},"name":"a"},"spec":{"map":{},"nodes":[{"at":"2","on":"1"},{"on":"3"}],"on":"7"}}`,
		"pods: metadata.labels.x":       `{"metadata":{"labels":{"y":"2"},"name":"a"},"spec":{"map":{"k":{"on":"1"},"l":{"on":"2"}},"nodes":[{"at":"2","on":"1"},{"on":"3"}],"on":"7"}}`,
		"pods: metadata.labels.x.z":     text,
		"pods: status.phase":            text,
		"services: spec":                text,
		"pods/b: spec":                  text,
		"pods/a: spec":                  `{"metadata":{"labels":{"x":"1","y":"2"},"name":"a"}}`,
		`pods: metadata["labels"]["x"]`: `{"metadata":{"labels":{"y":"2"},"name":"a"},"spec":{"map":{"k":{"on":"1"},"l":{"on":"2"}},"nodes":[{"at":"2","on":"1"},{"on":"3"}],"on":"7"}}`,
	} {
		t.Run(path, func(t *testing.T) {
			texts := oracle.Normalize(oracle.State{"pods": {"a": object(t, text)}}, oracle.Scope{Namespace: "shop"}, paths(t, path))
			require.Len(t, texts, 1)
			require.JSONEq(t, want, strings.TrimPrefix(texts[0], "pods "))
		})
	}
}

// An object of which everything may differ still has a name.
func TestAllOfAnObjectMayDiffer(t *testing.T) {
	for _, path := range []string{"pods: metadata", "pods: *"} {
		t.Run(path, func(t *testing.T) {
			texts := oracle.Normalize(oracle.State{"pods": {"a": object(t, `{"metadata":{"name":"a","labels":{"x":"1"}}}`)}}, oracle.Scope{Namespace: "shop"}, paths(t, path))
			require.Equal(t, []string{`pods {"metadata":{"name":"a"}}`}, texts)
		})
	}
}

// In a path, "*" stands for every element of a list.
func TestAllOfAListMayDiffer(t *testing.T) {
	normal := func(text string) []string {
		return oracle.Normalize(oracle.State{"pods": {"a": object(t, text)}}, oracle.Scope{Namespace: "shop"}, paths(t, "pods: spec.list.*"))
	}
	require.Equal(t, normal(`{"metadata":{"name":"a"},"spec":{"list":["1","2"]}}`), normal(`{"metadata":{"name":"a"},"spec":{"list":["3","4"]}}`))
}

// join is what differences say.
func join(differences []oracle.Difference) string {
	var texts []string
	for _, d := range differences {
		texts = append(texts, d.String())
	}
	return strings.Join(texts, "; ")
}

func TestCompare(t *testing.T) {
	const a, b = `{"metadata":{"name":"a"},"spec":{"x":1}}`, `{"metadata":{"name":"b"},"spec":{"x":1}}`
	generated := func(name, value string) string {
		return `{"metadata":{"name":"` + name + `","generateName":"g-"},"value":"` + value + `"}`
	}
	long := strings.Repeat("0123456789", 10)
	for name, c := range map[string]struct {
		want, got []string // Pods
		says      string
	}{
		"nothing at all":    {nil, nil, ""},
		"the same":          {[]string{a, b}, []string{b, a}, ""},
		"one is missing":    {[]string{a, b}, []string{b}, "pod a is missing"},
		"all are missing":   {[]string{a, b}, nil, "pod a is missing; pod b is missing"},
		"one too many":      {[]string{a}, []string{a, b}, "pod b should not exist"},
		"one for another":   {[]string{a}, []string{b}, "pod a is missing; pod b should not exist"},
		"a field":           {[]string{a}, []string{strings.Replace(a, "1", "2", 1)}, "pod a: spec.x is 2, should be 1"},
		"a field too many":  {[]string{a}, []string{strings.Replace(a, "1", `1,"y":"z"`, 1)}, `pod a: spec.y is "z", should be missing`},
		"a field too few":   {[]string{a}, []string{strings.Replace(a, `"x":1`, "", 1)}, "pod a: spec.x is missing, should be 1"},
		"a map for a value": {[]string{a}, []string{strings.Replace(a, "1", `{"y":"z"}`, 1)}, `pod a: spec.x is {"y":"z"}, should be 1`},
		"a list": {[]string{strings.Replace(a, "1", "[1,2]", 1)}, []string{strings.Replace(a, "1", "[1,3]", 1)},
			"pod a: spec.x is [1,3], should be [1,2]"},
		"a long value": {[]string{a}, []string{strings.Replace(a, "1", `"`+long+`"`, 1)},
			`pod a: spec.x is "` + long[:59] + "…, should be 1"},
		"three fields": {[]string{a}, []string{`{"metadata":{"name":"a"},"b":1,"c":2}`},
			"pod a: b is 1, should be missing; c is 2, should be missing; spec is missing, should be {\"x\":1}"},
		"many fields": {[]string{a}, []string{`{"metadata":{"name":"a"},"e":1,"d":1,"c":1,"b":1}`},
			"pod a: b is 1, should be missing; c is 1, should be missing; d is 1, should be missing; …"},
		"generated ones":          {[]string{generated("g-1", "x"), generated("g-2", "x")}, []string{generated("g-3", "x"), generated("g-4", "x")}, ""},
		"a generated one differs": {[]string{generated("g-1", "x")}, []string{generated("g-2", "y")}, `pod g-*: value is "y", should be "x"`},
		"one of several that are the same is missing": {[]string{generated("g-1", "x"), generated("g-2", "x")}, []string{generated("g-3", "x")},
			"pod g-* is missing"},
		"one too many of the same": {[]string{generated("g-1", "x")}, []string{generated("g-2", "x"), generated("g-3", "x")},
			"pod g-* should not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			world := func(texts []string) []string {
				objects := map[string]oracle.Object{}
				for _, text := range texts {
					o := object(t, text)
					objects[o["metadata"].(oracle.Object)["name"].(string)] = o
				}
				return oracle.Normalize(oracle.State{"pods": objects}, oracle.Scope{Namespace: "shop"}, nil)
			}
			require.Equal(t, c.says, join(oracle.Compare(world(c.want), world(c.got))))
		})
	}
}

func TestCompareResources(t *testing.T) {
	o := object(t, `{"metadata":{"name":"a"}}`)
	pods := oracle.Normalize(oracle.State{"pods": {"a": o}}, oracle.Scope{Namespace: "shop"}, nil)
	services := oracle.Normalize(oracle.State{"services": {"a": o}}, oracle.Scope{Namespace: "shop"}, nil)
	require.Equal(t, "pod a is missing; service a should not exist", join(oracle.Compare(pods, services)))
	require.Equal(t, "service a should not exist", join(oracle.Compare(pods, append(services, pods...))))
}

// A path that a difference names can be used in mayDiffer.
func TestPathsOfDifferencesCanBeParsed(t *testing.T) {
	normal := func(value string, mayDiffer ...string) []string {
		o := object(t, `{"metadata":{"name":"a","annotations":{"a.b/c":"`+value+`","d":"`+value+`"}}}`)
		return oracle.Normalize(oracle.State{"pods": {"a": o}}, oracle.Scope{Namespace: "shop"}, paths(t, mayDiffer...))
	}
	differences := oracle.Compare(normal("1"), normal("2"))
	require.Len(t, differences, 1)
	var texts []string
	for _, f := range differences[0].Fields {
		texts = append(texts, "pods: "+f.Path)
	}
	require.Equal(t, []string{`pods: metadata.annotations.d`, `pods: metadata.annotations["a.b/c"]`}, texts)
	require.Empty(t, oracle.Compare(normal("1", texts...), normal("2", texts...)))
}

// Values do not belong to the cause: two failures that differ in them have the same one.
func TestCauseOfADifference(t *testing.T) {
	cause := func(want, got string) string {
		d := oracle.Compare([]string{"pods " + want}, []string{"pods " + got})
		require.Len(t, d, 1)
		return d[0].Cause()
	}
	const a, b, c = `{"metadata":{"name":"a"},"x":1,"y":1}`, `{"metadata":{"name":"a"},"x":2,"y":1}`, `{"metadata":{"name":"a"},"x":1,"y":3}`
	require.Equal(t, "changed pod a x", cause(a, b))
	require.Equal(t, cause(a, b), cause(b, a))
	require.NotEqual(t, cause(a, b), cause(a, c))
}
