package apiproxy_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
)

// holds are the calls of Options.Hold.
type holds struct {
	mu      sync.Mutex
	kinds   []history.InjectionKind // of all calls
	current int                     // calls that are not over
}

func (h *holds) hold(kind history.InjectionKind) (over func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kinds = append(h.kinds, kind)
	h.current++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.current--
	}
}

// state returns how many calls are not over, and the kinds of all calls.
func (h *holds) state() (int, []history.InjectionKind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current, slices.Clone(h.kinds)
}

// second starts a second proxy of the world, which has more options and records into the same memory.
func (w *world) second(o apiproxy.Options) *apiproxy.Proxy {
	w.t.Helper()
	o.Upstream, o.Record = w.upstream, w.memory.Record
	proxy, err := apiproxy.Start(w.t.Context(), o)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, proxy.Stop()) })
	return proxy
}

// configMaps is an API server whose only resource is ConfigMaps: a create makes one at resourceVersion 7, and watches
// show it.
func configMaps() http.HandlerFunc {
	const object = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"shop","uid":"1","resourceVersion":"7"}}`
	created := make(chan struct{})
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, object)
			close(created)
		case r.URL.Query().Get("sendInitialEvents") != "": // the informer lists instead
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
		case r.URL.Query().Get("watch") != "":
			w.(http.Flusher).Flush()
			select {
			case <-created:
				_, _ = io.WriteString(w, `{"type":"ADDED","object":`+object+"}\n")
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			case <-r.Context().Done():
			}
		default:
			_, _ = io.WriteString(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
		}
	}
}

func newConfigMap() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
}

// An informer calls its handler for an object whose creator has no answer yet.
func TestTheEventComesBeforeTheAnswer(t *testing.T) {
	w := newWorld(t, configMaps())
	var h holds
	proxy := w.second(apiproxy.Options{Hold: h.hold, Faults: []apiproxy.Fault{
		{Match: apiproxy.Match{Verb: "create", From: 1, To: 1}, Effect: apiproxy.Effect{AnswerLate: time.Hour}}}})
	clients := clientset(t, proxy.Config())
	handled := make(chan string, 1)
	factory := informers.NewSharedInformerFactory(clients, 0)
	_, err := factory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { handled <- object.(*corev1.ConfigMap).Name }})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	defer cancel()

	creating, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	answer := make(chan error, 1)
	go func() {
		_, err := clients.CoreV1().ConfigMaps("shop").Create(creating, newConfigMap(), metav1.CreateOptions{})
		answer <- err
	}()
	require.Equal(t, "a", <-handled)
	eventually(t, "the answer is held", func() bool { current, _ := h.state(); return current == 1 })
	require.Empty(t, answer)
	giveUp()
	require.ErrorIs(t, <-answer, context.Canceled)
	var creation history.Request
	eventually(t, "recorded", func() bool {
		for _, r := range w.memory.History().Requests {
			if r.Verb == "create" {
				creation = r
			}
		}
		return creation.Verb != ""
	})
	require.Equal(t, http.StatusCreated, creation.Status)
	require.Equal(t, "7", creation.RVAfter)
	require.Equal(t, "the client went away", creation.Error)
	require.True(t, creation.GaveUp)
	require.Equal(t, "answered 1h0m0s late", creation.Injections())
	current, kinds := h.state()
	require.Zero(t, current)
	require.Equal(t, []history.InjectionKind{history.AnsweredLate}, kinds)
}

// The answer is the API server's, and so is the refusal of another fault.
func TestAnswerLate(t *testing.T) {
	const late = 50 * time.Millisecond
	for name, refuse := range map[string]int{"an answer": 0, "a refusal": 500} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, configMaps(), apiproxy.Fault{Effect: apiproxy.Effect{AnswerLate: late, Refuse: refuse}})
			begin := time.Now()
			created, err := clientset(t, w.Config()).CoreV1().ConfigMaps("shop").Create(t.Context(), newConfigMap(), metav1.CreateOptions{})
			require.GreaterOrEqual(t, time.Since(begin), late)
			require.Equal(t, refuse != 0, err != nil, "%v", err)
			if refuse == 0 {
				require.Equal(t, "7", created.ResourceVersion)
				require.True(t, w.only().IsOnlySlow())
				require.Positive(t, w.only().Received)
			}
		})
	}
}

// While the answer to a deletion is late, the object is created anew. The late answer must not make the proxy forget that.
func TestALateAnswerIsReadAtOnce(t *testing.T) {
	const object = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"shop","uid":"2","resourceVersion":"7"}}`
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodDelete {
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
			return
		}
		_, _ = io.WriteString(w, object)
	})
	var h holds
	proxy := w.second(apiproxy.Options{Hold: h.hold, Faults: []apiproxy.Fault{{Match: apiproxy.Match{Verb: "delete"}, Effect: apiproxy.Effect{AnswerLate: 300 * time.Millisecond}}}})
	objects := clientset(t, proxy.Config()).CoreV1().ConfigMaps("shop")
	deleted := make(chan error, 1)
	go func() { deleted <- objects.Delete(t.Context(), "a", metav1.DeleteOptions{}) }()
	eventually(t, "the answer is held", func() bool { current, _ := h.state(); return current == 1 })
	_, err := objects.Create(t.Context(), newConfigMap(), metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, <-deleted)
	_, err = objects.Update(t.Context(), newConfigMap(), metav1.UpdateOptions{})
	require.NoError(t, err)
	requests := w.memory.History().Requests
	require.Equal(t, "7", requests[len(requests)-1].RVBefore)
}

