package inmemory

import (
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func TestDescribe(t *testing.T) {
	for _, test := range []struct{ name, old, now, want string }{
		{"nothing", `{}`, `{metadata: {resourceVersion: "2", generation: 2}}`, ""},
		{"a condition", `{status: {conditions: [{type: Ready, status: "True"}]}}`, `{status: {conditions: [{type: Ready, status: Unknown}]}}`, "Ready: Unknown"},
		{"a condition's reason", `{status: {conditions: [{type: Ready, status: "True"}]}}`, `{status: {conditions: [{type: Ready, status: "True", reason: X}]}}`, ""},
		{"a new condition", `{}`, `{status: {conditions: [{type: Ready, status: "False"}]}}`, "Ready: False"},
		{"a condition that is gone", `{status: {conditions: [{type: Ready, status: "True"}]}}`, `{status: {}}`, "Ready: removed"},
		{"annotations", `{metadata: {annotations: {a: x, example.com/b: x}}}`, `{metadata: {annotations: {a: "y", example.com/c: ""}}}`, "annotation a=y, annotation b removed, annotation c"},
		{"a label", `{}`, `{metadata: {labels: {app: web}}}`, "label app=web"},
		{"its end", `{metadata: {finalizers: [a]}}`, `{metadata: {deletionTimestamp: now}}`, "is being deleted, finalizers: none"},
		{"the spec", `{spec: {replicas: 1, template: {spec: {image: a}}}}`, `{spec: {replicas: 2, template: {spec: {image: b}}, paused: true}}`, "spec.paused: true, spec.replicas: 2, spec.template.spec: map[image:b]"},
		{"a field that is gone", `{spec: {unschedulable: true}}`, `{spec: {}}`, "spec.unschedulable removed"},
		{"many", `{}`, `{spec: {a: 1, b: 2, c: 3, d: 4}}`, "spec.a: 1, spec.b: 2, and 2 more changes"},
		{"a ConfigMap's data", `{data: {a: x, b: x}}`, `{data: {a: a long line of more than twenty characters}}`, "data.a: a long line of more tha…, data.b removed"},
		{"a Secret's data", `{kind: Secret, data: {a: x}}`, `{kind: Secret, data: {a: eA==, b: eA==}}`, "data.a, data.b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var old, now Object
			require.NoError(t, yaml.Unmarshal([]byte(test.old), &old))
			require.NoError(t, yaml.Unmarshal([]byte(test.now), &now))
			require.Equal(t, test.want, describe(old, now))
		})
	}
}
