package test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/clustertest"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/suite"
	"example.com/controllers/harness/testinput"
	"example.com/controllers/naive-loop/test/conformance"
	"example.com/controllers/workqueue"
)

func TestMain(m *testing.M) {
	guard.Main()
	os.Exit(m.Run())
}

func TestREADME(t *testing.T) {
	suite.Once(t)
	t.Parallel()
	clustertest.PlayLesson(t, "..")
}

func TestConformance(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.Subject{
		Manifests: "../manifests", Account: "workqueue", Frontend: "../frontend.yaml",
		Start: func(ctx context.Context, config *rest.Config, namespace string) {
			if err := run(ctx, config, namespace); err != nil {
				t.Error(err)
			}
		},
	})
}

// run runs the controller until ctx is cancelled.
func run(ctx context.Context, config *rest.Config, namespace string) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	controller, err := workqueue.New(ctx, client, workqueue.Options{
		Namespace: namespace, Workers: 2, Backoff: 100 * time.Millisecond, MaxBackoff: time.Minute, Grace: 10 * time.Second,
	})
	if err != nil {
		return err
	}
	return controller.Run(ctx)
}

// Subtests start later than most other tests, so the two that take longest start first: the page, and torture.
func TestController(t *testing.T) {
	t.Parallel()
	t.Run("LeastPrivilege", testLeastPrivilege)
	t.Run("Program", testProgram)
	t.Run("CostOfAStart", testCostOfAStart)
	t.Run("SurvivesKills", testSurvivesKills)
}

// The ServiceAccount has the rights that the controller needs, and no others.
func testLeastPrivilege(t *testing.T) {
	t.Parallel()
	env := clustertest.New(t)
	env.Install("../manifests")
	env.RequireRights("workqueue", clustertest.Rights{
		May: []string{
			"list pods", "watch pods", "delete pods", "list configmaps/frontend-config", "watch configmaps/frontend-config",
			"create events.events.k8s.io", "patch events.events.k8s.io",
		},
		MayNot: []string{
			"list configmaps", "watch configmaps", "watch configmaps/another", "update configmaps/frontend-config",
			"create pods", "deletecollection pods", "get secrets", "list nodes", "delete events.events.k8s.io",
			"delete pods --namespace=kube-system", "list namespaces", "delete deployments",
		},
	})
}

func testProgram(t *testing.T) {
	t.Parallel()
	program := clustertest.BuildProgram(t, "..", "./cmd/workqueue")
	env := clustertest.New(t)
	namespace, kubeconfig := "--namespace="+env.Namespace, "--kubeconfig="+env.Cluster.Kubeconfig
	clustertest.RequireRefusals(t, program, map[string]clustertest.Refusal{
		"no namespace":         {Args: nil, Want: "--namespace is missing; name the namespace whose Pods may be deleted"},
		"an argument":          {Args: []string{"--namespace=x", "y"}, Want: `unexpected argument "y"`},
		"no workers":           {Args: []string{"--namespace=x", "--workers=0"}, Want: "--workers is 0; it must be at least 1"},
		"negative workers":     {Args: []string{"--namespace=x", "--workers=-1"}, Want: "--workers is -1; it must be at least 1"},
		"no backoff":           {Args: []string{"--namespace=x", "--backoff=0s"}, Want: "--backoff is 0s; it must be greater than 0"},
		"backoff over maximum": {Args: []string{"--namespace=x", "--backoff=2m"}, Want: "--max-backoff is 1m0s; it must be at least --backoff, which is 2m0s"},
		"no such namespace":    {Args: []string{"--namespace=nowhere", kubeconfig}, Want: `namespace "nowhere" does not exist on https://`},
		"a bad address":        {Args: []string{namespace, kubeconfig, "--address=nowhere"}, Want: "serve metrics at --address nowhere"},
	})
	t.Run("a taken port", func(t *testing.T) {
		first := clustertest.StartProgram(t, program, namespace, kubeconfig, "--address=127.0.0.1:0")
		first.AwaitLog("Caches synced")
		_, rest, _ := strings.Cut(first.Log(), `metrics="http://`)
		address, _, _ := strings.Cut(rest, "/")
		second := clustertest.StartProgram(t, program, namespace, kubeconfig, "--address="+address)
		require.Error(t, second.Wait())
		require.Contains(t, second.Log(), "serve metrics at --address "+address)
		require.Contains(t, second.Log(), "address already in use")
	})
	t.Run("ends with status 0 on SIGTERM", func(t *testing.T) {
		run := clustertest.StartProgram(t, program, namespace, kubeconfig, "--address=127.0.0.1:0")
		run.AwaitLog("Caches synced")
		run.Signal(syscall.SIGTERM)
		require.NoError(t, run.Wait())
		require.Contains(t, run.Log(), "Stopped")
	})
}

// Not parallel: it compares all goroutines of the process.
func TestLeavesNoGoroutine(t *testing.T) {
	env := clustertest.New(t)
	old := install(t, env)
	config, err := env.Config()
	require.NoError(t, err)
	before := goleak.IgnoreCurrent()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx, config, env.Namespace) }()
	env.Kubectl("patch", "configmap", "frontend-config", "--type=merge", `--patch={"data":{"greeting":"good morning"}}`)
	replaced(t, env, old)
	cancel()
	require.NoError(t, <-done)
	transport, err := rest.TransportFor(config) // shared by all clients of this configuration
	require.NoError(t, err)
	utilnet.CloseIdleConnectionsFor(transport)
	goleak.VerifyNone(t, before)
}

