package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"example.com/controllers/secretsync"
)

// candidate is a process that runs the controller while it holds the Lease. Its cluster has one source and one namespace that
// wants a copy; only the Lease is shared with other candidates.
type candidate struct {
	kube       *fake.Clientset
	controller *secretsync.Controller
	stop       context.CancelFunc // as SIGTERM does
	ended      chan struct{}
	err        error // of lead, after ended is closed
}

// startCandidate starts a candidate. answer is called for each create of a Secret; it may be nil.
func startCandidate(t *testing.T, leases kubernetes.Interface, answer func()) *candidate {
	f := &controllerFlags{}
	require.NoError(t, controllerCommand(f).ParseFlags([]string{"--source-namespace=shared", "--grace=24h"}))
	require.NoError(t, f.parse())
	wanted := map[string]string{secretsync.CopiesLabel: "true"}
	scheme := metadatafake.NewTestScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	metadata := metadatafake.NewSimpleMetadataClient(scheme, &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: wanted},
	})
	logger := ktesting.NewLogger(t, ktesting.NewConfig())
	ctx, stop := context.WithCancel(klog.NewContext(context.Background(), logger))
	c := &candidate{stop: stop, ended: make(chan struct{}), kube: fake.NewClientset(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shared", Name: "db", UID: "uid", Labels: map[string]string{secretsync.SharedLabel: "true"}},
		Type:       corev1.SecretTypeOpaque, Data: map[string][]byte{"password": []byte(secretValue)},
	})}
	c.kube.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		if answer != nil {
			// The fake clientset holds its lock while it answers, and virtual time does not advance while a goroutine, such as
			// that of an Event, waits for a lock.
			c.kube.Unlock()
			answer()
			c.kube.Lock()
		}
		return false, nil, nil
	})
	var err error
	c.controller, err = secretsync.New(ctx, c.kube, metadata, f.options)
	require.NoError(t, err)
	go func() {
		defer close(c.ended)
		c.err = f.lead(ctx, contextual{leases}, c.controller)
	}()
	return c
}

// wait waits until lead returns. A candidate that goes on forever would keep the clock of the test running forever, too.
func (c *candidate) wait() error {
	select {
	case <-c.ended:
		return c.err
	case <-time.After(time.Hour):
		panic("the candidate has not ended")
	}
}

// created reports whether the controller of the candidate has created the copy.
func (c *candidate) created() bool {
	_, err := c.kube.Tracker().Get(corev1.SchemeGroupVersion.WithResource("secrets"), "a", "db")
	return err == nil
}

// holder returns who holds the Lease; "" for nobody.
func holder(t *testing.T, leases kubernetes.Interface) string {
	lease, err := leases.CoordinationV1().Leases("shared").Get(t.Context(), "secretsync-shared", metav1.GetOptions{})
	require.NoError(t, err)
	return *lease.Spec.HolderIdentity
}

// A leader that is stopped keeps the Lease until its last write has ended. Then the next one leads, without waiting for the
// Lease to expire.
func TestTheLeaseOutlivesTheLastWrite(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	synctest.Test(t, func(t *testing.T) {
		leases, answer := fake.NewClientset(), make(chan struct{})
		first := startCandidate(t, leases, func() { <-answer })
		time.Sleep(time.Second)
		leader := holder(t, leases)
		require.NotEmpty(t, leader)
		second := startCandidate(t, leases, nil)
		time.Sleep(time.Minute)
		first.stop()
		time.Sleep(time.Minute)
		assert.Equal(t, leader, holder(t, leases), "its write has not ended")
		renewed, err := leases.CoordinationV1().Leases("shared").Get(t.Context(), "secretsync-shared", metav1.GetOptions{})
		assert.NoError(t, err)
		assert.Less(t, time.Since(renewed.Spec.RenewTime.Time), 15*time.Second, "nobody else may take it")
		assert.False(t, second.created())
		close(answer)
		assert.NoError(t, first.wait())
		assert.True(t, first.created())
		assert.NotEqual(t, leader, holder(t, leases), "released")
		time.Sleep(time.Minute)
		assert.True(t, second.created())
		second.stop()
		assert.NoError(t, second.wait())
		assert.Empty(t, holder(t, leases))
	})
}

