package apiproxy_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"example.com/controllers/harness/apiproxy"
)

// typed is what client-go wants of a Pod in JSON.
const typed = `"kind":"Pod","apiVersion":"v1"`

// send has the API server send an event of a Pod.
func (w *watched) send(kind, name, version string) {
	text := strings.NewReplacer(`"a"`, fmt.Sprintf("%q", name), `"kind":"Pod"`, typed).Replace(event(kind, version))
	if w.protobuf {
		text = strings.ReplaceAll(protobufEvent(w.t, kind, version), "\n\x01a", "\n\x01"+name)
	}
	w.pieces <- text
}

// watched is a client's watch of Pods, through a proxy, of an API server that sends what the test says.
type watched struct {
	*world
	protobuf bool
	pieces   chan string
	watch    watch.Interface
}

// inBothFormats runs a test with a watch in JSON and one in protobuf.
func inBothFormats(t *testing.T, effect apiproxy.Effect, test func(w *watched)) {
	fault := apiproxy.Fault{Match: apiproxy.Match{Verb: "watch"}, Effect: effect}
	for name, contentType := range map[string]string{"JSON": "application/json", "protobuf": "application/vnd.kubernetes.protobuf"} {
		t.Run(name, func(t *testing.T) {
			w := &watched{protobuf: name == "protobuf", pieces: make(chan string, 100)}
			w.world = newWorld(t, func(out http.ResponseWriter, r *http.Request) {
				require.Empty(t, r.Header.Get("Accept-Encoding"), "what is compressed cannot be taken apart")
				out.Header().Set("Content-Type", contentType)
				if w.protobuf {
					out.Header().Set("Content-Type", contentType+";stream=watch")
				}
				out.(http.Flusher).Flush()
				for {
					select {
					case piece, ok := <-w.pieces:
						if !ok {
							return
						}
						_, _ = io.WriteString(out, piece)
						out.(http.Flusher).Flush()
					case <-r.Context().Done():
						return
					}
				}
			}, fault)
			config := w.Config()
			config.ContentType, config.AcceptContentTypes = contentType, contentType
			var err error
			w.watch, err = clientset(t, config).CoreV1().Pods("shop").Watch(t.Context(), metav1.ListOptions{AllowWatchBookmarks: true})
			require.NoError(t, err)
			defer w.watch.Stop()
			test(w)
		})
	}
}

// next returns the next event as "ADDED a 1", or "end".
func (w *watched) next() string {
	w.t.Helper()
	select {
	case e, ok := <-w.watch.ResultChan():
		if !ok {
			return "end"
		}
		if status, is := e.Object.(*metav1.Status); is {
			return fmt.Sprintf("%s %d %s", e.Type, status.Code, status.Reason)
		}
		pod := e.Object.(*corev1.Pod)
		return fmt.Sprintf("%s %s %s", e.Type, pod.Name, pod.ResourceVersion)
	case <-time.After(hangs):
		require.Fail(w.t, "no event comes")
		return ""
	}
}

// nothing checks that no event comes, for a moment; an event that does come cannot be said never to.
func (w *watched) nothing() {
	w.t.Helper()
	select {
	case e := <-w.watch.ResultChan():
		require.Fail(w.t, "an event came", "%v", e)
	case <-time.After(30 * time.Millisecond):
	}
}

func (w *watched) sees(events ...string) {
	w.t.Helper()
	for _, want := range events {
		require.Equal(w.t, want, w.next())
	}
}

func TestWatchIsCut(t *testing.T) {
	inBothFormats(t, apiproxy.Effect{Watch: apiproxy.WatchCut, Event: 3}, func(w *watched) {
		w.send("ADDED", "a", "1")
		w.send("BOOKMARK", "a", "2")
		w.send("MODIFIED", "a", "3")
		w.send("MODIFIED", "a", "4")
		w.sees("ADDED a 1", "BOOKMARK a 2", "MODIFIED a 3")
		eventually(t, "it has ended", func() bool { return !w.only().Open })
		require.Equal(t, "cut at event 3", w.only().Injections())
		require.Len(t, w.memory.History().Events, 3)
	})
}

func TestWatchExpires(t *testing.T) {
	inBothFormats(t, apiproxy.Effect{Watch: apiproxy.WatchExpired, Event: 2}, func(w *watched) {
		w.send("ADDED", "a", "1")
		w.send("MODIFIED", "a", "2")
		w.sees("ADDED a 1", "ERROR 410 Expired", "end")
		h := w.memory.History()
		require.Equal(t, "ERROR", h.Events[1].Type)
		require.Len(t, h.Events, 2)
	})
}

func TestWithoutAnEventItIsTheFirst(t *testing.T) {
	inBothFormats(t, apiproxy.Effect{Watch: apiproxy.WatchExpired}, func(w *watched) {
		w.send("ADDED", "a", "1")
		w.sees("ERROR 410 Expired", "end")
	})
}

