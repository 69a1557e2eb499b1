package test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"example.com/controllers/crd"
	samplecrdv1 "example.com/controllers/crd/apis/samplecrd/v1"
	"example.com/controllers/crd/generated/clientset/versioned"
	informers "example.com/controllers/crd/generated/informers/externalversions"
	samplecrdinformers "example.com/controllers/crd/generated/informers/externalversions/samplecrd/v1"
	"example.com/controllers/harness/apiproxy"
)

// Users create, change and delete Networks at random, and change the cloud, while random requests of the controller to the
// API server and to the cloud fail and the controller is restarted. After each round the faults stop, and the cloud must
// come to have one network for each Network; after the last, nothing must be left on either side.
//
// Not parallel: it checks all goroutines of the process for leaks.
func TestRandomHistories(t *testing.T) {
	if os.Getenv("NEUTRON_URL") != "" {
		t.Skip("runs with the Neutron in memory only; make test-all runs it")
	}
	rounds, names, each := 5, 20, 5
	if testing.Short() {
		rounds, each = 1, 3
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SEED"); text != "" {
		_, err := fmt.Sscan(text, &seed)
		require.NoError(t, err)
	}
	t.Logf("to repeat it: SEED=%d; the operations and faults are the same, their timing is not. -artifacts keeps the log", seed)
	random := func(stream int) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(stream))) }

	env, client := newClient(t)
	config, err := env.Config()
	require.NoError(t, err)
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { // runs after those of the world
		transport, err := rest.TransportFor(config) // shared by all clients of this configuration
		require.NoError(t, err)
		utilnet.CloseIdleConnectionsFor(transport)
		utilnet.CloseIdleConnectionsFor(http.DefaultTransport)
		if !t.Failed() {
			goleak.VerifyNone(t, before)
		}
	})
	file, err := os.Create(filepath.Join(t.ArtifactDir(), "controller.log"))
	require.NoError(t, err)
	defer file.Close()
	log := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(file))))
	transport := &faultyTransport{log: log, random: random(0), counts: map[string]int{}, rechecks: map[types.UID]int{}, late: sets.New[types.UID](), deliver: make(chan struct{})}
	h := &histories{world: worldIn(t, env, client, transport), transport: transport, log: log, stop: func() {}, seen: map[types.UID]observation{}}
	defer h.observe(versioned.NewForConfigOrDie(config))()
	defer func() {
		h.stop()
		requests, err := os.Create(filepath.Join(t.ArtifactDir(), "requests"))
		require.NoError(t, err)
		defer requests.Close()
		require.NoError(t, h.recording.History().WriteRequests(requests))
	}()

	alive := make([]*samplecrdv1.Network, names)
	for round := range rounds {
		require.NoError(t, h.proxy.SetFaults(faults(random(1+round), names*each)...))
		transport.startFaults()
		require.NoError(t, h.restart(5*time.Second)) // new faults do not affect watches that are already open
		group, ctx := errgroup.WithContext(t.Context())
		for name := range names {
			random := random(1 + rounds + round*names + name)
			group.Go(func() (err error) {
				for range each {
					if alive[name] != nil {
						if err := h.remove(ctx, alive[name]); err != nil {
							return err
						}
					}
					if alive[name], err = h.createAndChange(ctx, random, fmt.Sprintf("network-%d", name)); err != nil {
						return err
					}
				}
				return nil
			})
		}
		require.NoError(t, group.Wait())
		require.NoError(t, h.proxy.SetFaults())
		transport.stopFaults()
		h.settle(alive)
	}
	t.Logf("%d Networks, %d restarts, faults of requests to the cloud: %v", rounds*names*each, h.restarts, transport.counts)

	for _, n := range alive {
		require.NoError(t, h.networks.Delete(t.Context(), n.Name, metav1.DeleteOptions{}))
	}
	h.Eventually("both sides", func(ctx context.Context) string {
		left, err := h.networks.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		if nets, subs := h.inCloud(ctx), h.subnets(); len(left.Items)+len(nets)+len(subs) > 0 {
			return fmt.Sprintf("%d Networks, and in the cloud %d networks and %d subnets", len(left.Items), len(nets), len(subs))
		}
		return ""
	})
}