// A candidate that never led ends at once when it is stopped, and leaves the Lease alone.
func TestACandidateThatNeverLed(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	synctest.Test(t, func(t *testing.T) {
		leases := fake.NewClientset()
		first := startCandidate(t, leases, nil)
		time.Sleep(time.Second)
		leader := holder(t, leases)
		second := startCandidate(t, leases, nil)
		time.Sleep(time.Minute)
		second.stop()
		assert.NoError(t, second.wait())
		assert.False(t, second.created())
		assert.Equal(t, leader, holder(t, leases))
		stopped, cancel := context.WithCancel(t.Context())
		cancel()
		assert.NoError(t, second.controller.Run(stopped), "ends the goroutines that New has started")
		first.stop()
		assert.NoError(t, first.wait())
	})
}

// A leader that has lost its Lease stops, with an error: the process has to start again.
func TestALostLeaseIsAnError(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	for name, lose := range map[string]func(*fake.Clientset) clienttesting.ReactionFunc{
		"to another": func(leases *fake.Clientset) clienttesting.ReactionFunc {
			lease, err := leases.CoordinationV1().Leases("shared").Get(t.Context(), "secretsync-shared", metav1.GetOptions{})
			require.NoError(t, err)
			lease.Spec.HolderIdentity = new("other")
			_, err = leases.CoordinationV1().Leases("shared").Update(t.Context(), lease, metav1.UpdateOptions{})
			require.NoError(t, err)
			return func(action clienttesting.Action) (bool, runtime.Object, error) { // the fake client compares no resourceVersions
				return action.GetVerb() == "update", nil, apierrors.NewConflict(action.GetResource().GroupResource(), lease.Name, errors.New("it has been modified"))
			}
		},
		"cannot renew it": func(*fake.Clientset) clienttesting.ReactionFunc {
			return func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, errors.New("connection refused")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leases := fake.NewClientset()
				var react atomic.Pointer[clienttesting.ReactionFunc] // from when the Lease is lost
				leases.PrependReactor("*", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
					if f := react.Load(); f != nil {
						return (*f)(action)
					}
					return false, nil, nil
				})
				first := startCandidate(t, leases, nil)
				defer first.stop()
				time.Sleep(time.Minute + time.Second) // between two renewals: the fake client would let one overwrite the other's Lease
				require.True(t, first.created())
				react.Store(new(lose(leases)))
				assert.EqualError(t, first.wait(), "lost the Lease to another controller, or could not renew it")
			})
		})
	}
}

// A leader that cannot renew its Lease does not release it before its last write has ended, whether it was stopped or not.
func TestALostLeaseOutlivesTheLastWrite(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	for name, stop := range map[string]bool{"stopped": true, "not stopped": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leases, answer := fake.NewClientset(), make(chan struct{})
				var down atomic.Bool
				leases.PrependReactor("update", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
					isRenewal := *action.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease).Spec.HolderIdentity != ""
					return down.Load() && isRenewal, nil, errors.New("connection refused")
				})
				first := startCandidate(t, leases, func() { <-answer })
				defer first.stop()
				time.Sleep(time.Minute)
				leader := holder(t, leases)
				require.NotEmpty(t, leader)
				if stop {
					first.stop()
				}
				down.Store(true)
				time.Sleep(time.Minute)
				select {
				case <-first.ended:
					assert.Fail(t, "it has ended before its last write")
				default:
				}
				assert.Equal(t, leader, holder(t, leases), "its write has not ended")
				close(answer)
				if err := first.wait(); stop {
					assert.NoError(t, err)
				} else {
					assert.EqualError(t, err, "lost the Lease to another controller, or could not renew it")
				}
				assert.True(t, first.created())
				assert.Empty(t, holder(t, leases))
			})
		})
	}
}

func TestControllerFlags(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	t.Setenv("SOURCE_NAMESPACE", "shared")
	parse := func(args ...string) *controllerFlags {
		f := &controllerFlags{}
		require.NoError(t, controllerCommand(f).ParseFlags(args))
		require.NoError(t, f.parse())
		return f
	}
	selector, err := secretsync.ParseNamespaces(secretsync.DefaultNamespaces)
	require.NoError(t, err)
	f := parse()
	require.Equal(t, secretsync.Options{
		Scope:   secretsync.Scope{SourceNamespace: "shared", Namespaces: selector},
		Workers: 32, QPS: 500, Burst: 1000, Backoff: 100 * time.Millisecond, MaxBackoff: time.Minute, Grace: 10 * time.Second,
	}, f.options)
	require.Equal(t, "shared", f.leaseNamespace)
	require.Equal(t, 15*time.Second, f.leaseDuration)

	f = parse("--source-namespace=other", "--namespace-selector=team=web", "--workers=1", "--qps=2", "--burst=3", "--backoff=4s", "--max-backoff=5s", "--grace=6s", "--lease-namespace=leases", "--lease-duration=0")
	require.Equal(t, "team=web", f.options.Namespaces.String())
	f.options.Namespaces = nil
	require.Equal(t, secretsync.Options{
		Scope: secretsync.Scope{SourceNamespace: "other"}, Workers: 1, QPS: 2, Burst: 3, Backoff: 4 * time.Second, MaxBackoff: 5 * time.Second, Grace: 6 * time.Second,
	}, f.options)
	require.Equal(t, "leases", f.leaseNamespace)
	require.Zero(t, f.leaseDuration)

	t.Setenv("POD_NAMESPACE", "pods")
	require.Equal(t, "pods", parse().leaseNamespace)
}

