package apiproxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
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

// A watch that ends before the event was not disturbed, except by what was done to all of its events.
func TestAnEventThatNeverComes(t *testing.T) {
	for name, c := range map[string]struct {
		effect    apiproxy.Effect
		text      string
		disturbed bool
	}{
		"cut":          {apiproxy.Effect{Watch: apiproxy.WatchCut, Event: 2}, "cut at event 2: not done, as the watch ended before", false},
		"late and cut": {apiproxy.Effect{Late: time.Millisecond, Watch: apiproxy.WatchCut, Event: 2}, "events late by 1ms, cut at event 2: not done, as the watch ended before", true},
	} {
		t.Run(name, func(t *testing.T) {
			inBothFormats(t, c.effect, func(w *watched) {
				w.send("ADDED", "a", "1")
				w.send("BOOKMARK", "a", "2")
				w.sees("ADDED a 1", "BOOKMARK a 2")
				require.True(t, w.only().IsDisturbed(), "the event may still come")
				close(w.pieces)
				w.sees("end")
				eventually(t, "it has ended", func() bool { return !w.only().Open })
				require.Equal(t, c.text, w.only().Injections())
				require.Equal(t, c.disturbed, w.only().IsDisturbed())
			})
		})
	}
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
		late       bool
	}{
		"a change between two": {2, []string{"ADDED a 1", "MODIFIED a 2", "MODIFIED b 3", "MODIFIED a 4"},
			[]string{"ADDED a 1", "MODIFIED b 3", "MODIFIED a 4"}, false},
		"the first, before a change":  {1, []string{"ADDED a 1", "ADDED b 2", "MODIFIED a 3"}, []string{"ADDED b 2", "ADDED a 3"}, false},
		"all there was of it":         {1, []string{"ADDED a 1", "ADDED b 2", "DELETED a 3", "ADDED c 4"}, []string{"ADDED b 2", "ADDED c 4"}, false},
		"the last, before it is gone": {2, []string{"ADDED a 1", "MODIFIED a 2", "DELETED a 3"}, []string{"ADDED a 1", "DELETED a 3"}, false},
		"that it was gone meanwhile":  {2, []string{"ADDED a 1", "DELETED a 2", "ADDED a 3"}, []string{"ADDED a 1", "ADDED a 3"}, false},
		"what nothing replaces comes late": {2, []string{"ADDED a 1", "MODIFIED a 2", "MODIFIED b 3"},
			[]string{"ADDED a 1", "MODIFIED a 2", "MODIFIED b 3"}, true},
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
				eventually(t, "it has ended", func() bool { return !w.only().Open })
				want := fmt.Sprint("unobserved at event ", c.at)
				if c.late {
					want = "events late by 2s, unobserved at event 2: not done, as no other event of the object came in time"
				}
				require.Equal(t, want, w.only().Injections())
				require.True(t, w.only().IsDisturbed())
				require.Equal(t, !c.late, w.only().MetFault())
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
		eventually(t, "it has ended", func() bool { return !w.only().Open })
		require.Equal(t, "unobserved at event 1: not done, as no other event of the object came in time", w.only().Injections())
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
		close(w.pieces)
		w.sees("end")
		eventually(t, "it has ended", func() bool { return !w.only().Open })
		require.Equal(t, "no bookmarks", w.only().Injections())
	})
	// But the one that an informer waits for to know that it has everything.
	inBothFormats(t, apiproxy.Effect{Watch: apiproxy.WatchNoBookmarks}, func(w *watched) {
		if w.protobuf {
			return // see the tests with a real API server
		}
		w.pieces <- strings.NewReplacer(`"x":`, fmt.Sprintf("%q:", metav1.InitialEventsAnnotationKey), `"kind":"Pod"`, typed).
			Replace(event("BOOKMARK", "2"))
		w.sees("BOOKMARK a 2")
		close(w.pieces)
		w.sees("end")
		eventually(t, "it has ended", func() bool { return !w.only().Open })
		require.Equal(t, "no bookmarks: not done, as no bookmark came", w.only().Injections())
	})
}

func TestNoEventIsLate(t *testing.T) {
	inBothFormats(t, apiproxy.Effect{Late: time.Millisecond}, func(w *watched) {
		close(w.pieces)
		w.sees("end")
		eventually(t, "it has ended", func() bool { return !w.only().Open })
		require.Equal(t, "events late by 1ms: not done, as no event came", w.only().Injections())
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

// The event is counted among those of all watches that match, from when the fault is no longer paused: a watch may have been open before.
func TestAnEventOfAnyWatch(t *testing.T) {
	for name, c := range map[string]struct {
		what string
		sees []string // after the first event, and what comes in a second watch
		text string
	}{
		"cut":        {apiproxy.WatchCut, []string{"MODIFIED a 2"}, "cut at event 3"},
		"unobserved": {apiproxy.WatchUnobserved, []string{"MODIFIED a 2", "MODIFIED a 4"}, "unobserved at event 3"},
	} {
		t.Run(name, func(t *testing.T) {
			f := apiproxy.ArmAtEvents(apiproxy.Fault{Match: apiproxy.Match{Verb: "watch", Resource: "pods"}, Effect: apiproxy.Effect{Watch: c.what, Event: 2}})
			f.SetPaused(true)
			pieces := make(chan string, 10)
			w := newWorld(t, func(out http.ResponseWriter, r *http.Request) {
				out.Header().Set("Content-Type", "application/json")
				out.(http.Flusher).Flush()
				for {
					select {
					case piece := <-pieces:
						_, _ = io.WriteString(out, piece)
						out.(http.Flusher).Flush()
					case <-r.Context().Done():
						return
					}
				}
			})
			p, err := apiproxy.Start(t.Context(), apiproxy.Options{Upstream: w.upstream, Armed: []*apiproxy.Armed{f}, Record: w.memory.Record})
			require.NoError(t, err)
			defer p.Stop()
			opened, err := clientset(t, p.Config()).CoreV1().Pods("shop").Watch(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			defer opened.Stop()
			watched := &watched{world: w, pieces: pieces, watch: opened}
			watched.send("ADDED", "a", "1")
			watched.sees("ADDED a 1")
			f.SetPaused(false)
			for _, version := range []string{"2", "3", "4"} {
				watched.send("MODIFIED", "a", version)
			}
			watched.sees(c.sees...)
			eventually(t, "it was done", f.IsMet)
			f.SetPaused(true)
			opened.Stop()
			eventually(t, "it has ended", func() bool { return !w.only().Open })
			require.Equal(t, c.text, w.only().Injections())
		})
	}
}
