package test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/attributestags"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/quotas"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/crd"
	samplecrdv1 "example.com/controllers/crd/apis/samplecrd/v1"
	"example.com/controllers/crd/generated/clientset/versioned"
	typed "example.com/controllers/crd/generated/clientset/versioned/typed/samplecrd/v1"
	"example.com/controllers/crd/neutron"
	"example.com/controllers/crd/neutrontest"
	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/clustertest"
	"example.com/controllers/harness/history"
)

// world is a namespace in a cluster, with the lesson's controller, and a cloud with a project of the test's own: the
// Neutron at NEUTRON_URL if that is set, or else one in memory.
type world struct {
	*clustertest.Env
	t         *testing.T
	networks  typed.NetworkInterface
	project   string
	cloud     *gophercloud.ServiceClient // as another user of the project
	admin     *gophercloud.ServiceClient // as an administrator
	down      atomic.Bool                // while true, the cloud answers the controller with 503
	calls     atomic.Int64               // number of requests from the controller to the cloud
	gate      atomic.Pointer[gate]       // at which the controller's next check waits; nil for none
	recording history.Memory             // of the requests between the controller and the API server
	proxy     *apiproxy.Proxy            // between the controller and the API server
	backend   *neutron.Cloud             // the controller's
}

// gate holds up a check of a Network's network at its first request to the cloud.
type gate struct {
	arrived chan struct{} // gets a value when the request has arrived
	open    chan struct{} // closed when it may go on
}

func newWorld(t *testing.T) *world {
	env, client := newClient(t)
	w := worldIn(t, env, client, nil)
	stop, err := w.start(t.Context(), crd.Options{
		Namespace: env.Namespace, Workers: 2, Backoff: 20 * time.Millisecond, MaxBackoff: 500 * time.Millisecond,
		Recheck: time.Second, Grace: 5 * time.Second,
	})
	require.NoError(t, err)
	t.Cleanup(stop)
	return w
}

// worldIn returns a world without a controller. The controller's requests to the cloud use transport; nil is the default.
func worldIn(t *testing.T, env *clustertest.Env, client typed.NetworkInterface, transport http.RoundTripper) *world {
	w := &world{Env: env, t: t, networks: client, project: strings.ReplaceAll(uuid.NewString(), "-", "")}
	var neutronAPI http.Handler = &neutrontest.Server{}
	if address := os.Getenv("NEUTRON_URL"); address != "" {
		upstream, err := url.Parse(address)
		require.NoError(t, err)
		neutronAPI = httputil.NewSingleHostReverseProxy(upstream)
	}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-User-Id") == "controller" {
			w.calls.Add(1)
			if g := w.gate.Load(); g != nil && r.URL.Query().Has("name") && strings.HasSuffix(r.URL.Path, "/networks") {
				select {
				case g.arrived <- struct{}{}:
				default:
				}
				<-g.open
			}
			if w.down.Load() {
				http.Error(rw, "<html>down</html>", http.StatusServiceUnavailable)
				return
			}
		}
		neutronAPI.ServeHTTP(rw, r)
	}))
	t.Cleanup(server.Close)
	cloud := func(user, roles string, transport http.RoundTripper) *gophercloud.ServiceClient {
		return &gophercloud.ServiceClient{ProviderClient: &gophercloud.ProviderClient{HTTPClient: http.Client{Transport: transport}}, Type: "network",
			Endpoint: server.URL + "/", ResourceBase: server.URL + "/v2.0/",
			MoreHeaders: map[string]string{"X-User-Id": user, "X-Project-Id": w.project, "X-Roles": roles}}
	}
	w.cloud, w.admin = cloud("user", "member,reader", nil), cloud("user", "admin", nil)
	w.backend = &neutron.Cloud{Client: cloud("controller", "member,reader", transport), Owner: "test"}
	t.Cleanup(w.cleanUp)

	config, err := env.Config()
	require.NoError(t, err)
	w.proxy, err = apiproxy.Start(context.Background(), apiproxy.Options{Upstream: config, Record: w.recording.Record})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.proxy.Stop()) })
	return w
}