// A client that has a timeout gives up; another one waits until the connection breaks. The API server sees neither request.
func TestHang(t *testing.T) {
	for name, c := range map[string]struct {
		hang         time.Duration
		givesUp      bool
		method, want string
		protocols    []string
	}{
		"a read, and the client gives up":              {time.Hour, true, "GET", "the client went away", nil},
		"a write, and the client gives up":             {time.Hour, true, "POST", "the client went away", nil},
		"a write over HTTP/1, and the client gives up": {time.Hour, true, "POST", "the client went away", []string{"http/1.1"}},
		"a write, and the client waits":                {50 * time.Millisecond, false, "POST", "broken off on purpose by the workshop's proxy", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(http.ResponseWriter, *http.Request) { t.Error("it reached the API server") })
			var h holds
			proxy := w.second(apiproxy.Options{Hold: h.hold, Faults: []apiproxy.Fault{{Effect: apiproxy.Effect{Hang: c.hang}}}})
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			request, err := http.NewRequestWithContext(ctx, c.method, proxy.URL()+"/api/v1/namespaces/shop/configmaps", strings.NewReader("a body"))
			require.NoError(t, err)
			failed := make(chan error, 1)
			go func() {
				_, err := client(t, proxy.Config(), c.protocols...).Do(request)
				failed <- err
			}()
			if c.givesUp { // once the request is there: a timeout might be over before
				eventually(t, "the request hangs", func() bool { current, _ := h.state(); return current == 1 })
				giveUp()
			}
			require.Error(t, <-failed)
			eventually(t, "recorded", func() bool { return len(w.memory.History().Requests) == 1 })
			require.Zero(t, w.only().Status)
			require.Equal(t, c.want, w.only().Error)
			require.Equal(t, fmt.Sprintf("no answer for %s", c.hang), w.only().Injections())
			current, kinds := h.state()
			require.Zero(t, current)
			require.Equal(t, []history.InjectionKind{history.NoAnswer}, kinds)
		})
	}
}

// The request of a frozen controller goes on when the controller does.
func TestFreeze(t *testing.T) {
	for name, c := range map[string]struct {
		effect apiproxy.Effect
		did    int64 // requests that had reached the API server when the controller was frozen
		long   time.Duration
		said   string
	}{
		"before":                   {apiproxy.Effect{Freeze: apiproxy.Before}, 0, apiproxy.DefaultFreeze, "controller frozen for 20s before it"},
		"after":                    {apiproxy.Effect{Freeze: apiproxy.After, FreezeFor: time.Hour}, 1, time.Hour, "controller frozen for 1h0m0s after it"},
		"after, and it is refused": {apiproxy.Effect{Freeze: apiproxy.After, Refuse: 500}, 0, apiproxy.DefaultFreeze, "controller frozen for 20s after it, refused with 500"},
	} {
		t.Run(name, func(t *testing.T) {
			var did atomic.Int64
			w := newWorld(t, func(http.ResponseWriter, *http.Request) { did.Add(1) })
			var h holds
			frozen := make(chan time.Duration)
			proxy := w.second(apiproxy.Options{Hold: h.hold,
				Faults: []apiproxy.Fault{{Match: apiproxy.Match{From: 1, To: 1}, Effect: c.effect}},
				Freeze: func(_ context.Context, long time.Duration) bool {
					frozen <- long // it is frozen ...
					frozen <- long // ... and runs again
					return true
				}})
			done := make(chan int, 1)
			request := func() {
				response, err := client(t, proxy.Config()).Get(proxy.URL() + "/version")
				if err == nil {
					response.Body.Close()
					done <- response.StatusCode
				}
			}
			go request()
			require.Equal(t, c.long, <-frozen)
			require.Equal(t, c.did, did.Load())
			current, kinds := h.state()
			require.Equal(t, 1, current)
			require.Equal(t, []history.InjectionKind{history.ControllerFrozen}, kinds)
			require.Empty(t, done)
			<-frozen
			require.Equal(t, cmp.Or(c.effect.Refuse, 200), <-done)
			require.Equal(t, c.said, w.only().Injections())
			go request()
			require.Equal(t, 200, <-done, "the next one")
		})
	}
}