// The controller has its own limit of writes; those of client-go are 5 requests per second.
func TestTheClientHasNoRateLimit(t *testing.T) {
	client, _, err := clients(&rest.Config{Host: "http://127.0.0.1:1"}, &fence{})
	require.NoError(t, err)
	require.Nil(t, client.CoreV1().RESTClient().GetRateLimiter())
}

// Without an API server, the controller does not start. It starts without the source namespace, and if it may not get it.
func TestDoesNotStartWithoutAnAPIServer(t *testing.T) {
	group := corev1.Resource("namespaces")
	for _, test := range []struct {
		answer error
		err    string
	}{
		{nil, ""},
		{apierrors.NewNotFound(group, "shared"), ""},
		{apierrors.NewForbidden(group, "shared", errors.New("no")), ""},
		{apierrors.NewUnauthorized("no token"), `get namespace "shared" from host: no token`},
		{errors.New("connection refused"), "the API server at host does not answer; is the address right, and is it running? connection refused"},
	} {
		client := fake.NewClientset()
		client.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, &corev1.Namespace{}, test.answer
		})
		f := &controllerFlags{scopeFlags: scopeFlags{sourceNamespace: "shared"}}
		if err := f.check(t.Context(), client, "host"); test.err == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, test.err)
		}
	}
}

// A controller that is not ready is alive, also while its last writes end; and the server ends with it.
func TestServe(t *testing.T) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
	defer stop()
	s := &server{address: "127.0.0.1:0"}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	notReady := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "not yet", http.StatusServiceUnavailable) }
	failed := errors.New("failed")
	var url string
	name := fmt.Sprint("metric_", time.Now().UnixNano()) // the registry is global
	metric := prometheus.NewGauge(prometheus.GaugeOpts{Name: name})
	err := s.serve(ctx, notReady, []prometheus.Collector{metric}, func(ctx context.Context) error {
		_, rest, _ := strings.Cut(logger.GetSink().(ktesting.Underlier).GetBuffer().String(), `metrics="`)
		url, _, _ = strings.Cut(rest, "/metrics")
		get := func(path string) (int, string) {
			answer, err := client.Get(url + path)
			if !assert.NoError(t, err) {
				return 0, ""
			}
			defer func() { _ = answer.Body.Close() }()
			body, err := io.ReadAll(answer.Body)
			assert.NoError(t, err)
			return answer.StatusCode, string(body)
		}
		for range 2 {
			code, _ := get("/healthz")
			assert.Equal(t, http.StatusOK, code)
			code, body := get("/readyz")
			assert.Equal(t, http.StatusServiceUnavailable, code)
			assert.Equal(t, "not yet\n", body)
			code, body = get("/metrics")
			assert.Equal(t, http.StatusOK, code)
			assert.Contains(t, body, name+" 0\n")
			stop()
		}
		return failed
	})
	require.ErrorIs(t, err, failed)
	_, err = client.Get(url + "/healthz")
	require.Error(t, err, "the server has ended")

	taken := httptest.NewServer(http.NotFoundHandler())
	defer taken.Close()
	s.address = taken.Listener.Addr().String()
	err = s.serve(t.Context(), notReady, nil, func(context.Context) error { panic("it must not begin") })
	require.ErrorContains(t, err, "serve metrics at --address "+s.address+": ")
}