// start starts a new controller and returns a function that stops it and waits until it has ended.
func (w *world) start(ctx context.Context, options crd.Options) (stop func(), err error) {
	kube, err := kubernetes.NewForConfig(w.proxy.Config())
	if err != nil {
		return nil, err
	}
	own, err := versioned.NewForConfig(w.proxy.Config())
	if err != nil {
		return nil, err
	}
	controller, err := crd.New(ctx, kube, own, w.backend, options)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() {
		if err := controller.Run(ctx); err != nil {
			w.t.Error(err)
		}
	})
	return func() {
		cancel()
		running.Wait()
	}, nil
}

// create creates a Network and waits until it is ready.
func (w *world) create() *samplecrdv1.Network {
	w.t.Helper()
	made, err := w.networks.Create(w.t.Context(), network("192.168.0.0/16", "192.168.0.1"), metav1.CreateOptions{})
	require.NoError(w.t, err)
	return w.becomes(made.Name, metav1.ConditionTrue, samplecrdv1.ReasonReady)
}

// becomes waits until a Network has that condition for its current generation.
func (w *world) becomes(name string, status metav1.ConditionStatus, reason string) *samplecrdv1.Network {
	w.t.Helper()
	var network *samplecrdv1.Network
	w.Eventually("the condition of Network "+name, func(ctx context.Context) string {
		var err error
		if network, err = w.networks.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		ready := meta.FindStatusCondition(network.Status.Conditions, samplecrdv1.ConditionReady)
		if ready == nil {
			return "there is no Ready condition"
		}
		if ready.Status != status || ready.Reason != reason || ready.ObservedGeneration != network.Generation {
			return string(ready.Status) + ", " + ready.Reason + ": " + ready.Message
		}
		return ""
	})
	return network
}

// betweenChecks calls change at the beginning of a check, when the one before has ended. The world must have one Network.
func (w *world) betweenChecks(change func()) {
	w.t.Helper()
	g := &gate{arrived: make(chan struct{}, 1), open: make(chan struct{})}
	w.gate.Store(g)
	defer close(g.open)
	defer w.gate.Store(nil)
	w.Eventually("the next check", func(context.Context) string {
		if len(g.arrived) == 0 {
			return "it has not begun"
		}
		return ""
	})
	change()
}

// isGone waits until a Network no longer exists, and requires that the cloud has deleted everything by then.
func (w *world) isGone(name string) {
	w.t.Helper()
	w.Eventually("Network "+name, func(ctx context.Context) string {
		_, err := w.networks.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return "it still exists"
	})
	require.Empty(w.t, w.subnets())
	require.Empty(w.t, w.inCloud(w.t.Context()))
}

// inCloud returns the networks of the test's project.
func (w *world) inCloud(ctx context.Context) []networks.Network {
	w.t.Helper()
	pages, err := networks.List(w.cloud, networks.ListOpts{}).AllPages(ctx)
	require.NoError(w.t, err)
	all, err := networks.ExtractNetworks(pages)
	require.NoError(w.t, err)
	return slices.DeleteFunc(all, func(n networks.Network) bool { return n.ProjectID != w.project }) // other projects may share theirs
}

func (w *world) subnets() []subnets.Subnet {
	w.t.Helper()
	pages, err := subnets.List(w.cloud, subnets.ListOpts{ProjectID: w.project}).AllPages(w.t.Context())
	require.NoError(w.t, err)
	all, err := subnets.ExtractSubnets(pages)
	require.NoError(w.t, err)
	return all
}