// A controller that runs on the machine that fails gets no answer. Another one does.
func TestAMachineFails(t *testing.T) {
	for name, c := range map[string]struct {
		effect  apiproxy.Effect
		own     bool
		kind    history.InjectionKind
		did     int64 // requests that had reached the API server when the machine failed
		reaches bool  // the API server, in the end
	}{
		"its own, before":    {apiproxy.Effect{Reboot: apiproxy.Before}, true, history.MachineRebooted, 0, false},
		"its own, after":     {apiproxy.Effect{PowerCut: apiproxy.After}, true, history.PowerCut, 1, true},
		"another, before":    {apiproxy.Effect{PowerCut: apiproxy.Before}, false, history.PowerCut, 0, true},
		"another, after":     {apiproxy.Effect{Reboot: apiproxy.After}, false, history.MachineRebooted, 1, true},
		"for a minute":       {apiproxy.Effect{PowerCut: apiproxy.Before, OffFor: time.Minute}, true, history.PowerCut, 0, false},
		"another, and a 500": {apiproxy.Effect{Reboot: apiproxy.Before, Refuse: 500}, false, history.MachineRebooted, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			var did atomic.Int64
			w := newWorld(t, func(http.ResponseWriter, *http.Request) { did.Add(1) })
			calls := 0
			proxy := w.second(apiproxy.Options{
				Faults: []apiproxy.Fault{{Match: apiproxy.Match{From: 1, To: 1}, Effect: c.effect}},
				FailMachine: func(_ context.Context, kind history.InjectionKind, offFor time.Duration, request history.Request) (own, done bool) {
					calls++
					require.Equal(t, c.effect.OffFor, offFor)
					require.Equal(t, c.kind, kind)
					require.Equal(t, "node-0", request.Name)
					require.Equal(t, c.did, did.Load())
					return c.own, true
				}})
			response, err := client(t, proxy.Config()).Post(proxy.URL()+"/api/v1/nodes/node-0", "", nil)
			if err == nil {
				response.Body.Close()
				require.Equal(t, cmp.Or(c.effect.Refuse, 200), response.StatusCode)
			}
			require.Equal(t, c.own, err != nil)
			require.Equal(t, 1, calls)
			require.Equal(t, c.reaches, did.Load() == 1)
			require.Equal(t, c.kind, w.only().Injected[0].Kind)
			require.Equal(t, c.effect.OffFor, w.only().Injected[0].Duration)
		})
	}
}

// What cannot be done to the controller or its machine is recorded as not done, and the request goes on.
func TestThereIsNothingToDoItTo(t *testing.T) {
	const noMachine = "not done, as it was for no machine, or for one that was off or rebooting"
	for text, said := range map[string]string{
		"stop=before":                 "controller told to stop before it: not done, as the controller was stopping already",
		"stop=before,delay=1h":        "controller told to stop before it: not done, as the controller was stopping already, delayed by 1h0m0s: not done, as the controller was stopping already",
		"freeze=before":               "controller frozen for 20s before it: not done, as the controller was stopping, or had ended",
		"freeze=after,freeze-for=3s":  "controller frozen for 3s after it: not done, as the controller was stopping, or had ended",
		"reboot=before":               "machine rebooted before it: " + noMachine,
		"power-cut=after":             "power cut after it: " + noMachine,
		"power-cut=before,refuse=500": "power cut before it: " + noMachine + ", refused with 500",
	} {
		t.Run(text, func(t *testing.T) {
			w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
			fault, err := apiproxy.ParseFault(text)
			require.NoError(t, err)
			proxy := w.second(apiproxy.Options{Faults: []apiproxy.Fault{fault},
				Stop:   func() bool { return false },
				Freeze: func(context.Context, time.Duration) bool { return false },
				FailMachine: func(context.Context, history.InjectionKind, time.Duration, history.Request) (own, done bool) {
					return false, false
				},
			})
			response, err := client(t, proxy.Config()).Get(proxy.URL() + "/version")
			require.NoError(t, err)
			response.Body.Close()
			require.Equal(t, cmp.Or(fault.Refuse, 200), response.StatusCode)
			eventually(t, "it is recorded", func() bool { return w.memory.Len() > 0 })
			require.Equal(t, said, w.only().Injections())
			require.Equal(t, fault.Refuse != 0, w.only().IsDisturbed())
		})
	}
}

