package apiproxy_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
)

func TestRefuse(t *testing.T) {
	for code, is := range map[int]func(error) bool{
		400: apierrors.IsBadRequest,
		401: apierrors.IsUnauthorized,
		403: apierrors.IsForbidden,
		404: apierrors.IsNotFound,
		409: apierrors.IsConflict,
		410: apierrors.IsResourceExpired,
		422: apierrors.IsInvalid,
		429: apierrors.IsTooManyRequests,
		500: apierrors.IsInternalError,
		503: apierrors.IsServiceUnavailable,
		504: apierrors.IsTimeout,
	} {
		for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
			t.Run(fmt.Sprint(code, " ", contentType), func(t *testing.T) {
				w := newWorld(t, func(http.ResponseWriter, *http.Request) { t.Error("it reached the API server") },
					apiproxy.Fault{Match: apiproxy.Match{Verb: "update"}, Effect: apiproxy.Effect{Refuse: code}})
				config := w.Config()
				config.ContentType = contentType
				_, err := clientset(t, config).CoreV1().ConfigMaps("shop").Update(t.Context(),
					&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.UpdateOptions{})
				require.True(t, is(err), "%v", err)
				require.ErrorContains(t, err, fmt.Sprintf("refused on purpose by the workshop's proxy (verb=update,refuse=%d)", code))
				require.Equal(t, fmt.Sprintf("refused with %d", code), w.only().Injections())
				require.Equal(t, code, w.only().Status)
				require.False(t, w.only().NoOp)
			})
		}
	}
}

// AlreadyExists would tell the client that its object is there. A create can be refused with Conflict, for example because
// of the ResourceQuota that it has to update.
func TestRefuseACreateWithAConflict(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) { t.Error("it reached the API server") },
		apiproxy.Fault{Match: apiproxy.Match{Verb: "create"}, Effect: apiproxy.Effect{Refuse: 409}})
	_, err := clientset(t, w.Config()).CoreV1().ConfigMaps("shop").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.False(t, apierrors.IsAlreadyExists(err))
}

