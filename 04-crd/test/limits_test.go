package test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"example.com/controllers/crd"
	samplecrdv1 "example.com/controllers/crd/apis/samplecrd/v1"
	"example.com/controllers/crd/neutron"
	"example.com/controllers/crd/neutrontest"
	"example.com/controllers/harness/clustertest"
)

// The API server accepts what Neutron accepts. What Neutron refuses because of the addresses, the API server refuses, too.
func TestValidationAgreesWithNeutron(t *testing.T) {
	cloud := newNeutron(t)
	limits := []string{tooSmall, multicast, loopback, zero, last}
	for _, c := range specs {
		isLimit := slices.ContainsFunc(c.wrong, func(wrong string) bool { return slices.Contains(limits, wrong) })
		if c.wrong != nil && !isLimit {
			continue // it is malformed; or Neutron accepts it, but the network would be useless
		}
		t.Run(fmt.Sprintf("%s in %s", c.gateway, c.cidr), func(t *testing.T) {
			n := network(c.cidr, c.gateway)
			n.Namespace, n.Name, n.UID = "shop", "n", types.UID(uuid.NewString())
			_, err := cloud.Ensure(t.Context(), n)
			if isLimit {
				var refused *crd.RefusedError
				require.ErrorAs(t, err, &refused)
				require.Equal(t, samplecrdv1.ReasonRefused, refused.Reason)
			} else {
				require.NoError(t, err)
			}
			require.NoError(t, cloud.Delete(t.Context(), n))
		})
	}
}

// newNeutron returns the backend for the Neutron at NEUTRON_URL if that is set, or else for one in memory.
func newNeutron(t *testing.T) *neutron.Cloud {
	if os.Getenv("NEUTRON_URL") == "" {
		server := httptest.NewServer(&neutrontest.Server{})
		t.Cleanup(server.Close)
		t.Setenv("NEUTRON_URL", server.URL)
	}
	t.Setenv("NEUTRON_PROJECT", strings.ReplaceAll(uuid.NewString(), "-", ""))
	cloud, err := neutron.Connect(t.Context())
	require.NoError(t, err)
	cloud.Owner = "test"
	return cloud
}

// The description in the cloud has the name, and at most 255 characters.
func TestValidationOfTheName(t *testing.T) {
	skipWithRealNeutron(t)
	_, client := newClient(t)
	n := network("10.0.0.0/24", "10.0.0.1")
	n.Name, n.GenerateName = strings.Repeat("n", 172), ""
	require.Equal(t, 255, len("Kubernetes Network "+strings.Repeat("n", 63)+"/"+n.Name), "with the longest namespace")
	_, err := client.Create(t.Context(), n, metav1.CreateOptions{})
	require.NoError(t, err)

	n.Name += "n"
	_, err = client.Create(t.Context(), n, metav1.CreateOptions{})
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	require.ErrorContains(t, err, "metadata.name must not be longer than 172 characters, or it would not fit into the description of the network in the cloud")
	generated := network("10.0.0.0/24", "10.0.0.1")
	generated.GenerateName = n.Name // the API server cuts it: no name that it generates is too long
	_, err = client.Create(t.Context(), generated, metav1.CreateOptions{})
	require.NoError(t, err)
}

// A Network that is older than the rules can still be changed, get a status and a finalizer, and be deleted.
func TestValidationOfOlderNetworks(t *testing.T) {
	skipWithRealNeutron(t)
	env, _ := newClient(t)
	defer env.Kubectl("delete", "--ignore-not-found", "customresourcedefinition", "oldernetworks.older.example.com")
	applyOlder(t, env, false)
	long := strings.Repeat("n", 225)
	gateways := map[string]string{long: "10.0.0.2", "small": "fd00::1", "loopback": "127.0.0.2", "all": "10.0.0.2"}
	for name, cidr := range map[string]string{long: "10.0.0.0/24", "small": "fd00::/127", "loopback": "127.0.0.0/8", "all": "0.0.0.0/0"} {
		_, err := tryCreate(env, t.TempDir(), name, cidr)
		require.NoError(t, err)
	}
	applyOlder(t, env, true)
	for name, gateway := range gateways {
		merge := func(patch string, flags ...string) {
			env.Kubectl(append([]string{"patch", "oldernetworks", name, "--type=merge", "--patch=" + patch}, flags...)...)
		}
		merge(`{"metadata":{"finalizers":["example.com/x"]}}`)
		merge(`{"status":{"networkID":"x"}}`, "--subresource=status")
		merge(`{"spec":{"gateway":"` + gateway + `"}}`)
		env.Kubectl("delete", "oldernetworks", name, "--wait=false")
		merge(`{"metadata":{"finalizers":null}}`)
	}
	require.Empty(t, env.Kubectl("get", "oldernetworks", "--output=name"))
}

// applyOlder applies the definition under another name, so that it can be without its rules for a while, and waits until the
// API server enforces the rules, or does not.
func applyOlder(t *testing.T, env *clustertest.Env, withRules bool) {
	t.Helper()
	text, err := os.ReadFile(definition)
	var object map[string]any
	if err == nil {
		err = yaml.Unmarshal(text, &object)
	}
	require.NoError(t, err)
	object["metadata"] = map[string]any{"name": "oldernetworks.older.example.com"}
	spec := object["spec"].(map[string]any)
	spec["group"] = "older.example.com"
	spec["names"] = map[string]any{"kind": "OlderNetwork", "listKind": "OlderNetworkList", "plural": "oldernetworks", "singular": "oldernetwork"}
	if !withRules {
		removeRules(spec)
	}
	text, err = yaml.Marshal(object)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "definition.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	env.Kubectl("apply", "--filename", file)
	env.Eventually("the API server serves the definition", func(context.Context) string {
		_, err := tryCreate(env, t.TempDir(), "probe", "127.0.0.0/8", "--dry-run=server")
		switch {
		case !withRules && err == nil, withRules && err != nil && strings.Contains(err.Error(), "loopback"):
			return ""
		case err != nil:
			return err.Error()
		}
		return "it does not enforce the rules yet"
	})
}

// removeRules removes all rules in CEL from a schema.
func removeRules(schema any) {
	switch schema := schema.(type) {
	case map[string]any:
		delete(schema, "x-kubernetes-validations")
		for _, value := range schema {
			removeRules(value)
		}
	case []any:
		for _, value := range schema {
			removeRules(value)
		}
	}
}

// tryCreate creates a Network of the definition that applyOlder has applied. Its gateway is the address after the first.
func tryCreate(env *clustertest.Env, dir, name, cidr string, flags ...string) (string, error) {
	first, _, _ := strings.Cut(cidr, "/")
	gateway := strings.TrimSuffix(first, "0") + "1"
	object := fmt.Sprintf(`{"apiVersion":"older.example.com/v1","kind":"OlderNetwork","metadata":{"name":%q},"spec":{"cidr":%q,"gateway":%q}}`, name, cidr, gateway)
	file := filepath.Join(dir, "object.json")
	if err := os.WriteFile(file, []byte(object), 0o600); err != nil {
		return "", err
	}
	return env.TryKubectl(append([]string{"create", "--filename", file}, flags...)...)
}