// A start costs one watch of each resource, which first streams what exists, and no list. An idle controller makes no
// requests.
func testCostOfAStart(t *testing.T) {
	t.Parallel()
	env := clustertest.New(t)
	old := install(t, env)
	config, err := env.Config()
	require.NoError(t, err)
	var wire history.Memory
	proxy, err := apiproxy.Start(t.Context(), apiproxy.Options{Upstream: config, Record: wire.Record})
	require.NoError(t, err)
	defer func() { require.NoError(t, proxy.Stop()) }()
	const starts = 3
	for range starts {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- run(ctx, proxy.Config(), env.Namespace) }()
		env.Kubectl("patch", "configmap", "frontend-config", "--type=merge", fmt.Sprintf(`--patch={"data":{"greeting":"%d"}}`, time.Now().UnixNano()))
		replaced(t, env, old)
		old = frontend(t, env)
		cancel()
		require.NoError(t, <-done)
	}
	requests := map[string]int{}
	for _, cost := range wire.History().Cost() {
		requests[cost.Verb+" "+cost.Resource] = cost.Requests
		require.Zero(t, cost.NoOps, "%s %s", cost.Verb, cost.Resource)
	}
	require.Equal(t, map[string]int{"watch pods": starts, "watch configmaps": starts, "delete pods": 3 * starts}, requests)
}

// Whether the controller or the API server is killed, and whenever: once both run again, no Pod stays older than its
// config.
func testSurvivesKills(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SEED"); text != "" {
		_, err := fmt.Sscan(text, &seed)
		require.NoError(t, err)
	}
	t.Logf("to repeat this run, set SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))

	options := cluster.Options{Nodes: 3, Progress: os.Stderr}
	c, err := cluster.Start(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Stop()) })
	env := clustertest.On(t, c)
	old := install(t, env)
	program := clustertest.BuildProgram(t, "..", "./cmd/workqueue")
	start := func() *clustertest.Running {
		return clustertest.StartProgram(t, program, "--namespace="+env.Namespace, "--kubeconfig="+c.Kubeconfig, "--address=127.0.0.1:0")
	}
	controller := start()
	controller.AwaitLog("Caches synced")
	for round := range 6 {
		env.Kubectl("patch", "configmap", "frontend-config", "--type=merge", fmt.Sprintf(`--patch={"data":{"greeting":"%d"}}`, round))
		time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond) // so that the kill comes at a random moment
		if killServer := random.IntN(2) == 0; killServer {
			restarted := make(chan error, 1)
			go func() { restarted <- c.Crash(t.Context(), options) }()
			if random.IntN(2) == 0 {
				controller.Kill()
			}
			require.NoError(t, <-restarted)
			env.Eventually("the controller has started, or exited", func(context.Context) string {
				select {
				case <-controller.Done():
					return ""
				default:
				}
				if strings.Contains(controller.Log(), "Caches synced") {
					return ""
				}
				return controller.Log() // it may still be about to exit: a controller that starts without an API server does
			})
		} else {
			controller.Kill()
		}
		select {
		case <-controller.Done():
			controller = start()
		default: // it survived, so it must recover without a restart
		}
		replaced(t, env, old)
		old = frontend(t, env)
	}
	controller.AwaitLog("Caches synced") // earlier, SIGTERM might not be handled yet
	controller.Signal(syscall.SIGTERM)
	require.NoError(t, controller.Wait())
}

// install creates the frontend and recreates its Pods, so that they are of a later second than their config. It returns
// their UIDs.
func install(t *testing.T, env *clustertest.Env) []string {
	t.Helper()
	testinput.Declare("../frontend.yaml")
	env.Kubectl("apply", "-f", "../frontend.yaml")
	frontend(t, env)
	env.Kubectl("delete", "pods", "--selector=app=frontend")
	return frontend(t, env)
}

// frontend waits until the frontend has three Pods, all created in an earlier second than now, and returns their UIDs.
func frontend(t *testing.T, env *clustertest.Env) []string {
	t.Helper()
	var uids []string
	env.Eventually("the frontend has three Pods", func(ctx context.Context) string {
		pods, err := env.Client.CoreV1().Pods(env.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=frontend"})
		if err != nil {
			return err.Error()
		}
		uids = nil
		for _, pod := range pods.Items {
			switch {
			case pod.DeletionTimestamp != nil:
				return "Pod " + pod.Name + " is being deleted"
			case time.Since(pod.CreationTimestamp.Time) < time.Second:
				return "Pod " + pod.Name + " was created in this second"
			}
			uids = append(uids, string(pod.UID))
		}
		if len(uids) != 3 {
			return fmt.Sprintf("it has %d", len(uids))
		}
		return ""
	})
	return uids
}

// replaced waits until the old Pods are gone.
func replaced(t *testing.T, env *clustertest.Env, old []string) {
	t.Helper()
	env.Eventually("no Pod is older than its config", func(ctx context.Context) string {
		pods, err := env.Client.CoreV1().Pods(env.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=frontend"})
		if err != nil {
			return err.Error()
		}
		for _, pod := range pods.Items {
			if slices.Contains(old, string(pod.UID)) {
				return "change lost: Pod " + pod.Name + " still runs the old config"
			}
		}
		return ""
	})
}
