package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// A kubelet stops the controller and the agent with SIGTERM, which is no failure. Each has begun: it waits for an API server that
// does not answer.
func TestSIGTERMIsNoFailure(t *testing.T) {
	if os.Getenv("RUN_MAIN") != "" {
		os.Args = append(os.Args[:1], strings.Fields(os.Getenv("RUN_MAIN"))...)
		main()
		os.Exit(0)
	}
	for _, command := range []string{"controller --namespace=default", "agent --node-name=a"} {
		t.Run(command, func(t *testing.T) {
			asked, end := make(chan struct{}, 100), make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				asked <- struct{}{}
				select {
				case <-r.Context().Done():
				case <-end:
				}
			}))
			defer server.Close()
			defer close(end)
			kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
			config := clientcmdapi.NewConfig()
			config.Clusters["c"], config.Contexts["c"], config.CurrentContext = &clientcmdapi.Cluster{Server: server.URL}, &clientcmdapi.Context{Cluster: "c"}, "c"
			require.NoError(t, clientcmd.WriteToFile(*config, kubeconfig))
			program := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSIGTERMIsNoFailure$")
			program.Env = []string{"RUN_MAIN=" + command + " --address=127.0.0.1:0 --kubeconfig=" + kubeconfig, "HOME=" + t.TempDir()}
			var log strings.Builder
			program.Stdout, program.Stderr = io.Discard, &log
			require.NoError(t, program.Start())
			ended := make(chan error, 1)
			go func() { ended <- program.Wait() }()
			select {
			case <-asked:
			case err := <-ended:
				require.FailNow(t, "it has ended before it was told to", "%v %s", err, &log)
			}
			require.NoError(t, program.Process.Signal(syscall.SIGTERM))
			require.NoError(t, <-ended, "%s", &log)
		})
	}
}

// busy is an API server that asks to try again in a second.
type busy int

func (b *busy) RoundTrip(*http.Request) (*http.Response, error) {
	*b++
	return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"1"}}, Body: http.NoBody}, nil
}

// The controller's client sends an eviction once, and has no rate limit.
func TestTheClient(t *testing.T) {
	var asked busy
	client, err := newClient(&rest.Config{Host: "http://busy", Transport: &asked})
	require.NoError(t, err)
	err = client.PolicyV1().Evictions("shop").Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
	require.True(t, apierrors.IsTooManyRequests(err), "%v", err)
	require.EqualValues(t, 1, asked)
	require.Nil(t, client.CoreV1().RESTClient().GetRateLimiter())
}

// An image without a system has no time zones, so the program brings them.
func TestTimeZonesAreLinkedIn(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	require.Contains(t, strings.Fields(string(out)), "time/tzdata")
}

// A selector of an unset variable, in quotes, selects every Node. Each command that changes Nodes refuses it.
func TestBlankSelectors(t *testing.T) {
	for _, command := range []string{"request", "cancel"} {
		for _, blank := range []string{"", " ", "   ", "\t", "\n"} {
			client := fake.NewClientset(fleet()...)
			_, _, err := run(t, client, command, "--selector", blank)
			require.EqualError(t, err, "--selector is empty, which would select all Nodes; use --all if you mean that", "%s %q", command, blank)
			for _, action := range client.Actions() {
				require.NotContains(t, []string{"patch", "update"}, action.GetVerb(), "%s %q", command, blank)
			}
		}
	}
	for _, blank := range []string{" ", "\t"} {
		f := &controllerFlags{}
		require.NoError(t, controllerCommand(f).ParseFlags([]string{"--namespace=x", "--agent-pods=" + blank}))
		require.ErrorContains(t, f.parse(), "--agent-pods is blank, which would take every Pod for an agent")
	}
}

// A Node that was deleted while the watch was down has no event of its own, and is shown as deleted all the same; each time.
func TestStatusWatchMissesADeletion(t *testing.T) {
	client := fake.NewClientset(node("a"), node("b"), ledger("default"))
	broken := make(chan *apiwatch.FakeWatcher, 10) // each watch of Nodes, none of which has events
	client.PrependWatchReactor("nodes", func(clienttesting.Action) (bool, apiwatch.Interface, error) {
		watch := apiwatch.NewFake()
		broken <- watch
		return true, watch, nil
	})
	f := follow(t, client)
	f.awaitWatch(t, "configmaps", "metadata.name=reboot-ledger")
	for _, name := range []string{"a", "b"} {
		watch := <-broken
		eventually(t, func() bool { return strings.Contains(f.stdout.String(), "\n"+name+" ") }, &f.stdout)
		require.NoError(t, client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("nodes"), "", name))
		watch.Error(&metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonExpired, Code: http.StatusGone})
		eventually(t, func() bool { return strings.Contains(f.stdout.String(), name+"      Deleted") }, &f.stdout)
	}
}