// client-go tries again by itself when it is told when to, and not otherwise.
func TestRetryAfter(t *testing.T) {
	for name, c := range map[string]struct {
		after    time.Duration
		requests int
	}{"without": {0, 1}, "with": {time.Millisecond, 2}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}`)
			}, apiproxy.Fault{Match: apiproxy.Match{From: 1, To: 1}, Effect: apiproxy.Effect{Refuse: 503, RetryAfter: c.after}})
			_, err := clientset(t, w.Config()).CoreV1().ConfigMaps("shop").Get(t.Context(), "a", metav1.GetOptions{})
			require.Equal(t, c.after == 0, apierrors.IsServiceUnavailable(err), "%v", err)
			require.Len(t, w.memory.History().Requests, c.requests)
		})
	}
}

func TestDelay(t *testing.T) {
	const delay = 50 * time.Millisecond
	var came time.Time
	w := newWorld(t, func(http.ResponseWriter, *http.Request) { came = time.Now() }, apiproxy.Fault{Effect: apiproxy.Effect{Delay: delay}})
	start := time.Now()
	response, _ := w.do("GET", "/version", "")
	require.Equal(t, 200, response.StatusCode)
	require.GreaterOrEqual(t, came.Sub(start), delay)
	require.GreaterOrEqual(t, w.only().Duration, delay)
	require.Equal(t, "delayed by 50ms", w.only().Injections())
}

func TestClientDoesNotWaitForADelay(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) { t.Error("it reached the API server") },
		apiproxy.Fault{Effect: apiproxy.Effect{Delay: time.Hour}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, "DELETE", w.URL()+"/api/v1/namespaces/shop/pods/a", nil)
	require.NoError(t, err)
	c, failed := client(t, w.Config()), make(chan error, 1)
	go func() {
		_, err := c.Do(request)
		failed <- err
	}()
	eventually(t, "arrived", func() bool { return w.Arrived() == 1 })
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	eventually(t, "recorded", func() bool { return len(w.memory.History().Requests) == 1 })
	require.Zero(t, w.only().Status)
	require.Equal(t, "the client went away", w.only().Error)
	require.True(t, w.only().GaveUp)
}

func TestStopDoesNotWaitForADelay(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) { t.Error("it reached the API server") },
		apiproxy.Fault{Match: apiproxy.Match{Verb: "get"}, Effect: apiproxy.Effect{Delay: time.Hour}})
	failed := make(chan error)
	go func() {
		_, err := client(t, w.Config()).Get(w.URL() + "/version")
		failed <- err
	}()
	// It cannot be seen from outside that the request has come. If Stop is sooner, that is fine, too.
	time.Sleep(10 * time.Millisecond)
	require.NoError(t, w.Stop())
	require.Error(t, <-failed)
}

func TestLate(t *testing.T) {
	const late, events = 30 * time.Millisecond, 20
	sent := make([]atomic.Int64, events)
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for i := range events {
			sent[i].Store(time.Now().UnixNano())
			_, _ = io.WriteString(w, added(fmt.Sprint(i+1)))
			w.(http.Flusher).Flush()
		}
	}, apiproxy.Fault{Match: apiproxy.Match{Verb: "watch"}, Effect: apiproxy.Effect{Late: late}})
	response, err := client(t, w.Config()).Get(w.URL() + "/api/v1/pods?watch=1")
	require.NoError(t, err)
	defer response.Body.Close()
	for i := range events {
		want := added(fmt.Sprint(i + 1))
		got := make([]byte, len(want))
		_, err := io.ReadFull(response.Body, got)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
		require.GreaterOrEqual(t, time.Since(time.Unix(0, sent[i].Load())), late)
	}
	_, err = response.Body.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "the end is late, too, but comes")
	h := w.memory.History()
	require.Len(t, h.Events, events)
	for i, e := range h.Events {
		require.GreaterOrEqual(t, e.Time.UnixNano()-sent[i].Load(), int64(late), "it is recorded when it was delivered")
	}
	require.Equal(t, "events late by 30ms", w.only().Injections())
}

// What is late is not delivered to nobody, and does not keep anything alive.
func TestLateForever(t *testing.T) {
	for name, end := range map[string]func(w *world, cancel func()){
		"the client goes away": func(w *world, cancel func()) { cancel() },
		"the proxy stops":      func(w *world, _ func()) { require.NoError(w.t, w.Stop()) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, added("1"))
			}, apiproxy.Fault{Match: apiproxy.Match{Verb: "watch"}, Effect: apiproxy.Effect{Late: time.Hour}})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			request, err := http.NewRequestWithContext(ctx, "GET", w.URL()+"/api/v1/pods?watch=1", nil)
			require.NoError(t, err)
			response, err := client(t, w.Config()).Do(request)
			require.NoError(t, err)
			defer response.Body.Close()
			end(w, cancel)
			eventually(t, "recorded", func() bool { return !w.only().Open })
			require.Empty(t, w.memory.History().Events)
		})
	}
}

// A reply is lost: it was done, it is recorded as done, and the client does not know.
func TestLost(t *testing.T) {
	for name, c := range map[string]struct {
		effect apiproxy.Effect
		did    bool
		said   string
	}{
		"the request":                   {apiproxy.Effect{Lost: apiproxy.LostRequest}, false, "request lost"},
		"the reply":                     {apiproxy.Effect{Lost: apiproxy.LostReply}, true, "reply lost"},
		"the reply, and it is a 504":    {apiproxy.Effect{Lost: apiproxy.LostReply, Refuse: 504}, true, "reply lost, refused with 504"},
		"the controller, and the reply": {apiproxy.Effect{Kill: apiproxy.After}, true, "controller killed after it"},
		"the controller, before":        {apiproxy.Effect{Kill: apiproxy.Before}, false, "controller killed before it"},
		"the control plane, after":      {apiproxy.Effect{Crash: apiproxy.After}, true, "control plane killed after it"},
		"the control plane, before":     {apiproxy.Effect{Crash: apiproxy.Before}, false, "control plane killed before it"},
	} {
		t.Run(name, func(t *testing.T) {
			var done atomic.Int64
			w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
				done.Add(1)
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"7"}}`)
			})
			var killed, crashed atomic.Int64
			proxy, err := apiproxy.Start(t.Context(), apiproxy.Options{Upstream: w.upstream, Record: w.memory.Record,
				Faults: []apiproxy.Fault{{Match: apiproxy.Match{Verb: "update", From: 1, To: 1}, Effect: c.effect}},
				Kill:   func() { killed.Add(1 + 10*done.Load()) }, Crash: func() { crashed.Add(1 + 10*done.Load()) }})
			require.NoError(t, err)
			defer proxy.Stop()
			update := func() error {
				_, err := clientset(t, proxy.Config()).CoreV1().ConfigMaps("shop").Update(t.Context(),
					&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "6"}}, metav1.UpdateOptions{})
				return err
			}
			err = update()
			require.Error(t, err)
			require.Equal(t, c.effect.Refuse == 504, apierrors.IsTimeout(err), "%v", err)
			require.Equal(t, c.did, done.Load() == 1)
			r := w.only()
			require.Equal(t, c.said, r.Injections())
			if c.did {
				require.Equal(t, 200, r.Status, "what the API server answered")
				require.NotEmpty(t, r.Error, "and the client did not hear")
				require.Equal(t, "7", r.RVAfter)
				require.Equal(t, "6", r.RVBefore)
			} else {
				require.Zero(t, r.Status)
			}
			var want int64 = 1
			if c.did {
				want = 11 // when it was done
			}
			require.Equal(t, c.effect.Kill != "", killed.Load() == want, "%d", killed.Load())
			require.Equal(t, c.effect.Crash != "", crashed.Load() == want, "%d", crashed.Load())
			require.NoError(t, update(), "the next one")
		})
	}
}

