package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"example.com/controllers/secretsync"
)

// A test can start the test binary as the program, to see its exit code.
func TestMain(m *testing.M) {
	if os.Getenv("RUN_MAIN") != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

const secretValue = "hunter2"

// cluster has two sources and three namespaces that want copies: one has no copy yet, one has a Secret of a user in its
// place, and one has an orphan.
type cluster struct {
	kube     *fake.Clientset
	metadata *metadatafake.FakeMetadataClient
}

func newCluster(t *testing.T) *cluster {
	secret := func(name string, labels map[string]string) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shared", Name: name, UID: "uid-" + "1", Labels: labels},
			Type:       corev1.SecretTypeOpaque, Data: map[string][]byte{"password": []byte(secretValue)},
		}
	}
	source := map[string]string{secretsync.SharedLabel: "true"}
	token := secret("token", source)
	token.UID, token.Type = "uid-2", corev1.SecretTypeServiceAccountToken
	partial := func(kind, namespace, name string, labels, annotations map[string]string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: kind},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels, Annotations: annotations},
		}
	}
	wanted := map[string]string{secretsync.CopiesLabel: "true"}
	scheme := metadatafake.NewTestScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	c := &cluster{
		kube: fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shared"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, secret("db", source), token, secret("private", nil)),
		metadata: metadatafake.NewSimpleMetadataClient(scheme,
			partial("Namespace", "", "shared", nil, nil), partial("Namespace", "", "other", nil, nil),
			partial("Namespace", "", "a", wanted, nil), partial("Namespace", "", "b", wanted, nil), partial("Namespace", "", "c", wanted, nil),
			partial("Secret", "b", "db", nil, nil),
			partial("Secret", "c", "gone", map[string]string{secretsync.CopyLabel: "shared"},
				map[string]string{secretsync.CopiedToAnnotation: "c/gone", secretsync.SourceAnnotation: "gone"})),
	}
	// The fake client knows labels, and no field selectors.
	c.metadata.PrependReactor("list", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		name, named := action.(clienttesting.ListAction).GetListRestrictions().Fields.RequiresExactMatch("metadata.name")
		if !named || name == "db" {
			return false, nil, nil
		}
		return true, &metav1.List{}, nil
	})
	return c
}

// run runs a command, and returns what it prints.
func (c *cluster) run(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	cmd := &cobra.Command{Use: "kubectl-secretsync", SilenceErrors: true, SilenceUsage: true}
	cmd.AddCommand(pluginCommands(func(clientcmd.ClientConfig) (kubernetes.Interface, metadata.Interface, error) {
		return c.kube, c.metadata, nil
	})...)
	var out, errOut bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&errOut)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(context.Background())
	for _, actions := range [][]clienttesting.Action{c.kube.Actions(), c.metadata.Actions()} {
		for _, action := range actions {
			require.Contains(t, []string{"get", "list"}, action.GetVerb(), "the plugin writes nothing")
		}
	}
	require.NotContains(t, out.String()+errOut.String(), secretValue)
	return out.String(), errOut.String(), err
}

func TestStatus(t *testing.T) {
	stdout, stderr, err := newCluster(t).run(t, "status", "--source-namespace", "shared")
	require.NoError(t, err)
	require.Empty(t, stderr)
	require.Equal(t, `SOURCE   WANTED   UP-TO-DATE   REFUSED   WHY
db       3        0            1         NamesakeNotOurs in b
token    3        0            3         TypeRefused in a, b, c
`, stdout)

	stdout, _, err = newCluster(t).run(t, "status", "--source-namespace", "shared", "-o", "json")
	require.NoError(t, err)
	require.Contains(t, stdout, `    "source": "db",
    "copyName": "db",
    "wanted": 3,
    "current": 0,
    "refused": [
      {
        "namespace": "b",
        "reason": "NamesakeNotOurs",
`)
}