// histories is a world in which several users work at the same time.
type histories struct {
	*world
	transport *faultyTransport // of the controllers to the cloud
	log       context.Context  // has the logger of the controllers

	controller sync.Mutex
	stop       func()
	restarts   int

	mu   sync.Mutex
	seen map[types.UID]observation // the latest of each Network
}

// observation is a Network as the test's own watch has seen it last.
type observation struct {
	*samplecrdv1.Network
	isGone bool
}

// observe watches all Networks until stop is called.
func (h *histories) observe(client versioned.Interface) (stop func()) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(h.Namespace))
	record := func(n *samplecrdv1.Network, isGone bool) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.seen[n.UID] = observation{n, isGone}
	}
	networks := samplecrdinformers.ToTypedNetworkInformer(factory.Samplecrd().V1().Networks())
	_, err := networks.TypedInformer().AddTypedEventHandler(samplecrdinformers.NetworkHandlerFuncs{
		AddFunc: func(n *samplecrdv1.Network) { record(n, false) },
		UpdateFunc: func(old, n *samplecrdv1.Network) {
			if old.UID != n.UID {
				record(old, true)
			}
			record(n, false)
		},
		DeleteFunc: func(n samplecrdinformers.DeletedNetwork) {
			if n.OptionalObj != nil {
				record(n.OptionalObj, true)
			}
		},
	}, cache.HandlerOptions{})
	require.NoError(h.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	factory.StartWithContext(ctx)
	// A Network that is created and deleted before the first list would never be observed.
	require.NoError(h.t, factory.WaitForCacheSyncWithContext(ctx).AsError())
	return func() {
		cancel()
		factory.Shutdown()
	}
}

func (h *histories) latest(n *samplecrdv1.Network) (now observation, ever bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, ever = h.seen[n.UID]
	return now, ever
}

// eventually waits until check returns "" for the latest observation of a Network.
func (h *histories) eventually(ctx context.Context, n *samplecrdv1.Network, check func(observation) string) error {
	last := "not observed yet"
	err := wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		if now, ever := h.latest(n); ever {
			last = check(now)
		}
		return last == "", nil
	})
	if err != nil {
		return fmt.Errorf("wait for Network %s: %s (%w)", n.Name, last, err)
	}
	return nil
}

// restart stops the controller, with that much time for in-flight work, and starts a new one.
func (h *histories) restart(grace time.Duration) (err error) {
	h.controller.Lock()
	defer h.controller.Unlock()
	h.stop()
	h.restarts++
	h.stop, err = h.start(h.log, crd.Options{
		Namespace: h.Namespace, Workers: 4, Backoff: 20 * time.Millisecond, MaxBackoff: 300 * time.Millisecond,
		Recheck: 500 * time.Millisecond, Grace: grace,
	})
	return err
}

// createAndChange creates a Network, and may then change its spec, change its network in the cloud, or restart the controller.
func (h *histories) createAndChange(ctx context.Context, random *rand.Rand, name string) (*samplecrdv1.Network, error) {
	oneOf := func(number int) bool { return random.IntN(number) == 0 }
	gateway := func() string { return fmt.Sprintf("10.0.0.%d", 1+random.IntN(254)) }
	n := network("10.0.0.0/24", gateway())
	n.Name = name
	// maybeReady waits until the Network is ready, or only for a moment, so that the next operation interrupts a reconcile.
	maybeReady := func() error {
		if oneOf(2) {
			return h.isReady(ctx, n)
		}
		time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
		return nil
	}
	n, err := h.networks.Create(ctx, n, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	if err := maybeReady(); err != nil {
		return nil, err
	}
	if oneOf(3) {
		patch := fmt.Appendf(nil, `{"spec":{"gateway":%q}}`, gateway())
		if n, err = h.networks.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return nil, err
		}
		if err := maybeReady(); err != nil {
			return nil, err
		}
	}
	if oneOf(4) {
		if err := h.drift(ctx, random, n); err != nil {
			return nil, err
		}
	}
	if oneOf(40) {
		return n, h.restart(time.Duration(random.IntN(2)) * 5 * time.Second)
	}
	return n, nil
}

