package draft

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/torture"
)

// What a person does becomes the action that does the same: without what the API server adds, and without the values of Secrets.
func TestActionOf(t *testing.T) {
	const home = "torture-1"
	old := object(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: torture-1, uid: u, resourceVersion: "1", generation: 1, labels: {a: b}, managedFields: [{manager: x}]}
spec: {replicas: 1, paused: true}
status: {replicas: 1}
`)
	new := object(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: torture-1, uid: u, resourceVersion: "2", generation: 2, managedFields: [{manager: y}]}
spec: {replicas: 3}
status: {replicas: 2}
`)
	applied := object(t, `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: torture-1
  annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"annotations":{},"name":"web","namespace":"torture-1"},"spec":{"replicas":3}}'}
spec: {replicas: 3, revisionHistoryLimit: 10}
`)
	web := torture.Reference{Resource: "deployments.apps", Name: "web"}
	for name, c := range map[string]struct {
		written torture.Written
		want    torture.Action
		problem string
	}{
		"a patch": {
			torture.Written{Verb: "patch", Resource: "deployments.apps", Namespace: home, Name: "web", Old: old, New: new},
			torture.Action{Patch: &torture.Patch{Reference: web, Merge: map[string]any{"metadata": map[string]any{"labels": nil}, "spec": map[string]any{"replicas": float64(3), "paused": nil}}}}, "",
		},
		"a scale": {
			torture.Written{Verb: "update", Resource: "deployments.apps", Subresource: "scale", Namespace: home, Name: "web", Old: old, New: new},
			torture.Action{Patch: &torture.Patch{Reference: web, Merge: map[string]any{"metadata": map[string]any{"labels": nil}, "spec": map[string]any{"replicas": float64(3), "paused": nil}}}}, "",
		},
		"a status": {
			torture.Written{Verb: "update", Resource: "deployments.apps", Subresource: "status", Namespace: home, Name: "web", Old: old, New: new},
			torture.Action{Patch: &torture.Patch{Reference: web, Merge: map[string]any{"status": map[string]any{"replicas": float64(2)}}}, Subresource: "status"}, "",
		},
		"a creation": {
			torture.Written{Verb: "create", Resource: "deployments.apps", Namespace: home, Name: "web", New: new},
			torture.Action{Apply: object(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 3}}`)}, "",
		},
		"kubectl apply": {
			torture.Written{Verb: "create", Resource: "deployments.apps", Namespace: home, Name: "web", New: applied},
			torture.Action{Apply: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web"}, "spec": map[string]any{"replicas": float64(3)}}}, "",
		},
		"a deletion in another namespace": {
			torture.Written{Verb: "delete", Resource: "pods", Namespace: "other", Name: "a"},
			torture.Action{Delete: &torture.Reference{Resource: "pods", Namespace: "other", Name: "a"}}, "",
		},
		"what nobody watches": {torture.Written{Verb: "create", Resource: "jobs.batch", Name: "a"}, torture.Action{}, "the controller does not ask for this resource"},
		"a Secret": {
			torture.Written{Verb: "create", Resource: "secrets", Name: "a", New: object(t, `{metadata: {name: a}, data: {password: aHVudGVyMg==}}`)},
			torture.Action{}, "the values of Secrets stay out of scenarios; put it into a manifest",
		},
		"nothing": {torture.Written{Verb: "update", Resource: "deployments.apps", Name: "web", Old: old, New: old}, torture.Action{}, "it has changed nothing that a scenario would change"},
	} {
		t.Run(name, func(t *testing.T) {
			action, problem := actionOf(c.written, home)
			require.Equal(t, c.problem, problem)
			if c.problem == "" {
				require.Equal(t, c.want, action)
			}
		})
	}
	require.Equal(t, "1", old["metadata"].(map[string]any)["resourceVersion"], "the objects are not changed")
}