func TestPlan(t *testing.T) {
	stdout, _, err := newCluster(t).run(t, "plan", "--source-namespace", "shared", "--namespace-selector", secretsync.DefaultNamespaces)
	require.NoError(t, err)
	var lines []string
	for line := range strings.Lines(stdout) {
		lines = append(lines, strings.Join(strings.Fields(line)[:4], " "))
	}
	require.Equal(t, []string{
		"ACTION NAMESPACE NAME SOURCE",
		"create a db db", "refuse a token token", "refuse b db db", "refuse b token token", "create c db db", "delete c gone <none>", "refuse c token token",
	}, lines)
}

// A failed list is an error, and never an empty plan.
func TestListsFail(t *testing.T) {
	for _, test := range []struct {
		client   func(*cluster) *clienttesting.Fake
		resource string
		selector string // of the list that fails
		err      string
	}{
		{func(c *cluster) *clienttesting.Fake { return &c.kube.Fake }, "namespaces", "", "look up namespace shared: "},
		{func(c *cluster) *clienttesting.Fake { return &c.kube.Fake }, "secrets", secretsync.SharedLabel, "list the shared Secrets of namespace shared: "},
		{func(c *cluster) *clienttesting.Fake { return &c.metadata.Fake }, "namespaces", "", "list the namespaces: "},
		{func(c *cluster) *clienttesting.Fake { return &c.metadata.Fake }, "secrets", secretsync.CopyLabel + "=", "list the copies: "},
		{func(c *cluster) *clienttesting.Fake { return &c.metadata.Fake }, "secrets", secretsync.CopyLabel + "!=", "list the Secrets with the name "},
	} {
		for _, command := range []string{"status", "plan"} {
			c := newCluster(t)
			test.client(c).PrependReactor("list", test.resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
				if !strings.HasPrefix(action.(clienttesting.ListAction).GetListRestrictions().Labels.String(), test.selector) {
					return false, nil, nil
				}
				return true, nil, apierrors.NewForbidden(corev1.Resource(test.resource), "", errors.New("no list verb"))
			})
			stdout, stderr, err := c.run(t, command, "--source-namespace", "shared")
			require.ErrorContains(t, err, test.err)
			require.True(t, apierrors.IsForbidden(err))
			require.Empty(t, stdout)
			require.Empty(t, stderr)
		}
	}
}

// Without --source-namespace, the current namespace of the kubeconfig is the source namespace.
func TestTheCurrentNamespace(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Contexts: map[string]*clientcmdapi.Context{"one": {Cluster: "c", Namespace: "shared"}, "two": {Cluster: "c", Namespace: "other"}}, CurrentContext: "one",
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: "https://127.0.0.1:1"}},
	}, kubeconfig))
	explicit, _, err := newCluster(t).run(t, "status", "--source-namespace", "shared")
	require.NoError(t, err)
	current, _, err := newCluster(t).run(t, "status", "--kubeconfig", kubeconfig)
	require.NoError(t, err)
	require.Equal(t, explicit, current)
	_, stderr, err := newCluster(t).run(t, "status", "--kubeconfig", kubeconfig, "--context", "two")
	require.NoError(t, err)
	require.Contains(t, stderr, "No Secret of namespace other has the label ")
}

func TestWhy(t *testing.T) {
	refused := func(reason secretsync.Reason, namespaces ...string) (all []secretsync.RefusedCopy) {
		for _, namespace := range namespaces {
			all = append(all, secretsync.RefusedCopy{Namespace: namespace, Reason: reason})
		}
		return all
	}
	require.Equal(t, "<none>", why(nil))
	require.Equal(t, "TypeRefused in a, b, c", why(refused(secretsync.TypeRefused, "a", "b", "c")))
	require.Equal(t, "NameTaken in x; TypeRefused in a, b, c and 2 more",
		why(append(refused(secretsync.TypeRefused, "a", "b", "c", "d", "e"), refused(secretsync.NameTaken, "x")...)))
}

