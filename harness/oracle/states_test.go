package oracle_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"example.com/controllers/harness/oracle"
)

func TestStatesTellOfEachChange(t *testing.T) {
	w := newWorld(t)
	w.put("pods", "old")
	begin := time.Now()
	s := w.watch("pods")
	first := w.put("pods", "a")
	second := w.put("pods", "a")
	third := w.remove("pods", "a")
	seen(t, s, "pods", third)
	require.Equal(t, []string{"ADDED pods a: [a old]", "MODIFIED pods a: [a old]", "DELETED pods a: [old]"}, told(t, s))

	var changes []oracle.Change
	require.NoError(t, s.Each(func(_ oracle.State, c oracle.Change) error {
		changes = append(changes, c)
		return nil
	}))
	version := func(o oracle.Object) any { return o["metadata"].(oracle.Object)["resourceVersion"] }
	require.Nil(t, changes[0].Old)
	require.Equal(t, first, version(changes[0].New))
	require.Equal(t, first, version(changes[1].Old))
	require.Equal(t, second, version(changes[1].New))
	require.Equal(t, second, version(changes[2].Old))
	require.Equal(t, third, version(changes[2].New))
	require.Equal(t, types.UID("uid-a"), oracle.UID(changes[2].New))
	for _, c := range changes {
		require.False(t, c.Time.Before(begin))
		require.False(t, c.Time.After(time.Now()))
	}
	require.NoError(t, s.Err())
	require.Zero(t, s.Gaps())
}

// Of two resources there are two watches, and one may be late.
func TestEachIsInTheOrderOfEtcd(t *testing.T) {
	w := newWorld(t)
	s := w.watch("pods", "configmaps")
	w.hold("pods")
	w.put("pods", "first")
	w.put("configmaps", "second")
	third := w.put("pods", "third")
	fourth := w.remove("configmaps", "second")
	seen(t, s, "configmaps", fourth)
	require.Equal(t, []string{"ADDED configmaps second: [second]", "DELETED configmaps second: []"}, told(t, s))
	w.hold("pods")
	seen(t, s, "pods", third)
	require.Equal(t, []string{
		"ADDED pods first: [first]",
		"ADDED configmaps second: [second first]",
		"ADDED pods third: [second first third]",
		"DELETED configmaps second: [first third]",
	}, told(t, s))
}

// A resourceVersion is a number: 9 is before 10.
func TestEachComparesNumbers(t *testing.T) {
	w := newWorld(t)
	w.version = 8
	s := w.watch("pods", "configmaps")
	w.hold("configmaps")
	w.put("configmaps", "at-9")
	at10 := w.put("pods", "at-10")
	seen(t, s, "pods", at10)
	w.hold("configmaps")
	seen(t, s, "configmaps", "9")
	require.Equal(t, []string{"ADDED configmaps at-9: [at-9]", "ADDED pods at-10: [at-9 at-10]"}, told(t, s))
}

func TestEachEndsWithAnError(t *testing.T) {
	w := newWorld(t)
	s := w.watch("pods")
	w.put("pods", "a")
	seen(t, s, "pods", w.put("pods", "b"))
	enough, calls := errors.New("enough"), 0
	err := s.Each(func(oracle.State, oracle.Change) error {
		calls++
		return enough
	})
	require.ErrorIs(t, err, enough)
	require.Equal(t, 1, calls)
	require.Len(t, told(t, s), 2, "it can be told again")
}

func TestNow(t *testing.T) {
	w := newWorld(t)
	w.put("pods", "old")
	s := w.watch("pods", "configmaps")
	state, changed := s.Now()
	require.Len(t, state.List("pods"), 1)
	require.Empty(t, state.List("configmaps"))
	require.Empty(t, state.List("services"), "nobody watches them")
	select {
	case <-changed:
		require.Fail(t, "nothing has changed")
	default:
	}
	w.put("configmaps", "a")
	select {
	case <-changed:
	case <-time.After(hangs):
		require.Fail(t, "it does not say that something has changed")
	}
	await(t, s, "a", func(state oracle.State) bool { return len(state.List("configmaps")) == 1 })
	require.Empty(t, state.List("configmaps"), "a state that somebody has does not change")
	delete(state["pods"], "old")
	again, _ := s.Now()
	require.Len(t, again.List("pods"), 1, "nor does what somebody does to it matter")
}

