package torture

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/oracle"
	"example.com/controllers/harness/torture/plan"
)

// inStep returns a plan whose fault comes in a step, and where.
func inStep(step int, name string) placed {
	fault := apiproxy.Fault{Match: apiproxy.Match{Verb: "patch", Name: name, From: 1, To: 1}, Effect: apiproxy.Effect{Refuse: 500}}
	return placed{Plan{Kind: "answered 500", Faults: []apiproxy.Fault{fault}}, plan.Place{Step: step, Fault: fault}}
}

// Plans share a run if their faults come in different steps. Those that come first do so still.
func TestJoinPlans(t *testing.T) {
	begin := time.Unix(1e9, 0)
	h := &history.History{}
	patch := func(name string, second int) {
		h.Requests = append(h.Requests, history.Request{ID: int64(len(h.Requests) + 1), Verb: "patch", Resource: "pods", Name: name, Start: begin.Add(time.Duration(second) * time.Second), Status: 200})
	}
	for _, second := range []int{1, 2, 11, 12, 13, 21, 31} { // the last is in the quiet time
		patch("a", second)
	}
	b := &Baseline{History: h, stepStarts: []time.Time{begin, begin.Add(10 * time.Second), begin.Add(20 * time.Second), begin.Add(30 * time.Second)}}
	o := Options{Scenario: &Scenario{}, Baseline: b}
	s := &subject{scenario: o.Scenario}
	at := func(n int, effect apiproxy.Effect) Plan {
		return Plan{Kind: fmt.Sprint(n), Faults: []apiproxy.Fault{{Match: apiproxy.Match{Verb: "patch", Resource: "pods", From: n, To: n}, Effect: effect}}}
	}
	refused := apiproxy.Effect{Refuse: 500}
	plans := []Plan{at(6, refused), at(1, refused), at(2, refused), at(4, refused), at(7, refused), at(3, apiproxy.Effect{Hang: time.Second}), at(5, refused)}
	text := func(jobs []job) (all [][]string) {
		for _, j := range jobs {
			var one []string
			for _, p := range j {
				one = append(one, fmt.Sprintf("%s: %d of step %d", p.Kind, p.Fault.From, p.Step))
			}
			all = append(all, one)
		}
		return all
	}
	require.Equal(t, [][]string{
		{"1: 1 of step 0", "4: 2 of step 1", "6: 1 of step 2"},
		{"2: 2 of step 0", "5: 3 of step 1"},
		{"7: 0 of step 0"}, // in no step
		{"3: 0 of step 0"}, // it lasts longer
	}, text(s.joinPlans(o, plans)))
	o.Alone = true
	require.Len(t, s.joinPlans(o, plans), len(plans))
}

// Of a joint run in which nothing was unusual, each plan has passed whose fault came. Otherwise, those whose turn had come are run alone.
func TestSortOut(t *testing.T) {
	begin := time.Unix(1e9, 0)
	for name, c := range map[string]struct {
		met     []int // steps
		reached int
		verdict Verdict
		suspect bool
		passed  []int
		again   [][]int
	}{
		"nothing unusual":         {met: []int{1, 2, 3}, reached: 3, passed: []int{1, 2, 3}},
		"one did not come":        {met: []int{1, 3}, reached: 3, passed: []int{1, 3}, again: [][]int{{2}}},
		"it fails":                {met: []int{1, 2, 3}, reached: 3, verdict: Lost, again: [][]int{{1}, {2}, {3}}},
		"it fails early":          {met: []int{1}, reached: 1, verdict: Lost, again: [][]int{{1}, {2, 3}}},
		"a suspicion":             {met: []int{1, 2}, reached: 2, suspect: true, again: [][]int{{1}, {2}, {3}}},
		"before the first":        {reached: 0, verdict: Lost, again: [][]int{{1}, {2}, {3}}},
		"it could not be run":     {reached: -1, verdict: NotRun, again: [][]int{{1}, {2}, {3}}},
		"it could not go on":      {met: []int{1}, reached: 1, verdict: NotRun, again: [][]int{{1}, {2}, {3}}},
		"suspicious in the start": {reached: 0, suspect: true, again: [][]int{{1}, {2}, {3}}},
	} {
		t.Run(name, func(t *testing.T) {
			j := job{inStep(1, "a"), inStep(2, "b"), inStep(3, "c")}
			r := recorded(&Scenario{})
			r.job, r.armed = j, j.arm()
			if c.suspect {
				r.suspected = "it is unusual"
			}
			for step := range c.reached + 1 {
				r.stepStarts = append(r.stepStarts, begin.Add(time.Duration(step)*time.Second))
			}
			for i, p := range j {
				if !slices.Contains(c.met, p.Step) {
					continue
				}
				q := injected(history.Request{ID: int64(i + 1), Start: begin.Add(time.Duration(p.Step)*time.Second + 1), Verb: "patch"}, refusal)
				r.recording.Record(history.Record{Request: &q})
			}
			passed, again := j.sortOut(Outcome{Verdict: c.verdict, Notes: []string{"fewer"}}, r)
			var steps []int
			for i, o := range passed {
				at := slices.IndexFunc(j, func(p placed) bool { return p.Plan.Key() == o.Plan.Key() })
				steps = append(steps, j[at].Step)
				require.Equal(t, i == 0, len(o.Notes) > 0, "the notes are of the run")
			}
			require.Equal(t, c.passed, steps)
			var left [][]int
			for _, other := range again {
				var of []int
				for _, p := range other {
					at := slices.IndexFunc(j, func(q placed) bool { return p.Plan.Key() == q.Plan.Key() })
					of = append(of, j[at].Step)
				}
				left = append(left, of)
				require.Equal(t, len(other) > 1, other.isJoint())
			}
			require.Equal(t, c.again, left)
		})
	}
}