// A watch has no end, so what is done to its answer does not wait for it.
func TestTheAnswerToAWatchIsLost(t *testing.T) {
	upstream := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
		case <-t.Context().Done():
		}
	})
	for text, said := range map[string]string{"lost=reply": "reply lost", "kill=after": "controller killed after it"} {
		fault, err := apiproxy.ParseFault(text)
		require.NoError(t, err)
		var killed atomic.Bool
		var memory history.Memory
		proxy, err := apiproxy.Start(t.Context(), apiproxy.Options{Upstream: upstream.upstream, Record: memory.Record, Faults: []apiproxy.Fault{fault}, Kill: func() { killed.Store(true) }})
		require.NoError(t, err)
		_, err = clientset(t, proxy.Config()).CoreV1().ConfigMaps("shop").Watch(t.Context(), metav1.ListOptions{})
		require.Error(t, err)
		require.NoError(t, proxy.Stop())
		require.Equal(t, said, memory.History().Requests[0].Injections())
		require.Equal(t, text == "kill=after", killed.Load())
	}
}

// What could not be done to a request is recorded as not done.
func TestWhatIsNotDone(t *testing.T) {
	const cut, watch = "watch=cut,verb=watch", "/api/v1/pods?watch=1"
	for name, c := range map[string]struct {
		faults []string
		path   string
		answer int // 0: the connection breaks
		said   string
		isDone bool
	}{
		"a watch that is forbidden":   {[]string{cut}, watch, 403, "cut at event 1: not done, as the watch was answered 403", false},
		"a watch without an answer":   {[]string{cut}, watch, 0, "cut at event 1: not done, as no answer came", false},
		"a watch that is refused":     {[]string{cut, "refuse=500"}, watch, 200, "refused with 500, cut at event 1: not done, as the watch was refused", true},
		"no answer to lose":           {[]string{"lost=reply"}, "/api/v1/pods", 0, "reply lost: not done, as no answer came", false},
		"no answer to kill after":     {[]string{"kill=after"}, "/api/v1/pods", 0, "controller killed after it: not done, as no answer came", false},
		"the request is lost first":   {[]string{"refuse=500", "lost=request"}, "/api/v1/pods", 200, "request lost, refused with 500: not done, as another fault came first", true},
		"sent on when it is too late": {[]string{"refuse=503", "lost=late"}, "/api/v1/pods", 200, "done when the client had gone, refused with 503: not done, as the client had gone", true},
		"killed, and not sent on":     {[]string{"kill=before", "lost=late"}, "/api/v1/pods", 200, "done when the client had gone: not done, as another fault came first, controller killed before it", true},
		"sent on, and then killed":    {[]string{"kill=after", "lost=late"}, "/api/v1/pods", 200, "done when the client had gone, controller killed after it", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(w http.ResponseWriter, _ *http.Request) {
				if c.answer == 0 {
					panic(http.ErrAbortHandler)
				}
				w.WriteHeader(c.answer)
			})
			var faults []apiproxy.Fault
			for _, text := range c.faults {
				fault, err := apiproxy.ParseFault(text)
				require.NoError(t, err)
				faults = append(faults, fault)
			}
			var memory history.Memory
			var killed atomic.Bool
			proxy, err := apiproxy.Start(t.Context(), apiproxy.Options{Upstream: w.upstream, Record: memory.Record, Faults: faults, Kill: func() { killed.Store(true) }})
			require.NoError(t, err)
			request, err := http.NewRequestWithContext(t.Context(), "GET", proxy.URL()+c.path, nil)
			require.NoError(t, err)
			request.Header.Set("Authorization", "Bearer "+proxy.Config().BearerToken)
			if response, err := client(t, proxy.Config()).Do(request); err == nil {
				_ = response.Body.Close()
			}
			require.Eventually(t, func() bool { return memory.Len() > 0 }, hangs, time.Millisecond)
			require.NoError(t, proxy.Stop())
			requests := memory.History().Requests
			require.Equal(t, c.said, requests[0].Injections())
			require.Equal(t, c.isDone, requests[0].IsDisturbed())
			require.Equal(t, strings.HasSuffix(name, "killed") || strings.HasPrefix(name, "killed"), killed.Load())
		})
	}
}