func TestListIsByName(t *testing.T) {
	o := func(name string) oracle.Object { return oracle.Object{"metadata": oracle.Object{"name": name}} }
	state := oracle.State{"pods": {"c": o("c"), "a": o("a"), "b": o("b")}}
	require.Equal(t, []oracle.Object{o("a"), o("b"), o("c")}, state.List("pods"))
}

func TestSeen(t *testing.T) {
	w := newWorld(t)
	w.put("pods", "old") // at 11
	s := w.watch("pods")
	require.True(t, s.Seen("pods", "11"))
	require.True(t, s.Seen("pods", "3"))
	require.False(t, s.Seen("pods", "12"))
	require.True(t, s.Seen("services", "12"), "nobody watches them")
	require.True(t, s.Seen("pods", ""), "such as that of a Status")
	w.put("configmaps", "a") // at 12
	w.put("pods", "a")       // at 13
	seen(t, s, "pods", "13")
	require.True(t, s.Seen("pods", "12"))
	require.False(t, s.Seen("pods", "14"))
}

func TestExisted(t *testing.T) {
	w := newWorld(t)
	w.put("pods", "old")
	s := w.watch("pods")
	w.put("pods", "new")
	seen(t, s, "pods", w.remove("pods", "new"))
	require.True(t, s.Existed("pods", "old"))
	require.True(t, s.Existed("pods", "new"))
	require.False(t, s.Existed("pods", "other"))
	require.False(t, s.Existed("services", "old"))
}

func TestCountsBeginWithMark(t *testing.T) {
	w := newWorld(t)
	generated := oracle.Object{"generateName": "frontend-"}
	w.put("pods", "frontend-1", generated)
	s := w.watch("pods", "configmaps")
	require.Empty(t, s.Counts(), "what was there has not come")
	w.remove("pods", "frontend-1")
	seen(t, s, "pods", w.put("pods", "frontend-2", generated))
	require.Equal(t, map[string]int{"added pods frontend-*": 1, "deleted pods frontend-*": 1}, s.Counts())
	s.Mark()
	require.Empty(t, s.Counts())
	w.put("pods", "frontend-2", generated) // no coming and going
	w.put("pods", "frontend-3", generated)
	w.remove("pods", "frontend-2")
	seen(t, s, "pods", w.remove("pods", "frontend-3"))
	w.put("configmaps", "kube-root-ca.crt") // it comes when it likes
	seen(t, s, "configmaps", w.put("configmaps", "config"))
	require.Equal(t, map[string]int{
		"added pods frontend-*": 1, "deleted pods frontend-*": 2, "added configmaps config": 1,
	}, s.Counts())
}

func TestClasses(t *testing.T) {
	w := newWorld(t)
	generated := oracle.Object{"generateName": "frontend-"}
	w.put("pods", "frontend-there", generated)
	s := w.watch("pods", "configmaps")
	w.put("pods", "frontend-gone", generated)
	w.put("pods", "plain")
	seen(t, s, "pods", w.remove("pods", "frontend-gone"))
	class := s.Classes()
	for name, want := range map[string]string{
		"frontend-there": "frontend-*", "frontend-gone": "frontend-*", "plain": "plain", "never-seen": "never-seen", "": "",
	} {
		require.Equal(t, want, class("pods", name))
	}
	require.Equal(t, "frontend-there", class("configmaps", "frontend-there"), "of another resource")
}

// A watch that ends is as good as one that goes on.
func TestStatesGoOnAfterACut(t *testing.T) {
	w := newWorld(t)
	s := w.watch("pods", "configmaps")
	w.askedFor("watch pods from 10", 1)
	at11 := w.put("pods", "a")
	seen(t, s, "pods", at11)
	w.hold("pods")
	w.cutWatches()
	w.askedFor("watch pods from 11", 1)
	w.put("pods", "b")
	w.remove("pods", "a")
	w.hold("pods")
	seen(t, s, "pods", "13")
	require.Equal(t, []string{"ADDED pods a: [a]", "ADDED pods b: [a b]", "DELETED pods a: [b]"}, told(t, s))
	require.Zero(t, s.Gaps())
	require.NoError(t, s.Err())
}