// cleanUp deletes what the test has left in the cloud, which may outlive the test.
func (w *world) cleanUp() {
	ctx := context.Background() // the test's context has ended
	pages, err := ports.List(w.cloud, ports.ListOpts{ProjectID: w.project}).AllPages(ctx)
	require.NoError(w.t, err)
	left, err := ports.ExtractPorts(pages)
	require.NoError(w.t, err)
	for _, p := range left {
		require.NoError(w.t, ports.Delete(ctx, w.cloud, p.ID).ExtractErr())
	}
	for _, n := range w.inCloud(ctx) {
		require.NoError(w.t, networks.Delete(ctx, w.cloud, n.ID).ExtractErr())
	}
}

// writes returns the controller's writes to the API server, without Events.
func (w *world) writes() []string {
	var writes []string
	for _, r := range w.recording.History().Writes() {
		if r.Resource != "events" {
			writes = append(writes, strings.TrimSpace(r.Verb+" "+r.What()))
		}
	}
	return writes
}

// wrote waits until the controller has made that many writes, and requires that there are no more. A write is recorded a
// little after its effect can be observed.
func (w *world) wrote(times int) {
	w.t.Helper()
	w.Eventually("writes", func(context.Context) string {
		if len(w.writes()) < times {
			return strings.Join(w.writes(), ", ")
		}
		return ""
	})
	require.Len(w.t, w.writes(), times)
}