func TestThereMustBeSomethingToEnd(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
	for _, effect := range []apiproxy.Effect{{Kill: apiproxy.Before}, {Crash: apiproxy.After}, {Stop: apiproxy.Before}, {Freeze: apiproxy.After}, {Reboot: apiproxy.Before}, {PowerCut: apiproxy.After}} {
		require.ErrorContains(t, w.SetFaults(apiproxy.Fault{Effect: effect}), "the proxy has no controller, control plane or machine to do this to")
	}
}

// While the proxy is down, connections are refused, and those that were there are broken.
func TestDown(t *testing.T) {
	const down = 3 * time.Second // until then, it must have been found to refuse connections
	release := make(chan struct{})
	arrived := make(chan struct{}, 1)
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "nodes") {
			arrived <- struct{}{}
			<-r.Context().Done()
			return
		}
		w.(http.Flusher).Flush()
		if strings.Contains(r.URL.RawQuery, "watch") {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
	}, apiproxy.Fault{Match: apiproxy.Match{Verb: "delete", From: 1, To: 1}, Effect: apiproxy.Effect{Down: down}})
	defer close(release)
	c := client(t, w.Config())
	watching, err := c.Get(w.URL() + "/api/v1/pods?watch=1")
	require.NoError(t, err)
	defer watching.Body.Close()

	request := func() error {
		request, err := http.NewRequestWithContext(t.Context(), "DELETE", w.URL()+"/api/v1/namespaces/shop/pods/a", nil)
		require.NoError(t, err)
		response, err := c.Do(request)
		if err == nil {
			response.Body.Close()
		}
		return err
	}
	answered := make(chan error, 1)
	go func() {
		response, err := c.Get(w.URL() + "/api/v1/nodes/a")
		if err == nil {
			response.Body.Close()
		}
		answered <- err
	}()
	<-arrived
	require.Error(t, request())
	require.Error(t, <-answered, "a request that was in flight broke off")
	_, err = io.ReadAll(watching.Body)
	require.Error(t, err, "the watch broke, too")
	_, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(w.URL(), "https://"))
	require.ErrorContains(t, err, "connection refused")
	eventually(t, "it is up again", func() bool { return request() == nil })
	requests := w.memory.History().Requests
	i := slices.IndexFunc(requests, func(q history.Request) bool { return q.Injections() != "" })
	require.Equal(t, "nobody can connect for 3s", requests[i].Injections())
	require.Zero(t, requests[i].Status)
	i = slices.IndexFunc(requests, func(q history.Request) bool { return q.Verb == "get" })
	require.Equal(t, "broken off on purpose by the workshop's proxy", requests[i].Error)
	require.False(t, requests[i].GaveUp, "the proxy closed the connection")
}