// When the proxy is stopped, it does not leave the controller frozen.
func TestStopWhileFrozen(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) { t.Error("it reached the API server") })
	frozen := make(chan struct{})
	proxy := w.second(apiproxy.Options{Faults: []apiproxy.Fault{{Effect: apiproxy.Effect{Freeze: apiproxy.Before}}},
		Freeze: func(ctx context.Context, _ time.Duration) bool {
			close(frozen)
			<-ctx.Done()
			return true
		}})
	failed := make(chan error, 1)
	go func() {
		_, err := client(t, proxy.Config()).Get(proxy.URL() + "/version")
		failed <- err
	}()
	<-frozen
	require.NoError(t, proxy.Stop())
	require.Error(t, <-failed)
}

// Whoever waits for the client can know that a fault holds it up: nobody can connect, or events are late.
func TestHold(t *testing.T) {
	for kind, c := range map[history.InjectionKind]struct {
		effect apiproxy.Effect
		path   string
	}{
		history.Disconnected: {apiproxy.Effect{Down: 50 * time.Millisecond}, "/version"},
		history.Delayed:      {apiproxy.Effect{Delay: 50 * time.Millisecond}, "/version"},
		history.EventsLate:   {apiproxy.Effect{Late: 50 * time.Millisecond}, "/api/v1/pods?watch=1"},
	} {
		t.Run(string(kind), func(t *testing.T) {
			w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.RawQuery != "" {
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, added("1"))
				}
			})
			var h holds
			proxy := w.second(apiproxy.Options{Hold: h.hold, Faults: []apiproxy.Fault{{Match: apiproxy.Match{Verb: verbOf(c.effect), From: 1, To: 1}, Effect: c.effect}}})
			response, err := client(t, proxy.Config()).Get(proxy.URL() + c.path)
			if err == nil {
				_, err = io.ReadAll(response.Body)
				require.NoError(t, err)
				response.Body.Close()
			}
			require.Equal(t, kind == history.Disconnected, err != nil, "%v", err)
			eventually(t, "it is over", func() bool { current, kinds := h.state(); return current == 0 && len(kinds) > 0 })
			_, kinds := h.state()
			require.Equal(t, []history.InjectionKind{kind}, kinds)
		})
	}
}

// So can he while an event waits to be replaced.
func TestAnUnobservedEventHolds(t *testing.T) {
	held := make(chan struct{})
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, added("1"))
		w.(http.Flusher).Flush()
		<-held
		_, _ = io.WriteString(w, event("MODIFIED", "2"))
	})
	var h holds
	proxy := w.second(apiproxy.Options{Hold: h.hold, Faults: []apiproxy.Fault{
		{Match: apiproxy.Match{Verb: "watch", From: 1, To: 1}, Effect: apiproxy.Effect{Watch: apiproxy.WatchUnobserved, Event: 1}}}})
	response, err := client(t, proxy.Config()).Get(proxy.URL() + "/api/v1/pods?watch=1")
	require.NoError(t, err)
	defer response.Body.Close()
	eventually(t, "it holds", func() bool { current, _ := h.state(); return current == 1 })
	close(held)
	_, err = io.ReadAll(response.Body)
	require.NoError(t, err)
	eventually(t, "it is over", func() bool { current, _ := h.state(); return current == 0 })
	_, kinds := h.state()
	require.Equal(t, []history.InjectionKind{history.EventsLate}, kinds)
}

func verbOf(e apiproxy.Effect) string {
	if e.Late != 0 {
		return "watch"
	}
	return "get"
}