// A state is known if a run without faults had it, in whatever run.
func TestStepsOfABaseline(t *testing.T) {
	b := &Baseline{}
	of := func(writes int, ends ...[]string) *observation {
		o := &observation{stepStarts: make([]time.Time, len(ends)+1)}
		for _, end := range ends {
			o.stepEnds = append(o.stepEnds, end)
			o.steps = append(o.steps, oracle.Effects{Did: map[string]int{"patch pods a": writes}})
		}
		return o
	}
	one, two := []string{`pods {"metadata":{"name":"a"},"spec":1}`}, []string{`pods {"metadata":{"name":"a"},"spec":2}`}
	b.addSteps(of(1, one, nil))
	b.addSteps(of(2, two, nil))
	b.addSteps(of(2, one, nil))
	require.Len(t, b.steps[0].ends, 2)
	require.Empty(t, b.steps[0].compare(one))
	require.Empty(t, b.steps[0].compare(two))
	require.Len(t, b.steps[0].compare([]string{`pods {"metadata":{"name":"a"},"spec":3}`}), 1)
	require.Empty(t, b.steps[1].compare(nil), "it goes on without waiting")
	status := []string{`pods {"metadata":{"name":"a"},"spec":1,"status":{"phase":"Running"}}`}
	require.Empty(t, b.steps[0].compare(status), "somebody else reports it")
	withStatus := of(1, one, nil)
	withStatus.effects.Did = map[string]int{"patch pods/status a": 1, "patch deployments.apps/status *": 1}
	b.addSteps(withStatus)
	require.Equal(t, map[string]bool{"pods": true, "deployments": true}, b.steps[0].statuses)
	require.Len(t, b.steps[0].compare(status), 1, "the controller writes it")
	require.Equal(t, oracle.Range{Min: 1, Max: 2}, b.steps[0].expected.Did["patch pods a"])
}