// drift changes, renames or deletes a network, or its subnet, in the cloud.
func (h *histories) drift(ctx context.Context, random *rand.Rand, n *samplecrdv1.Network) error {
	existing, err := h.networksOf(ctx, n)
	if err != nil || len(existing) == 0 {
		return err
	}
	victim, what := existing[random.IntN(len(existing))], random.IntN(4)
	switch {
	case what == 0:
		_ = networks.Delete(ctx, h.cloud, victim.ID).ExtractErr() // fails, here and below, if the controller has changed it meanwhile
	case what == 3 && slices.Contains(victim.Tags, victim.Name): // without it, nobody would find a duplicate again
		_ = networks.Update(ctx, h.cloud, victim.ID, networks.UpdateOpts{Name: new("renamed")}).Err
	case len(victim.Subnets) == 0:
	case what == 1:
		_ = subnets.Delete(ctx, h.cloud, victim.Subnets[0]).ExtractErr()
	default:
		_, _ = subnets.Update(ctx, h.cloud, victim.Subnets[0], subnets.UpdateOpts{GatewayIP: new("192.168.0.1")}).Extract()
	}
	return nil
}

// remove deletes a Network and waits until it no longer exists. If it had the finalizer before the deletion, the cloud must
// have deleted its network by then. If not, the API server may miss a finalizer that is being added
// (kubernetes/kubernetes#77988).
func (h *histories) remove(ctx context.Context, n *samplecrdv1.Network) error {
	before, everSeen := h.latest(n)
	if err := h.networks.Delete(ctx, n.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	err := h.eventually(ctx, n, func(now observation) string {
		if !now.isGone {
			return "it still exists"
		}
		return ""
	})
	if err != nil {
		return err
	}
	existing, err := h.networksOf(ctx, n)
	if err == nil && len(existing) > 0 && everSeen && len(before.Finalizers) > 0 && !h.transport.isLate(n.UID) {
		err = fmt.Errorf("Network %s was deleted, but the cloud still has %s", n.Name, existing[0].Name)
	}
	return err
}

func (h *histories) isReady(ctx context.Context, n *samplecrdv1.Network) error {
	return h.eventually(ctx, n, func(now observation) string {
		if now.Generation < n.Generation {
			return "the observation is older than the change"
		}
		return notReady(now.Network)
	})
}

func notReady(n *samplecrdv1.Network) string {
	ready := meta.FindStatusCondition(n.Status.Conditions, samplecrdv1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != n.Generation {
		return fmt.Sprintf("generation %d of %s is not ready: %+v", n.Generation, n.Name, ready)
	}
	return ""
}

// networksOf returns the networks in the cloud that belong to a Network.
func (h *histories) networksOf(ctx context.Context, n *samplecrdv1.Network) ([]networks.Network, error) {
	pages, err := networks.List(h.cloud, networks.ListOpts{Name: nameFor(n.UID)}).AllPages(ctx)
	if err != nil {
		return nil, err
	}
	return networks.ExtractNetworks(pages)
}

const namePrefix = "kubernetes-test-"

func nameFor(uid types.UID) string { return namePrefix + string(uid) }

// settle waits until the cloud matches the Networks, and requires that it stays so, without a write to the API server,
// during two more checks of each Network.
func (h *histories) settle(alive []*samplecrdv1.Network) {
	h.t.Helper()
	rechecked := func(more int) func() string {
		before := h.transport.listed()
		return func() string {
			now := h.transport.listed()
			for _, n := range alive {
				if now[n.UID] < before[n.UID]+more {
					return n.Name + " was not checked"
				}
			}
			return ""
		}
	}
	// A check that began before the faults stopped may still fail, and the one after it may write. When a third begins, that
	// one has ended.
	done := rechecked(2)
	h.Eventually("the controller", func(context.Context) string { return done() })
	h.Eventually("the cloud", func(context.Context) string { return h.mismatch(alive) })
	// A request is recorded a little after its effect can be observed.
	h.Eventually("the recording", func(context.Context) string {
		if recorded, arrived := len(h.recording.History().Requests), int(h.proxy.Arrived()); recorded < arrived {
			return fmt.Sprintf("%d of %d requests", recorded, arrived)
		}
		return ""
	})
	done = rechecked(2)
	writes := len(h.writes())
	h.Eventually("the controller", func(context.Context) string {
		require.Empty(h.t, h.mismatch(alive), "after it had matched")
		return done()
	})
	require.Empty(h.t, h.writes()[writes:], "at rest")
}

// mismatch returns a difference between the Networks and the cloud, or "".
func (h *histories) mismatch(alive []*samplecrdv1.Network) string {
	nets, subs := map[string]networks.Network{}, map[string]subnets.Subnet{}
	for _, network := range h.inCloud(h.t.Context()) {
		if other, ok := nets[network.Name]; ok {
			return fmt.Sprintf("there are two networks %s: %s and %s", network.Name, other.ID, network.ID)
		}
		nets[network.Name] = network
	}
	for _, subnet := range h.subnets() {
		if other, ok := subs[subnet.Name]; ok {
			return fmt.Sprintf("there are two subnets %s: %s and %s", subnet.Name, other.ID, subnet.ID)
		}
		subs[subnet.Name] = subnet
	}
	for _, n := range alive {
		n, ever := h.latest(n)
		if !ever || n.isGone {
			return "a Network does not exist"
		}
		if text := notReady(n.Network); text != "" {
			return text
		}
		network, subnet := nets[nameFor(n.UID)], subs[nameFor(n.UID)]
		if n.Status.NetworkID != network.ID || n.Status.SubnetID != subnet.ID || subnet.GatewayIP != n.Spec.Gateway {
			return fmt.Sprintf("of %s with the gateway %s and the status %+v, there are %+v and %+v", n.Name, n.Spec.Gateway, n.Status, network, subnet)
		}
	}
	if len(nets) != len(alive) || len(subs) != len(alive) {
		return fmt.Sprintf("for %d Networks, there are %d networks and %d subnets", len(alive), len(nets), len(subs))
	}
	return ""
}

// faults returns faults for one in eight of the requests to the API server that as many Networks need, and for some of the
// watches.
func faults(random *rand.Rand, networks int) (all []apiproxy.Fault) {
	pause := func(most int) time.Duration { return time.Duration(1+random.IntN(most)) * time.Millisecond }
	for n := 1; n <= 20*networks; n++ {
		for _, match := range []apiproxy.Match{{Verb: "patch", Resource: "networks"}, {Verb: "get", Resource: "networks"}, {Resource: "events"}} {
			f := apiproxy.Fault{Match: match}
			f.From, f.To = n, n
			switch random.IntN(8 * 8) {
			case 0:
				f.Refuse = http.StatusConflict
			case 1:
				f.Refuse = http.StatusTooManyRequests
			case 2:
				f.Refuse = http.StatusInternalServerError
			case 3:
				f.Refuse = http.StatusServiceUnavailable
			case 4:
				f.Lost = apiproxy.LostRequest
			case 5:
				f.Lost = apiproxy.LostReply
			case 6:
				f.Lost, f.Refuse = apiproxy.LostReply, http.StatusGatewayTimeout
			case 7:
				f.Delay = pause(100)
			default:
				continue
			}
			all = append(all, f)
		}
	}
	// Not for two in a row: an informer backs off before it watches again.
	for n := 1; n < 50; n += 2 {
		f := apiproxy.Fault{Match: apiproxy.Match{Verb: "watch", Resource: "networks", From: n, To: n}}
		switch random.IntN(6) {
		case 0:
			f.Watch, f.Event = apiproxy.WatchCut, 1+random.IntN(50)
		case 1:
			f.Watch, f.Event = apiproxy.WatchExpired, 1+random.IntN(50)
		case 2:
			f.Refuse = http.StatusServiceUnavailable
		case 3:
			f.Lost = apiproxy.LostRequest
		case 4:
			f.Late = pause(200)
		default:
			continue
		}
		all = append(all, f)
	}
	return all
}

// faultyTransport is a transport to the cloud. While isFaulty, about one request in six has a fault.
type faultyTransport struct {
	log      context.Context
	mu       sync.Mutex
	random   *rand.Rand
	isFaulty bool
	counts   map[string]int      // number of faults, by method and fault
	rechecks map[types.UID]int   // number of requests that list the networks of a Network
	late     sets.Set[types.UID] // Networks with a creation that was, or will be, carried out after the client had given up
	deliver  chan struct{}       // closed when late requests must be carried out now
	coming   sync.WaitGroup      // late requests
}

func (w *faultyTransport) startFaults() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isFaulty = true
}

// stopFaults also waits until all late requests have been carried out.
func (w *faultyTransport) stopFaults() {
	w.mu.Lock()
	w.isFaulty = false
	close(w.deliver)
	w.deliver = make(chan struct{})
	w.mu.Unlock()
	w.coming.Wait()
}

func (w *faultyTransport) isLate(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.late.Has(uid)
}

func (w *faultyTransport) listed() map[types.UID]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.rechecks)
}