func TestStopWhileDown(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {}, apiproxy.Fault{Effect: apiproxy.Effect{Down: time.Hour}})
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, "GET", w.URL()+"/version", nil)
	require.NoError(t, err)
	_, err = client(t, w.Config()).Do(request)
	require.Error(t, err)
	require.NoError(t, w.Stop())
}

func TestStopIsAskedForAndTheRequestGoesOn(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
	var stopped atomic.Int64
	proxy, err := apiproxy.Start(t.Context(), apiproxy.Options{Upstream: w.upstream, Record: w.memory.Record,
		Faults: []apiproxy.Fault{{Match: apiproxy.Match{From: 2, To: 2}, Effect: apiproxy.Effect{Stop: apiproxy.Before}}}, Stop: func() bool { stopped.Add(1); return true }})
	require.NoError(t, err)
	defer proxy.Stop()
	for range 3 {
		response, _ := do(t, client(t, proxy.Config()), proxy.URL(), "GET", "/version", "")
		require.Equal(t, 200, response.StatusCode)
	}
	require.EqualValues(t, 1, stopped.Load())
	require.Equal(t, "controller told to stop before it", w.memory.History().Requests[1].Injections())
}

func TestFor(t *testing.T) {
	const long = 50 * time.Millisecond
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {}, apiproxy.Fault{Match: apiproxy.Match{From: 2}, Effect: apiproxy.Effect{Refuse: 500, For: long}})
	statusOf := func() int {
		response, _ := w.do("GET", "/version", "")
		return response.StatusCode
	}
	require.Equal(t, 200, statusOf())
	time.Sleep(2 * long) // the time begins with the first that is refused
	require.Equal(t, 500, statusOf())
	eventually(t, "it is over", func() bool { return statusOf() == 200 })
}

// Nobody waits for the answer any more when the request goes on.
func TestDoneLate(t *testing.T) {
	heard := make(chan string, 1)
	w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		heard <- r.Method + " " + string(body)
	}, apiproxy.Fault{Match: apiproxy.Match{Verb: "create"}, Effect: apiproxy.Effect{Lost: apiproxy.LostLate, Delay: 2 * time.Second}})
	request, err := http.NewRequestWithContext(t.Context(), "POST", w.URL()+"/api/v1/namespaces/a/pods", strings.NewReader("a pod"))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+w.Config().BearerToken)
	_, err = client(t, w.Config()).Do(request)
	require.Error(t, err)
	require.Empty(t, heard)
	require.Equal(t, "POST a pod", <-heard)
	require.Eventually(t, func() bool { return w.memory.Len() > 0 }, hangs, time.Millisecond)
	requests := w.memory.History().Requests
	require.Len(t, requests, 1)
	require.Equal(t, 200, requests[0].Status)
	require.Equal(t, "delayed by 2s, done when the client had gone", requests[0].Injections())
	require.NotEmpty(t, requests[0].Error)
	require.False(t, requests[0].IsOnlySlow())
}