// Jobs that are put back come first; when the last is done, nobody waits for more.
func TestJobs(t *testing.T) {
	name := func(j job) string { return j[0].Kind }
	of := func(kind string) job { return job{{Plan: Plan{Kind: kind}}} }
	synctest.Test(t, func(t *testing.T) {
		all, stop := newJobs(t.Context(), []job{of("a"), of("b")}, nil)
		defer stop()
		first, ok := all.next()
		require.True(t, ok)
		require.Equal(t, "a", name(first))
		all.done([]job{of("a again")}, false)
		var mu sync.Mutex
		var ran []string
		var workers sync.WaitGroup
		for range 3 {
			workers.Go(func() {
				for {
					j, ok := all.next()
					if !ok {
						return
					}
					mu.Lock()
					ran = append(ran, name(j))
					mu.Unlock()
					time.Sleep(time.Second)
					if name(j) == "b" {
						time.Sleep(time.Second) // the others wait: there may be more
						all.done([]job{of("b again")}, true)
						continue
					}
					all.done(nil, false)
				}
			})
		}
		workers.Wait()
		require.ElementsMatch(t, []string{"a again", "b"}, ran[:2])
		require.Equal(t, []string{"b again"}, ran[2:])
		<-all.ended
	})
	synctest.Test(t, func(t *testing.T) { // none begins after the budget
		over := make(chan struct{})
		all, stop := newJobs(t.Context(), []job{{}, {}}, over)
		defer stop()
		_, ok := all.next()
		require.True(t, ok)
		close(over)
		synctest.Wait()
		all.done([]job{of("1"), of("2")}, true) // it has failed
		for _, want := range []string{"1", "2"} {
			again, ok := all.next()
			require.True(t, ok)
			require.Equal(t, want, name(again))
			all.done([]job{of("never")}, false)
		}
		_, ok = all.next()
		require.False(t, ok)
		<-all.ended
	})
	over := make(chan struct{})
	close(over)
	for range 100 { // and none if it was over from the beginning, whichever goroutine runs first
		all, stop := newJobs(t.Context(), []job{of("a")}, over)
		_, ok := all.next()
		require.False(t, ok)
		stop()
	}
	synctest.Test(t, func(t *testing.T) { // nor after Ctrl-C, however urgent
		ctx, cancel := context.WithCancel(t.Context())
		all, stop := newJobs(ctx, []job{of("a")}, nil)
		defer stop()
		_, ok := all.next()
		require.True(t, ok)
		cancel()
		synctest.Wait()
		all.done([]job{of("a again")}, true)
		_, ok = all.next()
		require.False(t, ok)
		<-all.ended
	})
	all, stop := newJobs(t.Context(), nil, nil)
	defer stop()
	_, ok := all.next()
	require.False(t, ok)
}

// After each step, a shared run is compared with the runs without faults: its objects, and how often it wrote.
func TestLeaveStep(t *testing.T) {
	patch := func(id int64, injections ...history.Injection) history.Request {
		q := history.Request{ID: id, Start: time.Now(), Verb: "patch", Resource: "pods", Namespace: "torture-1", Name: "a", Status: 200, RVBefore: "1", RVAfter: "2"}
		if len(injections) > 0 {
			q.Status = 500
		}
		return injected(q, injections...)
	}
	const settles = 3 * time.Second
	for name, c := range map[string]struct {
		other  time.Duration // for how long the state is another; for ever, if negative
		writes int           // without faults, there is one
		fails  bool          // one more, which is refused
		want   string
	}{
		"as without faults":                {writes: 1},
		"after a while":                    {other: settles, writes: 1},
		"another state":                    {other: -1, writes: 1, want: "after the start: "},
		"a write too many":                 {writes: 2, want: "in the start: patch pods a: 2 times, should be 1"},
		"one more because of a fault":      {writes: 2, fails: true},
		"two more because of a fault":      {writes: 3, fails: true, want: "in the start: patch pods a: 3 times, should be 1"},
		"another state and a late failure": {other: -1, writes: 1, fails: true, want: "after the start: "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := fakeCluster(t)
				resource := corev1.SchemeGroupVersion.WithResource("pods")
				pods := cluster.Resource(resource).Namespace("torture-1")
				if c.other != 0 {
					_, err := pods.Create(t.Context(), fakePod("a", "1"), metav1.CreateOptions{})
					require.NoError(t, err)
				}
				r := settledOn(t, cluster, []schema.GroupVersionResource{resource}, &Scenario{Resources: []string{"pods"}})
				r.job = job{inStep(0, "a"), inStep(1, "b")}
				r.stepStarts = []time.Time{time.Now()}
				expected := oracle.Expected{}
				expected.Add(oracle.Effects{Did: map[string]int{"patch pods a": 1}})
				r.steps = []stepBaseline{{ends: [][]string{nil}, expected: expected}}
				if c.other > 0 {
					time.AfterFunc(c.other, func() { assert.NoError(t, pods.Delete(context.Background(), "a", metav1.DeleteOptions{})) })
				}
				for i := range c.writes {
					q := patch(int64(i + 1))
					r.recording.Record(history.Record{Request: &q})
				}
				if c.fails {
					q := patch(int64(c.writes+1), refusal)
					r.recording.Record(history.Record{Request: &q})
				}
				err := r.leaveStep(t.Context())
				if c.want == "" {
					require.NoError(t, err)
					return
				}
				require.ErrorAs(t, err, new(suspicion))
				require.ErrorContains(t, err, c.want)
			})
		})
	}
}