func TestNothingToDo(t *testing.T) {
	c := newCluster(t)
	require.NoError(t, c.kube.Tracker().Add(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "x", Labels: map[string]string{secretsync.SharedLabel: "true"}}}))
	stdout, stderr, err := c.run(t, "plan", "--source-namespace", "other", "--namespace-selector", "no=namespace")
	require.NoError(t, err)
	require.Empty(t, stdout)
	require.Equal(t, "All copies are up to date.\n", stderr)
}

func TestNothingIsShared(t *testing.T) {
	c := newCluster(t)
	for _, command := range []string{"plan", "status"} {
		stdout, stderr, err := c.run(t, command, "--source-namespace", "other")
		require.NoError(t, err, command)
		require.Empty(t, stdout, command)
		require.Equal(t, "No Secret of namespace other has the label secretsync.controllers.example.com/shared=true.\n", stderr, command)
		stdout, _, err = c.run(t, command, "--source-namespace", "other", "-o", "json")
		require.NoError(t, err, command)
		require.Equal(t, "[]\n", stdout, command)
	}
}

// A source namespace that does not exist is an error, as its name may be mistyped, but not if it has left copies.
func TestTheSourceNamespaceDoesNotExist(t *testing.T) {
	for _, command := range []string{"plan", "status"} {
		for _, output := range []string{"", "json"} {
			stdout, stderr, err := newCluster(t).run(t, command, "--source-namespace", "none", "-o", output)
			require.EqualError(t, err, `the source namespace "none" does not exist, and there are no copies to delete; name the namespace whose Secrets are shared with --source-namespace`)
			require.Empty(t, stdout)
			require.Empty(t, stderr)

			c := newCluster(t)
			require.NoError(t, c.kube.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("namespaces"), "", "shared"))
			for _, source := range []string{"db", "token"} {
				require.NoError(t, c.kube.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("secrets"), "shared", source))
			}
			stdout, stderr, err = c.run(t, command, "--source-namespace", "shared", "-o", output)
			require.NoError(t, err)
			require.Contains(t, stderr, "The source namespace shared does not exist, so the controller would delete its copies.\n")
			require.Equal(t, command == "plan", strings.Contains(stdout, "no source is copied here"), stdout)
		}
	}
}

func TestWrongFlags(t *testing.T) {
	for _, test := range []struct {
		args []string
		err  string
	}{
		{[]string{"status", "-o", "xml"}, `--output is "xml"; it must be json`},
		{[]string{"plan", "--namespace-selector", "a in"}, `--namespace-selector: "a in" is not a label selector: unable to parse requirement: found '' expected: '('`},
	} {
		_, _, err := newCluster(t).run(t, test.args...)
		require.EqualError(t, err, test.err)
	}
	t.Cleanup(func() { // -v is global
		var level klog.Level
		require.NoError(t, level.Set("0"))
	})
	for _, test := range []struct {
		args []string
		err  string
	}{
		{[]string{"controller"}, "--source-namespace is missing; name the namespace whose Secrets are shared"},
		{[]string{"controller", "--source-namespace", "a", "--namespace-selector", ""}, "--namespace-selector: it is empty, which would select all namespaces; to select all but those of the system, use \"kubernetes.io/metadata.name notin (kube-system, kube-public, kube-node-lease)\""},
		{[]string{"controller", "--source-namespace", "a", "--lease-duration", "1900ms"}, "--lease-duration is 1.9s; it must be a whole number of seconds, or 0 to run without a Lease"},
		{[]string{"controller", "--source-namespace", "a", "--lease-duration", "1ms"}, "--lease-duration is 1ms; it must be a whole number of seconds, or 0 to run without a Lease"},
		{[]string{"controller", "-v", "8"}, "--v is 8; it must be at most 7: from 8 on, client-go logs the bodies of requests, and with them the data of Secrets"},
		{[]string{"controller", "-v", "7"}, "--source-namespace is missing; name the namespace whose Secrets are shared"},
	} {
		t.Setenv("SOURCE_NAMESPACE", "")
		cmd := newCommand()
		cmd.SetArgs(test.args)
		require.EqualError(t, cmd.ExecuteContext(t.Context()), test.err)
	}
}