func TestEventIsNotObserved(t *testing.T) {
	for name, c := range map[string]struct {
		at         int
		sent, seen []string
	}{
		"a change between two": {2, []string{"ADDED a 1", "MODIFIED a 2", "MODIFIED b 3", "MODIFIED a 4"},
			[]string{"ADDED a 1", "MODIFIED b 3", "MODIFIED a 4"}},
		"the first, before a change":  {1, []string{"ADDED a 1", "ADDED b 2", "MODIFIED a 3"}, []string{"ADDED b 2", "ADDED a 3"}},
		"all there was of it":         {1, []string{"ADDED a 1", "ADDED b 2", "DELETED a 3", "ADDED c 4"}, []string{"ADDED b 2", "ADDED c 4"}},
		"the last, before it is gone": {2, []string{"ADDED a 1", "MODIFIED a 2", "DELETED a 3"}, []string{"ADDED a 1", "DELETED a 3"}},
		"that it was gone meanwhile":  {2, []string{"ADDED a 1", "DELETED a 2", "ADDED a 3"}, []string{"ADDED a 1", "ADDED a 3"}},
		"what nothing replaces comes late": {2, []string{"ADDED a 1", "MODIFIED a 2", "MODIFIED b 3"},
			[]string{"ADDED a 1", "MODIFIED a 2", "MODIFIED b 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBothFormats(t, apiproxy.Effect{Watch: apiproxy.WatchUnobserved, Event: c.at}, func(w *watched) {
				for _, text := range c.sent {
					parts := strings.Fields(text)
					w.send(parts[0], parts[1], parts[2])
				}
				w.sees(c.seen...)
				close(w.pieces)
				w.sees("end")
			})
		})
	}
}

// What is not observed does not make the client believe that it has seen what came later.
func TestNothingOvertakesWhatIsNotObserved(t *testing.T) {
	inBothFormats(t, apiproxy.Effect{Watch: apiproxy.WatchUnobserved, Event: 2}, func(w *watched) {
		w.send("ADDED", "a", "1")
		w.send("MODIFIED", "a", "2")
		w.send("ADDED", "b", "3")
		w.sees("ADDED a 1")
		w.nothing()
		w.send("MODIFIED", "a", "4")
		w.sees("ADDED b 3", "MODIFIED a 4")
	})
}

func TestAnUnobservedEventOfAWatchThatEnds(t *testing.T) {
	inBothFormats(t, apiproxy.Effect{Watch: apiproxy.WatchUnobserved, Event: 1}, func(w *watched) {
		w.send("ADDED", "a", "1")
		close(w.pieces)
		w.sees("ADDED a 1", "end")
	})
}

func TestEventsAreHeldUntilReleased(t *testing.T) {
	for name, release := range map[string]func(w *watched){
		"released":     func(w *watched) { w.Release() },
		"other faults": func(w *watched) { require.NoError(w.t, w.SetFaults()) },
	} {
		t.Run(name, func(t *testing.T) {
			inBothFormats(t, apiproxy.Effect{Watch: apiproxy.WatchHeld, Event: 2}, func(w *watched) {
				w.Release() // of nothing
				w.send("ADDED", "a", "1")
				w.send("MODIFIED", "a", "2")
				w.send("MODIFIED", "a", "3")
				w.sees("ADDED a 1")
				w.nothing()
				release(w)
				w.sees("MODIFIED a 2", "MODIFIED a 3")
			})
		})
	}
}

func TestBookmarksAreWithheld(t *testing.T) {
	inBothFormats(t, apiproxy.Effect{Watch: apiproxy.WatchNoBookmarks}, func(w *watched) {
		w.send("ADDED", "a", "1")
		w.send("BOOKMARK", "a", "2")
		w.send("MODIFIED", "a", "3")
		w.sees("ADDED a 1", "MODIFIED a 3")
	})
	// But the one that an informer waits for to know that it has everything.
	inBothFormats(t, apiproxy.Effect{Watch: apiproxy.WatchNoBookmarks}, func(w *watched) {
		if w.protobuf {
			return // see the tests with a real API server
		}
		w.pieces <- strings.NewReplacer(`"x":`, fmt.Sprintf("%q:", metav1.InitialEventsAnnotationKey), `"kind":"Pod"`, typed).
			Replace(event("BOOKMARK", "2"))
		w.sees("BOOKMARK a 2")
	})
}

func TestLateAndCut(t *testing.T) {
	const late = 50 * time.Millisecond
	inBothFormats(t, apiproxy.Effect{Late: late, Watch: apiproxy.WatchCut, Event: 2}, func(w *watched) {
		start := time.Now()
		w.send("ADDED", "a", "1")
		w.send("MODIFIED", "a", "2")
		w.sees("ADDED a 1")
		require.GreaterOrEqual(t, time.Since(start), late)
		eventually(t, "it has ended", func() bool { return !w.only().Open })
	})
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

func TestThereMustBeSomethingToEnd(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
	for _, effect := range []apiproxy.Effect{{Kill: apiproxy.Before}, {Crash: apiproxy.After}, {Stop: apiproxy.Before}} {
		require.ErrorContains(t, w.SetFaults(apiproxy.Fault{Effect: effect}), "there is no controller or control plane here that it could end")
	}
}

// While the proxy is down, connections are refused, and those that were there are broken.
func TestDown(t *testing.T) {
	release := make(chan struct{})
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		if strings.Contains(r.URL.RawQuery, "watch") {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
	}, apiproxy.Fault{Match: apiproxy.Match{Verb: "delete", From: 1, To: 1}, Effect: apiproxy.Effect{Down: 300 * time.Millisecond}})
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
	require.Error(t, request())
	_, err = io.ReadAll(watching.Body)
	require.Error(t, err, "the watch broke, too")
	_, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(w.URL(), "https://"))
	require.ErrorContains(t, err, "connection refused")
	eventually(t, "it is up again", func() bool { return request() == nil })
	requests := w.memory.History().Requests
	require.Equal(t, "nobody can connect for 300ms", requests[1].Injections())
	require.Zero(t, requests[1].Status)
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
		Faults: []apiproxy.Fault{{Match: apiproxy.Match{From: 2, To: 2}, Effect: apiproxy.Effect{Stop: apiproxy.Before}}}, Stop: func() { stopped.Add(1) }})
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