// Each fault of a shared run comes in its own step, where its number begins anew, and in none after the last.
func TestFaultsComeInTheirSteps(t *testing.T) {
	more := make(chan string)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !r.URL.Query().Has("watch") {
			return
		}
		w.(http.Flusher).Flush()
		for name := range more {
			fmt.Fprintf(w, `{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q}}}`+"\n", name)
			w.(http.Flusher).Flush()
		}
	}))
	defer upstream.Close()
	defer close(more)
	get := func(step, nth int) placed {
		f := apiproxy.Fault{Match: apiproxy.Match{Verb: "get", Resource: "pods", From: nth, To: nth}, Effect: apiproxy.Effect{Refuse: 500}}
		return placed{Plan{}, plan.Place{Step: step, Fault: f}}
	}
	cut := apiproxy.Fault{Match: apiproxy.Match{Verb: "watch", Resource: "pods"}, Effect: apiproxy.Effect{Watch: apiproxy.WatchCut, Event: 2}}
	r := recorded(&Scenario{})
	r.job = job{get(0, 1), get(1, 2), {Plan{}, plan.Place{Step: 2, Fault: cut, OfEvent: true}}, get(2, 5)} // the last does not come
	r.armed = r.job.arm()
	proxy, err := apiproxy.Start(t.Context(), apiproxy.Options{Upstream: &rest.Config{Host: upstream.URL}, Armed: faultsOf(r.armed, instance{}), Record: r.recording.Record})
	require.NoError(t, err)
	defer proxy.Stop()
	client, err := rest.HTTPClientFor(proxy.Config())
	require.NoError(t, err)
	statuses := func() (all []int) {
		for range 3 {
			response, err := client.Get(proxy.URL() + "/api/v1/namespaces/shop/pods/a")
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			all = append(all, response.StatusCode)
		}
		return all
	}
	watch, err := client.Get(proxy.URL() + "/api/v1/namespaces/shop/pods?watch=1")
	require.NoError(t, err)
	defer watch.Body.Close()
	events := bufio.NewReader(watch.Body)
	sees := func(name string) {
		more <- name
		line, err := events.ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, line, name)
	}
	sees("early")
	require.Equal(t, []int{200, 200, 200}, statuses(), "no step has begun")
	for _, want := range [][]int{{500, 200, 200}, {200, 500, 200}, {200, 200, 200}} {
		r.beginStep("a step")
		require.Equal(t, want, statuses())
		require.False(t, r.armed[2].IsMet())
	}
	sees("in the last step")
	more <- "the second there"
	_, err = events.ReadString('\n')
	require.Error(t, err, "the watch is cut")
	for i := range r.job[:3] {
		require.True(t, r.wasMet(i), i)
	}
	r.pauseFaults(false)
	require.Equal(t, []int{200, 200, 200}, statuses(), "each has had its step")
}

// What varies without faults, such as a resourceVersion in an annotation, is not unusual. Anything else is.
func TestWhatVariesBetweenSteps(t *testing.T) {
	const pod = `pods {"metadata":{"annotations":{"version":"%s"},"name":"a"},"spec":{"n":"%s"},"status":{"node":"%s"}}`
	s := stepBaseline{statuses: map[string]bool{"pods": true}}
	s.addEnd([]string{fmt.Sprintf(pod, "1", "x", "node-1")})
	s.addEnd([]string{fmt.Sprintf(pod, "2", "y", "node-2")})
	require.Empty(t, s.compare([]string{fmt.Sprintf(pod, "3", "x", "node-3")}))
	require.Empty(t, s.compare([]string{fmt.Sprintf(pod, "3", "y", "node-3")}), "one of the states has it")
	require.NotEmpty(t, s.compare([]string{fmt.Sprintf(pod, "1", "z", "node-1")}), "a spec must be one that is known")
	require.NotEmpty(t, s.compare(nil))
	once := stepBaseline{statuses: map[string]bool{"pods": true}}
	once.addEnd([]string{fmt.Sprintf(pod, "1", "x", "node-1")})
	require.NotEmpty(t, once.compare([]string{fmt.Sprintf(pod, "2", "x", "node-1")}))
}