// draw returns the fault of a request, "" for none, and how long it takes if it takes time.
func (w *faultyTransport) draw(r *http.Request, body []byte) (what string, pause time.Duration, deliver <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if uid, ok := strings.CutPrefix(r.URL.Query().Get("name"), namePrefix); ok && path.Base(r.URL.Path) == "networks" {
		w.rechecks[types.UID(uid)]++
	}
	all := []string{"409", "412", "503", "slow", "request lost", "reply lost"}
	if r.Method != http.MethodGet {
		all = append(all, "late")
	}
	number := w.random.IntN(6 * len(all))
	if !w.isFaulty || number >= len(all) {
		return "", 0, nil
	}
	what, pause = all[number], time.Duration(w.random.IntN(100))*time.Millisecond
	w.counts[r.Method+" "+what]++
	if what == "late" {
		w.coming.Add(1)
		if w.random.IntN(3) == 0 {
			pause = time.Hour // until stopFaults, when the Network may have been deleted long ago
		}
		var made struct{ Network struct{ Name string } }
		if err := json.Unmarshal(body, &made); err == nil && r.Method == http.MethodPost {
			w.late.Insert(types.UID(strings.TrimPrefix(made.Network.Name, namePrefix)))
		}
	}
	return what, pause, w.deliver
}