func TestBookmarksAreNoChanges(t *testing.T) {
	w := newWorld(t)
	s := w.watch("pods")
	w.askedFor("watch pods from 10", 1)
	require.Equal(t, "11", w.bookmark("pods"))
	seen(t, s, "pods", w.put("pods", "a"))
	require.Equal(t, []string{"ADDED pods a: [a]"}, told(t, s))
}

// It is told how far it is, and so need not ask for all when it has to ask again.
func TestAWatchGoesOnFromABookmark(t *testing.T) {
	w := newWorld(t)
	w.watch("pods")
	w.askedFor("watch pods from 10", 1)
	w.bookmark("pods") // at 11
	// It cannot be seen from outside that the bookmark has come.
	require.Eventually(t, func() bool {
		w.cutWatches()
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.asked[len(w.asked)-1] == "watch pods from 11"
	}, hangs, time.Millisecond)
}

// An API server that has been restarted does not know what there was before.
func TestAGapIsListedAgain(t *testing.T) {
	for name, inBand := range map[string]bool{"by an event": true, "by a status": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.inBand = inBand
			for _, name := range []string{"same", "changed", "gone", "recreated"} {
				w.put("pods", name)
			}
			w.put("configmaps", "config") // at 15
			s := w.watch("pods", "configmaps")
			w.askedFor("watch pods from 15", 1)
			w.hold("pods")
			w.put("pods", "changed")
			w.put("pods", "changed")
			w.put("pods", "missed")
			w.remove("pods", "missed")
			w.remove("pods", "gone")
			w.remove("pods", "recreated")
			w.put("pods", "recreated", oracle.Object{"uid": "another"})
			seen(t, s, "configmaps", w.put("configmaps", "config")) // at 23
			w.put("pods", "new")                                    // at 24
			w.compact()
			w.hold("pods")
			w.cutWatches()
			await(t, s, "a world without what is gone", func(state oracle.State) bool {
				return state["pods"]["gone"] == nil && state["pods"]["new"] != nil
			})
			// The configmaps may have had a gap, too, in which nothing happened.
			require.GreaterOrEqual(t, s.Gaps(), 1)
			// What the Pods were like when the config changed is not known, nor in which order they changed.
			require.Equal(t, []string{"DELETED pods gone: [config changed new recreated same]"}, told(t, s))
			require.Equal(t, map[string]int{
				"added pods new": 1, "added pods recreated": 1, "deleted pods recreated": 1, "deleted pods gone": 1,
			}, s.Counts(), "an object with another UID is another object")
			require.True(t, s.Existed("pods", "gone"))
			require.False(t, s.Existed("pods", "missed"))
			require.True(t, s.Seen("pods", "24"))
			seen(t, s, "pods", w.put("pods", "later"))
			require.Equal(t, "ADDED pods later: [config changed later new recreated same]", told(t, s)[1])
			require.NoError(t, s.Err())
		})
	}
}

// Two watches that have a gap are listed again one after the other. Before both have been, no state is known.
func TestTheGapsOfTwoResources(t *testing.T) {
	w := newWorld(t)
	w.put("pods", "old") // at 11
	w.put("secrets", "idle")
	s := w.watch("pods", "configmaps", "secrets")
	for _, resource := range []string{"pods", "configmaps", "secrets"} {
		w.askedFor("watch "+resource+" from 12", 1)
	}
	w.hold("pods")
	w.hold("configmaps")
	w.remove("pods", "old")
	w.put("configmaps", "new") // at 14
	listed := make(chan struct{})
	w.refuses(func(r *http.Request) int {
		select {
		case <-listed:
			return 0
		default:
		}
		if path.Base(r.URL.Path) == "configmaps" {
			return http.StatusInternalServerError
		}
		return 0
	})
	w.compact()
	w.hold("pods")
	w.hold("configmaps")
	w.cutWatches()
	seen(t, s, "pods", "14")
	seen(t, s, "pods", w.put("pods", "first")) // at 15; the configmaps are not known yet
	close(listed)
	seen(t, s, "configmaps", "15")
	seen(t, s, "pods", w.put("pods", "last"))
	require.Equal(t, []string{"ADDED pods first: [new first idle]", "ADDED pods last: [new first last idle]"}, told(t, s))
}

