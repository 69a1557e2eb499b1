package torture

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/suite"
)

// In a namespace that all runs share, each run finds what the first one found, whatever the runs before have left: here, a
// finalizer on each ConfigMap, whose controller does not run any more.
func TestRunsInOneNamespace(t *testing.T) {
	suite.Long(t, "it takes half a minute")
	t.Parallel() // each has a lab of its own
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "manifests.yaml"), []byte(`
{apiVersion: v1, kind: Namespace, metadata: {name: kitchen}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: menu, labels: {app: kitchen}}, data: {soup: pea}}
`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "scenario.yaml"), []byte(`
namespace: kitchen
manifests: [manifests.yaml]
resources: [configmaps]
ready:
- rule: configmaps.all(c, !has(c.metadata.finalizers))
steps:
- name: an order comes, and the menu changes
  do:
  - apply: {apiVersion: v1, kind: ConfigMap, metadata: {name: order, labels: {app: kitchen}}}
  - patch: {resource: configmaps, name: menu, merge: {data: {soup: leek}}}
converged:
- rule: configmaps.all(c, has(c.metadata.finalizers))
stopsWith: -1 # kubectl does not handle SIGTERM
`), 0o600))
	scenario, err := Read(filepath.Join(dir, "scenario.yaml"))
	require.NoError(t, err)
	lab, err := Open(t.Context(), 0, os.Stderr)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lab.Close()) })
	shared, err := cluster.Shared() // its kubectl is part of the program
	require.NoError(t, err)
	const program = `export PATH="$1:$PATH" # the controller
kubectl get configmaps --namespace="$2" --cache-dir="$3" --selector=app=kitchen --watch --output=name | while read -r name; do
	kubectl patch "$name" --namespace="$2" --cache-dir="$3" --type=merge --patch='{"metadata": {"finalizers": ["example.com/kitchen"]}}'
done`
	_, err = lab.Learn(t.Context(), Options{Scenario: scenario, Progress: os.Stderr,
		Commands: Single("/bin/sh", "-c", program, "kitchen", shared.Kubectl, "{namespace}", dir)})
	require.NoError(t, err)
}

// If the control plane could not be started again, there is nothing to clean, and nobody waits for it.
func TestANamespaceOfAControlPlaneThatIsGone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		if requests.Add(1) > 5 {
			cancel() // it would go on
		}
	}))
	defer server.Close()
	client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	r := recorded(&Scenario{Resources: []string{"configmaps"}})
	r.resources = []resource{{schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, true}}
	r.controlPlane = &controlPlane{clients: &clients{dynamic: client}, restartErr: func() error {
		if requests.Load() == 0 { // it is still being started
			return nil
		}
		return errors.New("interrupted")
	}}
	require.NoError(t, r.cleanNamespace(ctx, nil))
	require.EqualValues(t, 1, requests.Load())
}