// RoundTrip implements [http.RoundTripper].
func (w *faultyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body.Close()
	}
	// Once sent, a request is carried out even if the controller is stopped. That counts as a lost response, not as late.
	send := func() (*http.Response, error) {
		again := r.Clone(context.WithoutCancel(r.Context()))
		again.Body = io.NopCloser(bytes.NewReader(body))
		return http.DefaultTransport.RoundTrip(again)
	}
	sendAndLose := func() {
		if response, err := send(); err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
		}
	}
	refuse := func(status int, kind string) (*http.Response, error) {
		text := fmt.Sprintf(`{"NeutronError": {"type": %q, "message": "injected", "detail": ""}}`, kind)
		return &http.Response{StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
			Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text))}, nil
	}
	what, pause, deliver := w.draw(r, body)
	klog.FromContext(w.log).Info("Call to the cloud", "method", r.Method, "uri", r.URL.RequestURI(), "body", string(body), "fault", what)
	switch what {
	case "409":
		return refuse(http.StatusConflict, "NetworkInUse")
	case "412":
		return refuse(http.StatusPreconditionFailed, "RevisionNumberConstraintFailed")
	case "503":
		return refuse(http.StatusServiceUnavailable, "")
	case "slow":
		select {
		case <-time.After(pause):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	case "request lost":
		return nil, io.ErrUnexpectedEOF
	case "reply lost":
		sendAndLose()
		return nil, io.ErrUnexpectedEOF
	case "late":
		go func() {
			defer w.coming.Done()
			select {
			case <-time.After(10 * pause):
			case <-deliver:
			}
			sendAndLose()
		}()
		return nil, os.ErrDeadlineExceeded
	}
	response, err := send()
	if ended := r.Context().Err(); ended != nil && err == nil {
		response.Body.Close()
		return nil, ended
	}
	return response, err
}