func TestGapsAreCounted(t *testing.T) {
	w := newWorld(t)
	s := w.watch("pods")
	for gaps := 1; gaps <= 3; gaps++ {
		w.askedFor(fmt.Sprint("watch pods from ", 9+gaps), 1)
		w.hold("pods")
		w.put("pods", "a")
		w.compact()
		w.hold("pods")
		w.cutWatches()
		require.Eventually(t, func() bool { return s.Gaps() == gaps }, hangs, time.Millisecond)
	}
	state, _ := s.Now()
	require.Len(t, state.List("pods"), 1)
}

// What was listed is not told of again.
func TestAListThatFailsInAGapIsAskedForAgain(t *testing.T) {
	w := newWorld(t)
	w.put("pods", "same")
	w.put("pods", "gone")
	s := w.watch("pods")
	w.askedFor("watch pods from 12", 1)
	w.hold("pods")
	w.remove("pods", "gone")
	w.compact()
	refused := false
	w.refuses(func(r *http.Request) int {
		if r.URL.Query().Get("watch") == "" && !refused {
			refused = true
			return http.StatusInternalServerError
		}
		return 0
	})
	w.hold("pods")
	w.cutWatches()
	await(t, s, "a world without what is gone", func(state oracle.State) bool { return state["pods"]["gone"] == nil })
	require.Equal(t, 1, s.Gaps())
	require.Equal(t, []string{"DELETED pods gone: [same]"}, told(t, s))
}

// A write of our own may have been undone in the gap.
func TestAGapIsSeen(t *testing.T) {
	w := newWorld(t)
	s := w.watch("pods")
	w.askedFor("watch pods from 10", 1)
	w.hold("pods")
	w.put("pods", "a")
	w.remove("pods", "a") // at 12
	w.compact()
	w.hold("pods")
	w.cutWatches()
	w.askedFor("watch pods from 12", 1)
	require.Equal(t, 1, s.Gaps())
	require.True(t, s.Seen("pods", "11"))
	require.True(t, s.Seen("pods", "12"))
}

func TestAnErrorThatPassesIsNone(t *testing.T) {
	w := newWorld(t)
	s := w.watch("pods")
	w.askedFor("watch pods from 10", 1)
	w.refuses(func(*http.Request) int { return http.StatusInternalServerError })
	w.cutWatches()
	w.askedFor("watch pods from 10", 3)
	require.NoError(t, s.Err())
	w.put("pods", "a")
	w.refuses(nil)
	seen(t, s, "pods", "11")
	require.NoError(t, s.Err())
	require.Zero(t, s.Gaps())
}

func TestAnErrorThatLasts(t *testing.T) {
	w := newWorld(t)
	s := w.watch("pods")
	_, changed := s.Now()
	w.askedFor("watch pods from 10", 1)
	w.refuses(func(*http.Request) int { return http.StatusInternalServerError })
	w.cutWatches()
	require.Eventually(t, func() bool { return s.ExpirePatience("pods") }, hangs, time.Millisecond)
	select {
	case <-changed:
	case <-time.After(hangs):
		require.Fail(t, "who waits for a change is not told")
	}
	require.ErrorContains(t, s.Err(), "the watch of pods failed: ")
	require.ErrorContains(t, s.Err(), "on purpose")
}

