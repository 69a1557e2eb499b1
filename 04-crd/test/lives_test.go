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

// Networks live and die, and both ways of the controller are bad, and it is restarted again and again. Whenever the
// ways are good for a while, there is one network in the cloud for each Network; and in the end nothing on either
// side.
//
// Not parallel: it looks at all goroutines of the process.
func TestLives(t *testing.T) {
	if os.Getenv("NEUTRON_URL") != "" {
		t.Skip("how long it takes is known with the Neutron in memory only")
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
	t.Logf("to see it again: SEED=%d. It is the same lives and faults, but who is first may differ. -artifacts keeps the log", seed)
	random := func(stream int) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(stream))) }

	env, client := newClient(t)
	config, err := env.Config()
	require.NoError(t, err)
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { // after those of the world
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
	way := &badWay{log: log, random: random(0), befell: map[string]int{}, looked: map[types.UID]int{}, late: sets.New[types.UID](), deliver: make(chan struct{})}
	l := &lives{world: worldIn(t, env, client, way), way: way, log: log, stop: func() {}, seen: map[types.UID]sight{}}
	defer l.see(versioned.NewForConfigOrDie(config))()
	defer func() {
		l.stop()
		requests, err := os.Create(filepath.Join(t.ArtifactDir(), "requests"))
		require.NoError(t, err)
		defer requests.Close()
		require.NoError(t, l.recording.History().WriteRequests(requests))
	}()

	alive := make([]*samplecrdv1.Network, names)
	for round := range rounds {
		require.NoError(t, l.proxy.SetFaults(faults(random(1+round), names*each)...))
		way.becomesBad()
		require.NoError(t, l.restart(5*time.Second)) // a watch that has begun knows nothing of new faults
		group, ctx := errgroup.WithContext(t.Context())
		for name := range names {
			random := random(1 + rounds + round*names + name)
			group.Go(func() (err error) {
				for range each {
					if alive[name] != nil {
						if err := l.end(ctx, alive[name]); err != nil {
							return err
						}
					}
					if alive[name], err = l.live(ctx, random, fmt.Sprintf("network-%d", name)); err != nil {
						return err
					}
				}
				return nil
			})
		}
		require.NoError(t, group.Wait())
		require.NoError(t, l.proxy.SetFaults())
		way.becomesGood()
		l.settles(alive)
	}
	t.Logf("%d lives, with %d restarts. What befell calls to the cloud: %v", rounds*names*each, l.restarts, way.befell)

	for _, n := range alive {
		require.NoError(t, l.networks.Delete(t.Context(), n.Name, metav1.DeleteOptions{}))
	}
	l.Eventually("both sides", func(ctx context.Context) string {
		left, err := l.networks.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		if there, subs := l.inCloud(ctx), l.subnets(); len(left.Items)+len(there)+len(subs) > 0 {
			return fmt.Sprintf("%d Networks, and in the cloud %d networks and %d subnets", len(left.Items), len(there), len(subs))
		}
		return ""
	})
}

// lives is a world in which much happens at the same time.
type lives struct {
	*world
	way *badWay
	log context.Context // of the controllers

	controller sync.Mutex
	stop       func()
	restarts   int

	mu   sync.Mutex
	seen map[types.UID]sight
}

// sight is what a person has seen of a Network last.
type sight struct {
	*samplecrdv1.Network
	isGone bool
}

// see sees until it is told to stop.
func (l *lives) see(client versioned.Interface) (stop func()) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(l.Namespace))
	see := func(n *samplecrdv1.Network, isGone bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.seen[n.UID] = sight{n, isGone}
	}
	networks := samplecrdinformers.ToTypedNetworkInformer(factory.Samplecrd().V1().Networks())
	_, err := networks.TypedInformer().AddTypedEventHandler(samplecrdinformers.NetworkHandlerFuncs{
		AddFunc: func(n *samplecrdv1.Network) { see(n, false) },
		UpdateFunc: func(old, n *samplecrdv1.Network) {
			if old.UID != n.UID {
				see(old, true)
			}
			see(n, false)
		},
		DeleteFunc: func(n samplecrdinformers.DeletedNetwork) {
			if n.OptionalObj != nil {
				see(n.OptionalObj, true)
			}
		},
	}, cache.HandlerOptions{})
	require.NoError(l.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	factory.StartWithContext(ctx)
	return func() {
		cancel()
		factory.Shutdown()
	}
}

func (l *lives) sees(n *samplecrdv1.Network) (now sight, ever bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, ever = l.seen[n.UID]
	return now, ever
}

// eventually waits until what a person sees of a Network is as check says, which returns "" then.
func (l *lives) eventually(ctx context.Context, n *samplecrdv1.Network, check func(sight) string) error {
	last := "nobody has seen it"
	err := wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		if now, ever := l.sees(n); ever {
			last = check(now)
		}
		return last == "", nil
	})
	if err != nil {
		return fmt.Errorf("wait for Network %s: %s (%w)", n.Name, last, err)
	}
	return nil
}