// A command that fails writes one line to standard error, nothing to standard output, and exits with 1.
func TestExitCode(t *testing.T) {
	command := exec.CommandContext(t.Context(), os.Args[0], "plan", "--output", "xml")
	command.Env = []string{"RUN_MAIN=yes", "HOME=" + t.TempDir()}
	var stderr strings.Builder
	command.Stderr = &stderr
	stdout, err := command.Output()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 1, exit.ExitCode())
	require.Empty(t, stdout)
	require.Equal(t, "kubectl-secretsync: --output is \"xml\"; it must be json\n", stderr.String())
}

// In a source namespace that does not exist, no Lease can be created. The copies must still be deleted, so there are ways out.
func TestTheNamespaceOfTheLeaseDoesNotExist(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	namespace := func(name string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	client := fake.NewClientset(namespace("leases"), namespace("pods"))
	for flag, want := range map[string]string{
		"--source-namespace=shared": `the source namespace "shared" does not exist, so it cannot have the Lease; if the name is right, and its copies are to be deleted, ` +
			"name a namespace for the Lease with --lease-namespace, or run a single controller with --lease-duration 0",
		"--lease-namespace=leases": "",
		"--lease-namespace=lease":  `the namespace "lease" of the Lease does not exist; name another one with --lease-namespace`,
		"--lease-duration=0":       "",
	} {
		f := &controllerFlags{}
		require.NoError(t, controllerCommand(f).ParseFlags([]string{"--source-namespace=shared", flag}))
		require.NoError(t, f.parse())
		if err := f.check(t.Context(), client, "host"); want == "" {
			require.NoError(t, err, flag)
		} else {
			require.EqualError(t, err, want)
		}
	}
	t.Setenv("POD_NAMESPACE", "pods")
	f := &controllerFlags{}
	require.NoError(t, controllerCommand(f).ParseFlags([]string{"--source-namespace=shared"}))
	require.NoError(t, f.parse())
	require.NoError(t, f.check(t.Context(), client, "host"))
}

// A controller that cannot start says why. One that is stopped before there was an answer has done nothing wrong.
func TestStart(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "") // not in a Pod
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500, "reason": "InternalError", "message": "the etcd is slow"}`)
	}))
	defer server.Close()
	broken := filepath.Join(t.TempDir(), "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["c"], config.Contexts["c"], config.CurrentContext = &clientcmdapi.Cluster{Server: server.URL}, &clientcmdapi.Context{Cluster: "c"}, "c"
	require.NoError(t, clientcmd.WriteToFile(*config, broken))
	start := func(ctx context.Context, kubeconfig string) error {
		f := &controllerFlags{}
		require.NoError(t, controllerCommand(f).ParseFlags([]string{"--source-namespace=shared", "--address=127.0.0.1:0", "--lease-duration=1s", "--kubeconfig=" + kubeconfig}))
		if err := f.parse(); err != nil {
			return err
		}
		return f.run(ctx)
	}
	require.ErrorContains(t, start(t.Context(), "missing"), "read kubeconfig missing: ")
	require.ErrorContains(t, start(t.Context(), ""), "not in a Pod, and no --kubeconfig or KUBECONFIG: ")
	require.ErrorContains(t, start(t.Context(), broken), `get namespace "shared" from `+server.URL+": ")
	stopped, stop := context.WithCancel(t.Context())
	stop()
	require.NoError(t, start(stopped, broken))

	_, _, err := connect(clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&clientcmd.ClientConfigLoadingRules{ExplicitPath: "missing"}, nil))
	require.ErrorContains(t, err, "missing")
}

// The text of a policy or a webhook may quote the Secret.
func TestWarningsAreNotLogged(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Warning", `299 - "hunter2"`)
		_, _ = io.WriteString(w, `{"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "db"}}`)
	}))
	defer server.Close()
	client, metadataClient, err := clients(&rest.Config{Host: server.URL}, &fence{})
	require.NoError(t, err)
	log := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	ctx := klog.NewContext(t.Context(), log)
	_, err = client.CoreV1().Secrets("shop").Create(ctx, &corev1.Secret{}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = metadataClient.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace("shop").Get(ctx, "db", metav1.GetOptions{})
	require.NoError(t, err)
	require.NotContains(t, log.GetSink().(ktesting.Underlier).GetBuffer().String(), "hunter2")
}

// silent is a transport on which nothing is answered.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestDoesNotWaitForeverForAnAPIServerThatNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: "http://silent"}, &http.Client{Transport: silent{}})
		require.NoError(t, err)
		f := &controllerFlags{}
		f.sourceNamespace = "shared"
		err = f.check(t.Context(), client, "http://silent")
		require.ErrorContains(t, err, "the API server at http://silent does not answer")
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}