// A watch that works says nothing about another one.
func TestAWatchThatWorksDoesNotExcuseAnother(t *testing.T) {
	w := newWorld(t)
	s := w.watch("pods", "configmaps")
	w.askedFor("watch pods from 10", 1)
	w.askedFor("watch configmaps from 10", 1)
	w.refuses(func(r *http.Request) int {
		if strings.Contains(r.URL.Path, "/pods") {
			return http.StatusInternalServerError
		}
		return 0
	})
	w.cutWatches()
	require.Eventually(t, func() bool { return !s.FailingSince("pods").IsZero() }, hangs, time.Millisecond)
	since := s.FailingSince("pods")
	for n := 3; n <= 4; n++ {
		w.askedFor("watch configmaps from 10", n-1)
		w.cutWatches()
		w.askedFor("watch configmaps from 10", n)
		require.Eventually(t, func() bool { return s.FailingSince("configmaps").IsZero() }, hangs, time.Millisecond)
		w.askedFor("watch pods from 10", n)
		require.Equal(t, since, s.FailingSince("pods"))
	}
}

// Two errors are not one that lasts.
func TestAnErrorIsOverWhenThereIsAWatch(t *testing.T) {
	w := newWorld(t)
	s := w.watch("pods")
	w.askedFor("watch pods from 10", 1)
	fail := func() {
		w.refuses(func(*http.Request) int { return http.StatusInternalServerError })
		w.cutWatches()
	}
	fail()
	w.askedFor("watch pods from 10", 3)
	// There is a watch again, but nothing happens.
	watched := make(chan struct{}, 1)
	w.refuses(func(*http.Request) int {
		select {
		case watched <- struct{}{}:
		default:
		}
		return 0
	})
	<-watched
	require.Eventually(t, func() bool { return !s.ExpirePatience("pods") }, hangs, time.Millisecond)
	fail()
	w.askedFor("watch pods from 10", 7)
	require.NoError(t, s.Err())
}

func TestWatchSaysWhatItCannot(t *testing.T) {
	w := newWorld(t)
	w.refuses(func(r *http.Request) int {
		if r.URL.Path == "/api/v1/namespaces/shop/secrets" {
			return http.StatusInternalServerError
		}
		return 0
	})
	s, err := oracle.Watch(t.Context(), w.client, oracle.Scope{Namespace: "shop"}, []schema.GroupVersionResource{{Version: "v1", Resource: "pods"}, {Version: "v1", Resource: "secrets"}})
	require.ErrorContains(t, err, "watch secrets: ")
	require.ErrorContains(t, err, "on purpose")
	require.Nil(t, s)
}

// Everything that has been seen stays.
func TestStop(t *testing.T) {
	for name, c := range map[string]struct{ fails, cancelled bool }{
		"while it watches":             {},
		"while it waits to try again":  {fails: true},
		"after the end of its context": {cancelled: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s, err := oracle.Watch(ctx, w.client, oracle.Scope{Namespace: "shop"}, []schema.GroupVersionResource{{Version: "v1", Resource: "pods"}})
			require.NoError(t, err)
			seen(t, s, "pods", w.put("pods", "a"))
			if c.fails {
				w.refuses(func(*http.Request) int { return http.StatusInternalServerError })
				w.cutWatches()
				w.askedFor("watch pods from 11", 2)
			}
			if c.cancelled {
				cancel()
			}
			s.Stop()
			s.Stop()
			w.put("pods", "b")
			require.Equal(t, []string{"ADDED pods a: [a]"}, told(t, s))
			state, _ := s.Now()
			require.Len(t, state.List("pods"), 1)
			require.NoError(t, s.Err())
		})
	}
}

func TestEvents(t *testing.T) {
	w := newWorld(t)
	old := w.put("pods", "old")
	s := w.watch("pods")
	before := w.put("pods", "before")
	seen(t, s, "pods", before)
	since := time.Now()
	first := w.put("pods", "a")
	second := w.put("pods", "a")
	gone := w.remove("pods", "a")
	seen(t, s, "pods", gone)
	var got []string
	for _, e := range s.Events(since) {
		got = append(got, fmt.Sprintf("%s %s %s %s %s", e.Type, e.Resource, e.Name, e.UID, e.ResourceVersion))
		require.False(t, e.Time.Before(since))
	}
	require.Equal(t, []string{
		"ADDED pods before uid-before " + before, "ADDED pods old uid-old " + old,
		"ADDED pods a uid-a " + first, "MODIFIED pods a uid-a " + second, "DELETED pods a uid-a " + gone,
	}, got)
}