func (w *world) events(name string) []string {
	w.t.Helper()
	list, err := w.Client.CoreV1().Events(w.Namespace).List(w.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	require.NoError(w.t, err)
	var reasons []string
	for _, e := range list.Items {
		reasons = append(reasons, e.Type+" "+e.Reason)
	}
	return reasons
}

func TestLifecycle(t *testing.T) {
	w := newWorld(t)
	n := w.create()
	require.Equal(t, []string{crd.Finalizer}, n.Finalizers)
	there := w.subnets()
	require.Len(t, there, 1)
	require.Equal(t, there[0].ID, n.Status.SubnetID)
	require.Equal(t, there[0].NetworkID, n.Status.NetworkID)
	require.Equal(t, n.Generation, n.Status.ObservedGeneration)
	w.wrote(2)
	require.Equal(t, []string{"patch networks.samplecrd.k8s.io", "patch networks.samplecrd.k8s.io/status"}, w.writes())

	_, err := w.networks.Patch(t.Context(), n.Name, "application/merge-patch+json", []byte(`{"spec":{"gateway":"192.168.7.7"}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	w.becomes(n.Name, metav1.ConditionTrue, samplecrdv1.ReasonReady)
	require.Equal(t, "192.168.7.7", w.subnets()[0].GatewayIP)

	require.Equal(t, n.Status.SubnetID, w.subnets()[0].ID, "the subnet must not be replaced")

	// Rechecks write nothing.
	w.wrote(3)
	calls := w.calls.Load()
	w.Eventually("the cloud", func(context.Context) string {
		if w.calls.Load() < calls+6 {
			return "there was no recheck"
		}
		return ""
	})
	w.wrote(3)
	w.Eventually("events", func(context.Context) string {
		if got := w.events(n.Name); len(got) != 1 || got[0] != "Normal Ready" {
			return strings.Join(got, ", ")
		}
		return ""
	})
	require.NoError(t, w.networks.Delete(t.Context(), n.Name, metav1.DeleteOptions{}))
	w.isGone(n.Name)
}

func TestDrift(t *testing.T) {
	w := newWorld(t)
	n := w.create()
	_, err := subnets.Update(t.Context(), w.cloud, n.Status.SubnetID, subnets.UpdateOpts{GatewayIP: new("10.0.0.1")}).Extract()
	require.NoError(t, err)
	w.Eventually("the gateway", func(context.Context) string {
		if got := w.subnets()[0].GatewayIP; got != "192.168.0.1" {
			return got
		}
		return ""
	})
	w.wrote(2) // repairing the gateway does not change the status
	again := func(what string, id func(samplecrdv1.NetworkStatus) string) {
		t.Helper()
		before := id(n.Status)
		w.Eventually("the id of the "+what, func(ctx context.Context) string {
			var err error
			if n, err = w.networks.Get(ctx, n.Name, metav1.GetOptions{}); err != nil {
				return err.Error()
			}
			if id(n.Status) == before {
				return "it has not changed"
			}
			return ""
		})
		w.becomes(n.Name, metav1.ConditionTrue, samplecrdv1.ReasonReady)
		there := w.subnets()
		require.Len(t, there, 1)
		require.Equal(t, samplecrdv1.NetworkStatus{NetworkID: there[0].NetworkID, SubnetID: there[0].ID,
			ObservedGeneration: n.Generation, Conditions: n.Status.Conditions}, n.Status)
		require.Len(t, w.inCloud(t.Context()), 1)
	}
	require.NoError(t, subnets.Delete(t.Context(), w.cloud, n.Status.SubnetID).ExtractErr())
	again("subnet", func(s samplecrdv1.NetworkStatus) string { return s.SubnetID })
	// A check that had found the network, and then no subnet, would report a failure.
	w.betweenChecks(func() {
		require.NoError(t, networks.Delete(t.Context(), w.cloud, n.Status.NetworkID).ExtractErr())
	})
	again("network", func(s samplecrdv1.NetworkStatus) string { return s.NetworkID })
	w.wrote(4)
}

// Somebody renames the network and the subnet, and keeps using them.
func TestRenamed(t *testing.T) {
	w := newWorld(t)
	n := w.create()
	port, err := ports.Create(t.Context(), w.cloud, ports.CreateOpts{NetworkID: n.Status.NetworkID, Name: "web"}).Extract()
	require.NoError(t, err)
	before := w.inCloud(t.Context())[0]
	require.NoError(t, networks.Update(t.Context(), w.cloud, n.Status.NetworkID, networks.UpdateOpts{Name: new("prod-db"), Description: new("do not touch")}).Err)
	require.NoError(t, subnets.Update(t.Context(), w.cloud, n.Status.SubnetID, subnets.UpdateOpts{Name: new("prod-db")}).Err)
	w.Eventually("the names", func(context.Context) string {
		if network, subnet := w.inCloud(t.Context())[0], w.subnets()[0]; network.Name != before.Name || network.Description != before.Description || subnet.Name != before.Name {
			return network.Name + ", " + subnet.Name
		}
		return ""
	})
	require.Len(t, w.inCloud(t.Context()), 1)
	w.wrote(2) // the status is the same as before
	require.NoError(t, ports.Delete(t.Context(), w.cloud, port.ID).ExtractErr())
	require.NoError(t, w.networks.Delete(t.Context(), n.Name, metav1.DeleteOptions{}))
	w.isGone(n.Name)
}

func TestTheCloudIsDown(t *testing.T) {
	w := newWorld(t)
	n := w.create()
	w.down.Store(true)
	w.becomes(n.Name, metav1.ConditionFalse, samplecrdv1.ReasonUnavailable)
	w.wrote(3)
	calls := w.calls.Load()
	require.NoError(t, w.networks.Delete(t.Context(), n.Name, metav1.DeleteOptions{}))
	w.Eventually("the cloud", func(context.Context) string {
		if w.calls.Load() < calls+5 {
			return "there was no retry"
		}
		return ""
	})
	require.LessOrEqual(t, len(w.writes()), 4, "only the observed generation may change")
	w.down.Store(false)
	w.isGone(n.Name)
}

func TestDeletionWithPorts(t *testing.T) {
	w := newWorld(t)
	n := w.create()
	port, err := ports.Create(t.Context(), w.cloud, ports.CreateOpts{NetworkID: n.Status.NetworkID, Name: "web"}).Extract()
	require.NoError(t, err)
	require.NoError(t, w.networks.Delete(t.Context(), n.Name, metav1.DeleteOptions{}))
	n = w.becomes(n.Name, metav1.ConditionFalse, samplecrdv1.ReasonInUse)
	require.Contains(t, meta.FindStatusCondition(n.Status.Conditions, samplecrdv1.ConditionReady).Message, "web "+port.ID)
	w.Eventually("events", func(context.Context) string {
		if got := w.events(n.Name); len(got) != 2 {
			return strings.Join(got, ", ")
		}
		return ""
	})
	require.NoError(t, ports.Delete(t.Context(), w.cloud, port.ID).ExtractErr())
	w.isGone(n.Name)
}

// The controller deletes orphans of its own, and keeps those of another cluster.
func TestOrphans(t *testing.T) {
	w := newWorld(t)
	n := w.create()
	require.NoError(t, w.networks.Delete(t.Context(), n.Name, metav1.DeleteOptions{}))
	w.isGone(n.Name)
	again := w.create()
	make := func(owner string, of *samplecrdv1.Network) string {
		made, err := networks.Create(t.Context(), w.cloud, networks.CreateOpts{
			Name: "kubernetes-" + owner + "-" + string(of.UID), Description: "Kubernetes Network " + of.Namespace + "/" + of.Name,
		}).Extract()
		require.NoError(t, err)
		return made.ID
	}
	late, others := make("test", n), make("another cluster", n)
	require.NotEqual(t, late, others)
	renamed := make("test", n)
	require.NoError(t, attributestags.Add(t.Context(), w.cloud, "networks", renamed, "kubernetes-test-"+string(n.UID)).ExtractErr())
	require.NoError(t, networks.Update(t.Context(), w.cloud, renamed, networks.UpdateOpts{Name: new("prod-db"), Description: new("do not touch")}).Err)
	w.Eventually("the networks in the cloud", func(context.Context) string {
		left := sets.New[string]()
		for _, network := range w.inCloud(t.Context()) {
			left.Insert(network.ID)
		}
		if want := sets.New(others, again.Status.NetworkID); !left.Equal(want) {
			return fmt.Sprintf("%v, should be %v", sets.List(left), sets.List(want))
		}
		return ""
	})
}

func TestQuotaExceeded(t *testing.T) {
	w := newWorld(t)
	quota := func(networks int) {
		_, err := quotas.Update(t.Context(), w.admin, w.project, quotas.UpdateOpts{Network: &networks}).Extract()
		require.NoError(t, err)
	}
	quota(0)
	n, err := w.networks.Create(t.Context(), network("192.168.0.0/16", "192.168.0.1"), metav1.CreateOptions{})
	require.NoError(t, err)
	n = w.becomes(n.Name, metav1.ConditionFalse, samplecrdv1.ReasonQuotaExceeded)
	require.Contains(t, meta.FindStatusCondition(n.Status.Conditions, samplecrdv1.ConditionReady).Message, "Quota exceeded for resources: ['network'].")
	require.Empty(t, n.Status.NetworkID)
	w.wrote(2)
	calls := w.calls.Load()
	w.Eventually("the cloud", func(context.Context) string {
		if w.calls.Load() < calls+6 {
			return "there was no retry"
		}
		return ""
	})
	w.wrote(2) // the retries write nothing
	require.Empty(t, w.inCloud(t.Context()))

	quota(1)
	w.becomes(n.Name, metav1.ConditionTrue, samplecrdv1.ReasonReady)
	w.Eventually("events", func(context.Context) string {
		if got := w.events(n.Name); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"Normal Ready", "Warning QuotaExceeded"}) {
			return strings.Join(got, ", ")
		}
		return ""
	})
	require.NoError(t, w.networks.Delete(t.Context(), n.Name, metav1.DeleteOptions{}))
	w.isGone(n.Name)
}

func TestRights(t *testing.T) {
	skipWithRealNeutron(t)
	env, _ := newClient(t)
	env.Install("../manifests")
	env.RequireRights("network-controller", clustertest.Rights{
		May: []string{
			"get networks.samplecrd.k8s.io", "list networks.samplecrd.k8s.io", "watch networks.samplecrd.k8s.io", "patch networks.samplecrd.k8s.io",
			"patch networks.samplecrd.k8s.io --subresource=status", "create events.events.k8s.io", "patch events.events.k8s.io",
		},
		MayNot: []string{
			"create networks.samplecrd.k8s.io", "delete networks.samplecrd.k8s.io", "update networks.samplecrd.k8s.io",
			"get secrets", "list pods", "patch networks.samplecrd.k8s.io --namespace=kube-system",
		},
	})
}

func TestProgram(t *testing.T) {
	skipWithRealNeutron(t)
	program := clustertest.BuildProgram(t, "..", "./cmd/network-controller")
	env, _ := newClient(t)
	server := httptest.NewServer(&neutrontest.Server{})
	defer server.Close()
	nothing := httptest.NewServer(http.NotFoundHandler())
	defer nothing.Close()
	namespace, kubeconfig := "--namespace="+env.Namespace, "--kubeconfig="+env.Cluster.Kubeconfig
	in := func(want string, environment ...string) clustertest.Refusal {
		return clustertest.Refusal{Args: []string{namespace, kubeconfig}, Env: environment, Want: want}
	}
	clustertest.RequireRefusals(t, program, map[string]clustertest.Refusal{
		"no namespace":      {Args: nil, Want: "--namespace is missing; name the namespace of the Networks"},
		"an argument":       {Args: []string{"--namespace=x", "y"}, Want: `unexpected argument "y"`},
		"no workers":        {Args: []string{"--namespace=x", "--workers=0"}, Want: "--workers is 0; it must be at least 1"},
		"no recheck":        {Args: []string{"--namespace=x", "--recheck=0s"}, Want: "--recheck is 0s; it must be more than 0"},
		"no such namespace": {Args: []string{"--namespace=nowhere", kubeconfig}, Want: `there is no namespace "nowhere" on https://`},
		"no cloud":          in("no cloud is configured; set OS_CLOUD, or OS_AUTH_URL"),
		"no project":        in("NEUTRON_PROJECT is not; set it to the project", "NEUTRON_URL="+server.URL),
		"a bad address": in(`NEUTRON_URL is "neutron:9696"; it must be like http://127.0.0.1:9696`,
			"NEUTRON_URL=neutron:9696", "NEUTRON_PROJECT=p"),
		"not a Neutron": in("list networks of the Neutron at "+nothing.URL+"/; is it the right address, and is it up?",
			"NEUTRON_URL="+nothing.URL, "NEUTRON_PROJECT=p"),
		"no such cloud":          in("read clouds.yaml for OS_CLOUD=nowhere", "OS_CLOUD=nowhere"),
		"incomplete credentials": in("read the OS_... variables", "OS_AUTH_URL=http://127.0.0.1:1"),
		"no Keystone": in("log in to http://127.0.0.1:1", "OS_AUTH_URL=http://127.0.0.1:1", "OS_USERNAME=u", "OS_PASSWORD=p",
			"OS_PROJECT_NAME=p", "OS_DOMAIN_NAME=d"),
	})
	there := []string{"NEUTRON_PROJECT=p", "NEUTRON_URL=" + server.URL}
	run := clustertest.StartProgramIn(t, there, program, namespace, kubeconfig, "--address=127.0.0.1:0")
	run.AwaitLog("Caches synced")
	run.Signal(syscall.SIGTERM)
	require.NoError(t, run.Wait())
	require.Contains(t, run.Log(), "Stopped")

	// The controller starts while the cloud is down. The Networks' status reports it. A port that was just closed is free for
	// other tests' servers, so this is one that nobody listens on.
	down := []string{"NEUTRON_PROJECT=p", "NEUTRON_URL=http://127.0.0.1:1"}
	run = clustertest.StartProgramIn(t, down, program, namespace, kubeconfig, "--address=127.0.0.1:0")
	run.AwaitLog("Cannot reach the cloud, starting anyway")
	run.AwaitLog("Caches synced")
	run.Signal(syscall.SIGTERM)
	require.NoError(t, run.Wait())
}

func TestREADME(t *testing.T) {
	t.Parallel()
	clustertest.PlayLesson(t, "..")
}