// restart stops the controller, which has a time of grace for what it is at, and starts one that remembers nothing.
func (l *lives) restart(grace time.Duration) (err error) {
	l.controller.Lock()
	defer l.controller.Unlock()
	l.stop()
	l.restarts++
	l.stop, err = l.start(l.log, crd.Options{
		Namespace: l.Namespace, Workers: 4, Backoff: 20 * time.Millisecond, MaxBackoff: 300 * time.Millisecond,
		Recheck: 500 * time.Millisecond, Grace: grace,
	})
	return err
}

// live makes a Network and does this and that to it.
func (l *lives) live(ctx context.Context, random *rand.Rand, name string) (*samplecrdv1.Network, error) {
	oneOf := func(number int) bool { return random.IntN(number) == 0 }
	gateway := func() string { return fmt.Sprintf("10.0.0.%d", 1+random.IntN(254)) }
	n := network("10.0.0.0/24", gateway())
	n.Name = name
	// waits until it is ready, or for a moment, so that what follows comes into the middle of something.
	waits := func() error {
		if oneOf(2) {
			return l.isReady(ctx, n)
		}
		time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
		return nil
	}
	n, err := l.networks.Create(ctx, n, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	if err := waits(); err != nil {
		return nil, err
	}
	if oneOf(3) {
		patch := fmt.Appendf(nil, `{"spec":{"gateway":%q}}`, gateway())
		if n, err = l.networks.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return nil, err
		}
		if err := waits(); err != nil {
			return nil, err
		}
	}
	if oneOf(4) {
		if err := l.drift(ctx, random, n); err != nil {
			return nil, err
		}
	}
	if oneOf(40) {
		return n, l.restart(time.Duration(random.IntN(2)) * 5 * time.Second)
	}
	return n, nil
}

// drift changes in the cloud what there is of a Network, if there is anything.
func (l *lives) drift(ctx context.Context, random *rand.Rand, n *samplecrdv1.Network) error {
	there, err := l.madeFor(ctx, n)
	if err != nil || len(there) == 0 {
		return err
	}
	victim, what := there[random.IntN(len(there))], random.IntN(3)
	switch {
	case what == 0:
		_ = networks.Delete(ctx, l.cloud, victim.ID).ExtractErr() // or the controller was faster, here and below
	case len(victim.Subnets) == 0:
	case what == 1:
		_ = subnets.Delete(ctx, l.cloud, victim.Subnets[0]).ExtractErr()
	default:
		_, _ = subnets.Update(ctx, l.cloud, victim.Subnets[0], subnets.UpdateOpts{GatewayIP: new("192.168.0.1")}).Extract()
	}
	return nil
}

// end deletes a Network and waits until it is gone. If it had a finalizer before, there must be nothing in the cloud
// any more. If not, the API server may let it go although one is being written (kubernetes/kubernetes#77988).
func (l *lives) end(ctx context.Context, n *samplecrdv1.Network) error {
	before, everSeen := l.sees(n)
	if err := l.networks.Delete(ctx, n.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	err := l.eventually(ctx, n, func(now sight) string {
		if !now.isGone {
			return "it is still there"
		}
		return ""
	})
	if err != nil {
		return err
	}
	there, err := l.madeFor(ctx, n)
	if err == nil && len(there) > 0 && everSeen && len(before.Finalizers) > 0 && !l.way.isLate(n.UID) {
		err = fmt.Errorf("Network %s is gone, and in the cloud there is %s", n.Name, there[0].Name)
	}
	return err
}

func (l *lives) isReady(ctx context.Context, n *samplecrdv1.Network) error {
	return l.eventually(ctx, n, func(now sight) string {
		if now.Generation < n.Generation {
			return "it is an old one"
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

// madeFor returns the networks that were made for a Network.
func (l *lives) madeFor(ctx context.Context, n *samplecrdv1.Network) ([]networks.Network, error) {
	pages, err := networks.List(l.cloud, networks.ListOpts{Name: nameFor(n.UID)}).AllPages(ctx)
	if err != nil {
		return nil, err
	}
	return networks.ExtractNetworks(pages)
}

const namePrefix = "kubernetes-test-"

func nameFor(uid types.UID) string { return namePrefix + string(uid) }

// settles waits until all is as it should be, and then looks whether it stays so, without a write, while the
// controller looks at each of the Networks twice more.
func (l *lives) settles(alive []*samplecrdv1.Network) {
	l.t.Helper()
	looks := func(more int) func() string {
		before := l.way.looks()
		return func() string {
			now := l.way.looks()
			for _, n := range alive {
				if now[n.UID] < before[n.UID]+more {
					return n.Name + " is not looked at"
				}
			}
			return ""
		}
	}
	// What had begun while the ways were bad may still fail.
	looked := looks(1)
	l.Eventually("the controller", func(context.Context) string { return looked() })
	l.Eventually("what was made", func(context.Context) string { return l.isWrong(alive) })
	looked = looks(2)
	writes := len(l.writes())
	l.Eventually("the controller", func(context.Context) string {
		require.Empty(l.t, l.isWrong(alive), "after it was as it should be")
		return looked()
	})
	require.Empty(l.t, l.writes()[writes:], "at rest")
}

// isWrong says what is not as it should be.
func (l *lives) isWrong(alive []*samplecrdv1.Network) string {
	nets, subs := map[string]networks.Network{}, map[string]subnets.Subnet{}
	for _, network := range l.inCloud(l.t.Context()) {
		if other, ok := nets[network.Name]; ok {
			return fmt.Sprintf("there are two networks %s: %s and %s", network.Name, other.ID, network.ID)
		}
		nets[network.Name] = network
	}
	for _, subnet := range l.subnets() {
		if other, ok := subs[subnet.Name]; ok {
			return fmt.Sprintf("there are two subnets %s: %s and %s", subnet.Name, other.ID, subnet.ID)
		}
		subs[subnet.Name] = subnet
	}
	for _, n := range alive {
		n, ever := l.sees(n)
		if !ever || n.isGone {
			return "one of them is not there"
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

// faults are what befalls one request in eight to the API server, until about so many Networks have lived, and some
// of the watches.
func faults(random *rand.Rand, lives int) (all []apiproxy.Fault) {
	pause := func(most int) time.Duration { return time.Duration(1+random.IntN(most)) * time.Millisecond }
	for n := 1; n <= 20*lives; n++ {
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
	// Not two in a row: an informer waits long and longer before it watches again.
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

// badWay is a way to the cloud. While it is bad, something befalls about one call in six.
type badWay struct {
	log     context.Context
	mu      sync.Mutex
	random  *rand.Rand
	isBad   bool
	befell  map[string]int
	looked  map[types.UID]int   // how often it was asked for what was made for a Network
	late    sets.Set[types.UID] // for which a network was, or will be, made after nobody waited for it any more
	deliver chan struct{}       // closed when what is late must come
	coming  sync.WaitGroup      // what is late
}

func (w *badWay) becomesBad() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isBad = true
}

// becomesGood returns when all that was late has come.
func (w *badWay) becomesGood() {
	w.mu.Lock()
	w.isBad = false
	close(w.deliver)
	w.deliver = make(chan struct{})
	w.mu.Unlock()
	w.coming.Wait()
}

func (w *badWay) isLate(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.late.Has(uid)
}

func (w *badWay) looks() map[types.UID]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.looked)
}

// draw says what befalls a call, if anything, and how long what takes time takes.
func (w *badWay) draw(r *http.Request, body []byte) (what string, pause time.Duration, deliver <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if uid, ok := strings.CutPrefix(r.URL.Query().Get("name"), namePrefix); ok && path.Base(r.URL.Path) == "networks" {
		w.looked[types.UID(uid)]++
	}
	all := []string{"409", "412", "503", "slow", "request lost", "reply lost"}
	if r.Method != http.MethodGet {
		all = append(all, "late")
	}
	number := w.random.IntN(6 * len(all))
	if !w.isBad || number >= len(all) {
		return "", 0, nil
	}
	what, pause = all[number], time.Duration(w.random.IntN(100))*time.Millisecond
	w.befell[r.Method+" "+what]++
	if what == "late" {
		w.coming.Add(1)
		if w.random.IntN(3) == 0 {
			pause = time.Hour // only when it must come, when the Network may be long gone
		}
		var made struct{ Network struct{ Name string } }
		if err := json.Unmarshal(body, &made); err == nil && r.Method == http.MethodPost {
			w.late.Insert(types.UID(strings.TrimPrefix(made.Network.Name, namePrefix)))
		}
	}
	return what, pause, w.deliver
}

// RoundTrip implements [http.RoundTripper].
func (w *badWay) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body.Close()
	}
	// What is sent is carried out, even if the controller is stopped. Then it counts as a lost reply, not as late.
	pass := func() (*http.Response, error) {
		again := r.Clone(context.WithoutCancel(r.Context()))
		again.Body = io.NopCloser(bytes.NewReader(body))
		return http.DefaultTransport.RoundTrip(again)
	}
	passAndLose := func() {
		if response, err := pass(); err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
		}
	}
	refuse := func(status int, kind string) (*http.Response, error) {
		text := fmt.Sprintf(`{"NeutronError": {"type": %q, "message": "drawn by lot", "detail": ""}}`, kind)
		return &http.Response{StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
			Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text))}, nil
	}
	what, pause, deliver := w.draw(r, body)
	klog.FromContext(w.log).Info("Call to the cloud", "method", r.Method, "uri", r.URL.RequestURI(), "body", string(body), "befell", what)
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
		passAndLose()
		return nil, io.ErrUnexpectedEOF
	case "late":
		go func() {
			defer w.coming.Done()
			select {
			case <-time.After(10 * pause):
			case <-deliver:
			}
			passAndLose()
		}()
		return nil, os.ErrDeadlineExceeded
	}
	response, err := pass()
	if ended := r.Context().Err(); ended != nil && err == nil {
		response.Body.Close()
		return nil, ended
	}
	return response, err
}
