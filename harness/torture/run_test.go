package torture

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/oracle"
	"example.com/controllers/harness/suite"
)

// newRun is a run in a world, without faults.
func newRun(w *world) *run {
	ps := newProcesses(w)
	return &run{processes: ps, machines: newMachines(context.Background(), ps)}
}

// recorded is a run of which this was recorded.
func recorded(s *Scenario, requests ...history.Request) *run {
	r := newRun(&world{subject: &subject{scenario: s}, namespace: "torture-1"})
	r.programs = []*program{{process: &process{}}}
	for i, q := range requests {
		q.ID = int64(i + 1)
		r.recording.Record(history.Record{Request: &q})
	}
	return r
}

// injected returns a request that something was done to.
func injected(q history.Request, injections ...history.Injection) history.Request {
	q.Injected = injections
	return q
}

var (
	refusal = history.Injection{Kind: history.Refused, Status: 500}
	delay   = history.Injection{Kind: history.Delayed, Duration: 2 * time.Second}
)

// What broke off for another reason than the stop does not show that the controller gives up its requests.
func TestCutOff(t *testing.T) {
	start := time.Unix(1e9, 0)
	stop := history.Injection{Kind: history.ControllerStopped}
	gaveUp := history.Request{Verb: "delete", Resource: "pods", Start: start, Duration: time.Second, Error: "the client went away", GaveUp: true}
	crashed := history.Request{Verb: "delete", Resource: "pods", Start: start, Duration: time.Second, Error: "dial tcp 127.0.0.1:6443: connect: connection refused"}
	event, begun := gaveUp, gaveUp
	event.Resource, begun.Status = "events", 200
	for name, c := range map[string]struct {
		request history.Request
		killed  time.Duration // when, from the beginning of the request; 0 if never
		started time.Duration // when it was started last, likewise
		want    bool
	}{
		"told to stop":                                   {injected(gaveUp, stop), 0, -time.Minute, true},
		"told to stop, and delayed":                      {injected(gaveUp, stop, delay), 0, -time.Minute, true},
		"told to stop, and killed":                       {injected(gaveUp, stop), 500 * time.Millisecond, -time.Minute, false},
		"told to stop, and killed later":                 {injected(gaveUp, stop), 2 * time.Second, -time.Minute, true},
		"told to stop, and killed just before":           {injected(gaveUp, stop), -time.Millisecond, -time.Minute, false},
		"told to stop, and killed before it was started": {injected(gaveUp, stop), -2 * time.Second, -time.Second, true},
		"not told to stop":                               {gaveUp, 0, -time.Minute, false},
		"told to stop, and refused":                      {injected(gaveUp, stop, refusal), 0, -time.Minute, false},
		"an Event":                                       {injected(event, stop), 0, -time.Minute, false},
		"the answer had begun":                           {injected(begun, stop), 0, -time.Minute, false},
		"the control plane was killed meanwhile":         {injected(crashed, stop, delay), 0, -time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := recorded(&Scenario{}, c.request)
			r.programs[0].process.starts = []time.Time{start.Add(-time.Hour), start.Add(c.started), start.Add(time.Hour)}
			if c.killed != 0 {
				r.programs[0].process.kills = []time.Time{start.Add(c.killed)}
			}
			require.Equal(t, c.want, r.wasCutOff(c.request))
		})
	}
}

func TestMayExit(t *testing.T) {
	started := time.Unix(1e9, 0)
	mayExit := func(r *run, status int) bool { return r.mayExit(r.programs[0])(status, started) }
	at := func(s int, q history.Request) history.Request {
		q.Start = started.Add(time.Duration(s) * time.Second)
		return q
	}
	fine, missing, broken := history.Request{Status: 200}, history.Request{Status: 404}, history.Request{Error: "broken off"}
	refused, slow := injected(history.Request{Status: 500}, refusal), injected(history.Request{Status: 200}, delay)
	write := history.Request{Verb: "patch", Resource: "pods", Status: 200}
	event := history.Request{Verb: "create", Resource: "events", Status: 201}
	for name, c := range map[string]struct {
		mayExit, status int
		requests        []history.Request
		want            bool
	}{
		"it must not":                {0, 0, []history.Request{at(1, refused)}, false},
		"it must not, and fails":     {0, 1, []history.Request{at(1, refused)}, false},
		"with another status":        {1, 2, []history.Request{at(1, refused)}, false},
		"with success":               {1, 0, []history.Request{at(1, refused)}, false},
		"without any request":        {1, 1, nil, false},
		"without a fault":            {1, 1, []history.Request{at(1, missing)}, false},
		"after a fault":              {1, 1, []history.Request{at(1, refused)}, true},
		"after a slow answer":        {1, 1, []history.Request{at(1, slow)}, true},
		"after a broken connection":  {3, 3, []history.Request{at(1, missing), at(2, broken)}, true},
		"after good answers, too":    {1, 1, []history.Request{at(0, fine), at(1, fine), at(2, refused)}, true},
		"after a write":              {1, 1, []history.Request{at(1, write), at(2, refused)}, false},
		"after a write that failed":  {1, 1, []history.Request{at(1, injected(history.Request{Verb: "patch", Resource: "pods", Status: 500}, refusal))}, true},
		"after an Event":             {1, 1, []history.Request{at(1, event), at(2, refused)}, true},
		"after a write before":       {1, 1, []history.Request{at(-2, write), at(-1, refused), at(1, broken)}, true},
		"after a fault that goes on": {1, 1, []history.Request{at(-2, write), at(-1, refused)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, mayExit(recorded(&Scenario{MayExit: c.mayExit}, c.requests...), c.status))
		})
	}
	r, times := recorded(&Scenario{MayExit: 1}, at(1, refused)), 0
	for times < 1000 && mayExit(r, 1) {
		times++
	}
	require.Less(t, times, 1000, "it may not exit for ever")
}

func TestAttempts(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(1e9+int64(s), 0) }
	deletes := func(s int, name string) history.Request {
		return history.Request{Start: at(s), Verb: "delete", Resource: "pods", Name: name, Status: 500}
	}
	refused := injected(history.Request{Start: at(11), Verb: "create", Resource: "pods", Status: 500}, refusal)
	r := recorded(&Scenario{Resources: []string{"pods"}}, deletes(10, "a"), deletes(11, "a"), deletes(12, "b"), deletes(20, "a"), refused, refused)
	r.stepStarts = []time.Time{at(10), at(20)}
	require.Equal(t, []map[string]int{{"delete pods a": 2, "delete pods b": 1}, {"delete pods a": 1}}, r.attempts(r.recording.History()),
		"a create that was refused is not of one object")
}

func TestLateEvents(t *testing.T) {
	event := history.Request{Verb: "create", Resource: "events", Status: 201}
	failed := event
	failed.Status = 500
	require.Zero(t, recorded(&Scenario{}, event, history.Request{Verb: "create", Resource: "pods", Status: 500}).lateEvents())
	require.Equal(t, 2, recorded(&Scenario{}, failed, injected(event, delay)).lateEvents())
	r := recorded(&Scenario{})
	r.plan = Plan{Faults: []apiproxy.Fault{{Effect: apiproxy.Effect{Down: time.Second}}}}
	require.Greater(t, r.lateEvents(), 1000, "what could not connect was not recorded")
}

func TestAwaitOutput(t *testing.T) {
	s := &Scenario{Says: []string{"one", "two"}}
	for name, c := range map[string]struct{ log, died, want string }{
		"all":               {log: "two\nand one\n"},
		"not all":           {log: "one", want: `change lost: it has not printed "two", 0s after the last change`},
		"not all, and died": {log: "one", died: "it exited", want: "died: it exited"},
	} {
		t.Run(name, func(t *testing.T) {
			r := recorded(s)
			_, _ = r.programs[0].Write([]byte(c.log))
			s.Patience.Duration = 0
			if c.died != "" {
				s.Patience.Duration = hangs
				r.failed <- &Failure{Verdict: Died, Message: c.died}
			}
			err := r.awaitOutput(t.Context())
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.want)
			var failure *Failure
			require.ErrorAs(t, err, &failure)
		})
	}
}

func TestSleep(t *testing.T) {
	r := recorded(&Scenario{})
	closed := make(chan struct{})
	close(closed)
	require.NoError(t, r.sleep(t.Context(), closed, hangs))
	require.NoError(t, r.sleep(t.Context(), nil, 0))
	failure := &Failure{Died, "cause", "no"}
	r.failed <- failure
	require.Equal(t, failure, r.sleep(t.Context(), nil, hangs))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errEnough)
	require.ErrorIs(t, r.sleep(ctx, nil, hangs), errEnough)
}

// A write that failed is owed until it succeeds, whatever the answer was.
func TestOwedWrites(t *testing.T) {
	deletion := history.Request{Verb: "delete", Resource: "pods", Namespace: "shop", Name: "a", Status: 200}
	creation := history.Request{Verb: "create", Resource: "pods", Namespace: "shop", Name: "b-1", Status: 201}
	with := func(q history.Request, change func(*history.Request)) history.Request {
		change(&q)
		return q
	}
	refused := with(deletion, func(q *history.Request) { q.Status = 429 })
	lost := with(deletion, func(q *history.Request) { q.Status, q.Error = 0, "broken off" })
	notCreated := with(creation, func(q *history.Request) { q.Status, q.Name = 500, "" })
	patched := func(status int, subresource string) history.Request {
		return history.Request{Verb: "patch", Resource: "pods", Subresource: subresource, Namespace: "shop", Name: "a", Status: status}
	}
	read := with(deletion, func(q *history.Request) { q.Verb, q.Status = "get", 500 })
	for name, c := range map[string]struct {
		requests []history.Request
		next     history.Request
		owed     bool
	}{
		"nothing":                          {nil, deletion, false},
		"it was done":                      {[]history.Request{deletion}, deletion, false},
		"it was refused":                   {[]history.Request{refused}, deletion, true},
		"it got no answer":                 {[]history.Request{lost}, deletion, true},
		"it was refused, and then done":    {[]history.Request{refused, deletion}, deletion, false},
		"it was done, and then refused":    {[]history.Request{deletion, refused}, deletion, true},
		"another object":                   {[]history.Request{refused}, with(deletion, func(q *history.Request) { q.Name = "z" }), false},
		"another verb":                     {[]history.Request{refused}, with(deletion, func(q *history.Request) { q.Verb = "patch" }), false},
		"its status, later":                {[]history.Request{patched(500, ""), patched(200, "status")}, patched(200, ""), true},
		"the object, after its status":     {[]history.Request{patched(500, "status"), patched(200, "")}, patched(200, "status"), true},
		"the same subresource":             {[]history.Request{patched(500, "status"), patched(200, "status")}, patched(200, "status"), false},
		"the same name in another group":   {[]history.Request{refused}, with(deletion, func(q *history.Request) { q.Group = "metrics.k8s.io" }), false},
		"the same name elsewhere":          {[]history.Request{refused}, with(deletion, func(q *history.Request) { q.Namespace = "other" }), false},
		"another resource of that name":    {[]history.Request{refused}, with(deletion, func(q *history.Request) { q.Resource = "services" }), false},
		"a read":                           {[]history.Request{read}, with(read, func(q *history.Request) { q.Status = 200 }), false},
		"a create has no name until then":  {[]history.Request{notCreated}, creation, true},
		"a create of another object later": {[]history.Request{notCreated, creation}, creation, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.owed, owedWrites(c.requests)[writeOf(c.next)])
		})
	}
}

// A quiet time in which somebody else changes what the controller watches was none.
func TestIsChangedByOthers(t *testing.T) {
	write := history.Request{Verb: "update", Group: "apps", Resource: "deployments", Namespace: "shop", Name: "a", Status: 200}
	event := history.Event{Type: "MODIFIED", Group: "apps", Resource: "deployments", Namespace: "shop", Name: "a"}
	other := event
	other.Name = "b"
	bookmark := history.Event{Type: "BOOKMARK", Group: "apps", Resource: "deployments"}
	read := write
	read.Verb = "get"
	for name, c := range map[string]struct {
		quiet history.History
		want  bool
	}{
		"nothing":                    {history.History{}, false},
		"a bookmark":                 {history.History{Events: []history.Event{bookmark}}, false},
		"an event of its own write":  {history.History{Requests: []history.Request{write}, Events: []history.Event{event}}, false},
		"an event of nobody's write": {history.History{Events: []history.Event{event}}, true},
		"an event of what it reads":  {history.History{Requests: []history.Request{read}, Events: []history.Event{event}}, true},
		"an event of another object": {history.History{Requests: []history.Request{write}, Events: []history.Event{event, other}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, isChangedByOthers(&c.quiet))
		})
	}
}

// A plan is met if one of its faults was injected, and not only what came of it.
func TestIsMet(t *testing.T) {
	skipped := func(i history.Injection) history.Injection {
		i.Skipped = "there is nothing to do it to"
		return i
	}
	frozen, unobserved := history.Injection{Kind: history.ControllerFrozen}, history.Injection{Kind: history.WatchUnobserved, Event: 1}
	late := history.Injection{Kind: history.EventsLate, Duration: 2 * time.Second, SideEffect: true}
	for name, c := range map[string]struct {
		injections []history.Injection
		want       bool
	}{
		"nothing came":                     {nil, false},
		"it was refused":                   {[]history.Injection{refusal}, true},
		"frozen while stopping":            {[]history.Injection{skipped(frozen)}, false},
		"frozen":                           {[]history.Injection{frozen}, true},
		"unobserved":                       {[]history.Injection{unobserved}, true},
		"unobserved, and nothing followed": {[]history.Injection{late, skipped(unobserved)}, false},
		"one of two":                       {[]history.Injection{refusal, skipped(frozen)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history.History{Requests: []history.Request{{Verb: "list"}, injected(history.Request{Verb: "watch"}, c.injections...)}}
			require.Equal(t, c.want, Plan{Faults: []apiproxy.Fault{{}}}.IsMet(h))
			require.True(t, NoFault.IsMet(h), "it has none")
		})
	}
}

// Events have a limit of their own, so they don't count as requests too.
func TestCountAtRest(t *testing.T) {
	write := func(verb, resource string) history.Request {
		return history.Request{Verb: verb, Resource: resource, Namespace: "shop", Name: "a", Status: 200}
	}
	quiet := &history.History{Requests: []history.Request{
		write("patch", "events"), write("create", "events"), write("update", "leases"), write("update", "foos"), write("delete", "pods"),
		{Verb: "list", Resource: "pods", Status: 200},
	}}
	r := recorded(&Scenario{MayDiffer: MayDiffer{AtRest: []string{"update foos"}}})
	require.Equal(t, quietTime{writes: []history.Request{write("delete", "pods")}, requests: 3, events: 2}, r.countAtRest(quiet))

	r = recorded(&Scenario{Resources: []string{"events"}})
	seen := r.countAtRest(quiet)
	require.Equal(t, 0, seen.events)
	require.Len(t, seen.writes, 4)
	require.Equal(t, 5, seen.requests)
}

func TestStalls(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(1e9+int64(s), 0) }
	s := &stalls{all: []stall{{at(10), at(13)}, {at(20), at(21)}}}
	require.Equal(t, 4*time.Second, s.since(at(0)))
	require.Equal(t, 3*time.Second, s.since(at(11)))
	require.Equal(t, time.Second, s.since(at(13)))
	require.Zero(t, s.since(at(21)))
	require.Zero(t, (*stalls)(nil).since(at(0)))
	require.Zero(t, (*stalls)(nil).starvedSince(at(0)))

	s.add(&s.starved, at(18), at(28), 0.5)
	require.Equal(t, 8*time.Second, s.starvedSince(at(0)), "one of the five seconds is a stall")
	require.Equal(t, time.Second, s.starvedSince(at(27)), "the end of the time")
	s.all = append(s.all, stall{at(30), at(32)})
	s.add(&s.starved, at(28), at(33), 0.4)
	require.Equal(t, 10*time.Second, s.starvedSince(at(0)), "all of it is a stall")
	require.Equal(t, 6*time.Second, s.since(at(0)))
	s.add(&s.slowed, at(40), at(44), 0.5)
	require.Equal(t, 8*time.Second, s.slowedSince(at(0)))
	require.Equal(t, 10*time.Second, s.starvedSince(at(0)), "it is apart from that")
}

func TestStarved(t *testing.T) {
	ms := func(ran, waited int) processorTime {
		return processorTime{time.Duration(ran) * time.Millisecond, time.Duration(waited) * time.Millisecond}
	}
	processors := time.Duration(runtime.NumCPU())
	before := map[int]processorTime{1: ms(1000, 5000), 2: ms(10, 10)}
	for name, c := range map[string]struct {
		after    map[int]processorTime
		idle     time.Duration // of each processor, in a second
		want     float64
		hasSpare bool
	}{
		"idle":                          {before, time.Second, 0, true},
		"a busy machine":                {map[int]processorTime{1: ms(1100, 5100)}, 0, 0, false},
		"waits for longer than ran":     {map[int]processorTime{1: ms(1100, 5200), 2: ms(10, 110)}, 100 * time.Millisecond, 0.75, false},
		"but there is time to spare":    {map[int]processorTime{1: ms(1100, 5200), 2: ms(10, 110)}, 200 * time.Millisecond, 0, true},
		"there is a limit":              {map[int]processorTime{1: ms(1001, 6000)}, 0, maxStarved, false},
		"a new thread":                  {map[int]processorTime{3: ms(100, 300)}, 0, 0.75, false},
		"the ID of one that ended":      {map[int]processorTime{1: ms(100, 300)}, 0, 0.75, false},
		"a thread has ended":            {map[int]processorTime{2: ms(110, 10)}, 0, 0, false},
		"the system does not say":       {nil, 0, 0, false},
		"all processors of a container": {map[int]processorTime{1: ms(1000+900*runtime.GOMAXPROCS(0), 5000+2700*runtime.GOMAXPROCS(0))}, time.Second, 0.75, false},
	} {
		t.Run(name, func(t *testing.T) {
			first, second := processorUse{before, time.Hour}, processorUse{c.after, time.Hour + processors*c.idle}
			require.Equal(t, c.want, starved(first, second, time.Second))
			if name == "a busy machine" {
				c.want = 0.5
			}
			require.Equal(t, c.want, slowed(first, second, time.Second))
			require.Equal(t, c.hasSpare, hasSpare(first, second, time.Second, spare))
		})
	}
}

// This machine says how much its processors are idle.
func TestReadProcessorUse(t *testing.T) { require.Positive(t, readProcessorUse(t.Context()).idle) }

// While our processes wait for a processor, patience lasts longer.
func TestWatchForStarvation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		s := watchForStalls(func(context.Context) {}, func(context.Context) processorUse {
			since := time.Since(begin)
			return processorUse{threads: map[int]processorTime{1: {since / 4, since * 3 / 4}}}
		})
		time.Sleep(20 * time.Second)
		s.stop()
		require.InDelta(t, (15 * time.Second).Seconds(), s.starvedSince(begin).Seconds(), 1)
		require.Zero(t, s.since(begin))
	})
}

// Further runs wait for processor time to spare, one after the other, and no longer than there is something to run.
func TestAwaitSpare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := time.Now().Add(time.Minute)
		s := watchForStalls(func(context.Context) {}, func(context.Context) processorUse {
			return processorUse{idle: time.Duration(runtime.NumCPU()) * max(0, time.Since(busy))}
		})
		over := make(chan struct{})
		begun := make(chan time.Time, 3)
		for range cap(begun) {
			go func() {
				s.awaitSpare(over)
				begun <- time.Now()
			}()
		}
		time.Sleep(59 * time.Second)
		require.Empty(t, begun, "no processor is idle")
		last := busy
		for range cap(begun) {
			now := <-begun
			require.GreaterOrEqual(t, now.Sub(last), starvedInterval/4)
			last = now
		}
		s.stop()
	})
	synctest.Test(t, func(t *testing.T) {
		s := watchForStalls(func(context.Context) {}, func(context.Context) processorUse { return processorUse{} })
		over := make(chan struct{})
		ended := make(chan struct{})
		go func() {
			s.awaitSpare(over)
			close(ended)
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		select {
		case <-ended:
			require.Fail(t, "no processor is idle")
		default:
		}
		close(over)
		<-ended
		s.stop()
	})
}

// A probe that takes long is a stall, and one that does not is none.
func TestWatchForStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		slow := false
		s := watchForStalls(func(context.Context) {
			if slow = !slow; slow {
				time.Sleep(5 * time.Second)
			}
		}, func(context.Context) processorUse { return processorUse{} })
		time.Sleep(20 * time.Second)
		s.stop()
		stalled := s.since(begin)
		require.Greater(t, stalled, 14*time.Second)
		require.Less(t, stalled, 21*time.Second)
	})
}

func TestIsToldNamespace(t *testing.T) {
	require.True(t, isToldNamespace([]string{"shop", "--namespace={namespace}"}))
	require.False(t, isToldNamespace([]string{"shop", "--kubeconfig={kubeconfig}"}))
}

// A program that is told its namespace may be told only that of its Lease.
func TestWide(t *testing.T) {
	of := func(verb, resource, namespace string, status int) history.Request {
		return history.Request{Verb: verb, Resource: resource, Namespace: namespace, Status: status}
	}
	for name, c := range map[string]struct {
		requests []history.Request
		wide     bool
	}{
		"nothing":                           {nil, false},
		"its own namespace":                 {[]history.Request{of("list", "pods", "torture-1", 200), of("watch", "pods", "torture-1", 200)}, false},
		"all":                               {[]history.Request{of("list", "pods", "", 200)}, true},
		"a watch of all":                    {[]history.Request{of("watch", "pods", "", 200)}, true},
		"all, which it may not":             {[]history.Request{of("list", "pods", "", 403)}, false},
		"what is in no namespace":           {[]history.Request{of("list", "nodes", "", 200)}, false},
		"what the scenario is not about":    {[]history.Request{of("list", "secrets", "", 200)}, false},
		"a resource of its name in a group": {[]history.Request{{Verb: "list", Group: "metrics.k8s.io", Resource: "pods", Status: 200}}, false},
	} {
		r := recorded(&Scenario{}, c.requests...)
		r.programs[0].program = "controller"
		r.commands = Single("shop", "--namespace={namespace}")
		r.resources = []resource{{corev1.SchemeGroupVersion.WithResource("pods"), true}, {corev1.SchemeGroupVersion.WithResource("nodes"), false}}
		require.Equal(t, c.wide, r.wideIn(r.recording.History())["controller"], name)
		r.wide = r.wideIn(r.recording.History())
		require.Equal(t, !c.wide, r.looksAtOneNamespace("controller"), name)
		r.commands = Single("shop")
		require.Empty(t, r.wideIn(r.recording.History()), "it is not told any")
	}
}

func TestOtherRun(t *testing.T) {
	for message, want := range map[string]string{
		"Pod web is gone":                               "",
		"Pod torture-1/web is gone":                     "",
		"torture-12/web and torture-1/web are the same": "torture-12",
		"in namespace \"torture-2\": forbidden":         "torture-2",
		"/tmp/workshop-torture-20261129-010203 is full": "",
	} {
		r := recorded(&Scenario{})
		require.Equal(t, want, r.otherRun(message), message)
		r.scenario.Scope = "cluster"
		require.Empty(t, r.otherRun(message), "each run has a control plane of its own")
	}
}

// The namespaces of most runs stay: deleting one takes longer than some plans.
func TestMayStay(t *testing.T) {
	told, untold := []string{"shop", "--namespace={namespace}"}, []string{"shop"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "torture-1", Name: "web"}}
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "torture-2", Name: "web"}}
	for name, c := range map[string]struct {
		commands Commands
		objects  []kruntime.Object
		want     bool
	}{
		"of a controller that is told its namespace": {Commands{"a": told}, []kruntime.Object{other}, true},
		"of one that lists all namespaces":           {Commands{"a": told, "b": untold}, nil, false},
		"with Pods, which take places on nodes":      {Commands{"a": told}, []kruntime.Object{pod}, false},
	} {
		t.Run(name, func(t *testing.T) {
			clients := &clients{Interface: fake.NewClientset(c.objects...)}
			r := newRun(&world{subject: &subject{commands: c.commands}, controlPlane: &controlPlane{clients: clients}, namespace: "torture-1"})
			mayStay, err := r.mayStay(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.want, mayStay)
		})
	}
}

// Two plans that kill the control plane do not kill each other's.
func TestWithExpendable(t *testing.T) {
	failed := errors.New("no disk space")
	first, second := &controlPlane{restartErr: func() error { return nil }}, &controlPlane{restartErr: func() error { return failed }}
	l := &Lab{idle: []*controlPlane{first, second}}
	var used []*controlPlane
	err := l.withExpendable(func(p *controlPlane) error {
		used = append(used, p)
		return l.withExpendable(func(p *controlPlane) error {
			used = append(used, p)
			return nil
		})
	})
	require.ErrorIs(t, err, failed, "that a control plane does not come back ends all")
	require.ElementsMatch(t, []*controlPlane{first, second}, used)
	require.ElementsMatch(t, []*controlPlane{first, second}, l.idle)
}

func TestCapacity(t *testing.T) {
	for name, c := range map[string]struct {
		processors int
		memory     uint64
		want       int
	}{
		"a laptop":                          {2, 16 << 30, 36},
		"a container with one processor":    {1, 3 << 30, 15},
		"one with those of a whole machine": {16, 3 << 30, 15},
		"too little memory":                 {16, 100 << 20, 2},
		"no limit":                          {1, math.MaxUint64, 18},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, capacity(c.processors, c.memory)) })
	}
}

func TestParallel(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		want    int
	}{
		"what the machine takes":                  {Options{Scenario: &Scenario{}}, Capacity()},
		"whole clusters":                          {Options{Scenario: &Scenario{Scope: "cluster"}}, max(1, Capacity()/4)},
		"as asked for":                            {Options{Scenario: &Scenario{}, Parallel: 3}, 3},
		"in one namespace":                        {Options{Scenario: &Scenario{Namespace: "shop"}}, 1},
		"in one namespace, whatever is asked for": {Options{Scenario: &Scenario{Namespace: "shop"}, Parallel: 3}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, c.options.Runs())
			if c.want == Capacity() || c.options.Scenario.isCluster() {
				require.GreaterOrEqual(t, c.options.mostRuns(), c.want)
				if availableMemory() > uint64(c.want)*(300<<20) { // not what limits it
					require.Greater(t, c.options.mostRuns(), c.want)
				}
			} else if c.options.Parallel == 0 {
				require.Equal(t, c.want, c.options.mostRuns())
			}
		})
	}
}

// If one run is asked for at a time, so are the runs without faults. This program cannot run beside itself.
func TestTheBaselineRunsOneAtATime(t *testing.T) {
	suite.Long(t, "it takes ten seconds")
	t.Parallel() // it has a lab of its own
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "scenario.yaml"), []byte(`
resources: [configmaps]
steps:
- name: an order comes
  do:
  - apply: {apiVersion: v1, kind: ConfigMap, metadata: {name: order}}
converged:
- rule: "true" # it is a program that only reads
says: [order]
`), 0o600))
	scenario, err := Read(filepath.Join(dir, "scenario.yaml"))
	require.NoError(t, err)
	lab, err := Open(t.Context(), 0, os.Stderr)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lab.Close()) })
	shared, err := cluster.Shared()
	require.NoError(t, err)
	const program = `mkdir "$3/runs" || exit 7
trap 'kill $!; rmdir "$3/runs"; exit 0' TERM
"$1/kubectl" get configmaps --namespace="$2" --cache-dir="$3/cache" --watch &
wait`
	baseline, err := lab.Learn(t.Context(), Options{Scenario: scenario, Parallel: 1, Progress: os.Stderr,
		Commands: Single("/bin/sh", "-c", program, "kitchen", shared.Kubectl, "{namespace}", dir)})
	require.NoError(t, err)
	require.GreaterOrEqual(t, baseline.Runs, 2)
}

func TestTail(t *testing.T) {
	usage := strings.Repeat("  --flag  what it does\n", 30)
	require.True(t, strings.HasPrefix(tail("starting\nError: unknown flag: --lease\nUsage:\n"+usage), "its last lines, and an earlier one:\n  Error: unknown flag: --lease\n  …\n  "))
	require.True(t, strings.HasPrefix(tail("starting\nUsage:\n"+usage), "its last lines:\n"))
	require.Equal(t, "its last lines:\n  a\n  b", tail("a\nb\n"))
	var lines []string
	for i := range 30 {
		lines = append(lines, fmt.Sprint("line ", i))
	}
	require.Equal(t, "its last lines:\n  "+strings.Join(lines[20:], "\n  "), tail(strings.Join(lines, "\n")))
}

func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := &progress{out: &out, total: 5, parallel: 2, begin: time.Now()}
		passed := Outcome{Plan: Plan{Kind: "slow"}}
		p.finished(passed)
		p.finished(Outcome{Plan: Plan{Kind: "watch cut"}, Verdict: Lost, Message: "it is gone"})
		p.finished(passed)
		require.Equal(t, 1, strings.Count(out.String(), "plans done"), "not with every plan")
		p.printed = time.Time{}
		p.finished(passed)
		p.finished(passed)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		require.Len(t, lines, 4)
		require.Equal(t, "torture: 1 of 5 plans done, 0 failed", lines[0], "nothing is known of the time yet")
		require.Equal(t, "torture: watch cut: change lost: it is gone", lines[1])
		require.Equal(t, "torture: 4 of 5 plans done, 1 failed, about 0s left", lines[2])
		require.Equal(t, "torture: 5 of 5 plans done, 1 failed", lines[3])

		out.Reset()
		p = &progress{out: &out, total: 5, parallel: 2, begin: time.Now(), budget: newBudget(time.Minute)}
		time.Sleep(time.Minute)
		p.finished(passed)
		require.Equal(t, "torture: 1 of 5 plans done, 0 failed; the budget is over, and what has begun is finished\n", out.String())
	})
}

// In a long run, most plans pass. Whoever is told of them gets everything, and the report keeps what it needs.
func TestAReportDoesNotKeepTheEvidenceOfPlansThatPassed(t *testing.T) {
	h := history.Of(history.Record{Request: &history.Request{ID: 1, Verb: "list", Resource: "pods"}})
	outcome := func(kind string, verdict Verdict) Outcome {
		return Outcome{Plan: Plan{Kind: kind}, Verdict: verdict, Notes: []string{"a note"}, History: h, Log: "started"}
	}
	passed, failed := outcome("slow", Passed), outcome("killed", Lost)
	var finished []Outcome
	lab := &Lab{shared: &controlPlane{cluster: &cluster.Cluster{}}}
	report, err := lab.Run(t.Context(), Options{
		Scenario: &Scenario{}, Commands: Single("true"), Baseline: &Baseline{History: h}, Plans: []Plan{passed.Plan, failed.Plan}, Unconfirmed: true,
		Elsewhere: func(_ context.Context, _ []Plan, finished func(Outcome) error) error {
			return errors.Join(finished(passed), finished(failed))
		},
		Finished: func(o Outcome) { finished = append(finished, o) },
	})
	require.NoError(t, err)
	require.Equal(t, []Outcome{passed, failed}, finished)
	report.retried(passed)
	slim := passed
	slim.History, slim.Log = &history.History{}, ""
	require.Equal(t, []Outcome{slim, failed}, report.Outcomes)
	require.Equal(t, []Outcome{slim}, report.Retried[passed.Plan.Key()])
}

// What is to be pasted is right together with the names that are to be pasted.
func TestWritesOfObjectsWithOtherNames(t *testing.T) {
	require.Equal(t, []string{"added jobs apply-*", "create jobs.batch apply-*", "patch jobs.batch/status apply-*", "added pods apply-1"},
		named([]string{"added jobs apply-1", "added jobs apply-2", "create jobs.batch apply-1", "patch jobs.batch/status apply-2", "added pods apply-1"}, []string{"jobs: apply-*"}))
}

// When a rule was broken tells whose work it may be.
func TestDuring(t *testing.T) {
	at := func(second int) time.Time { return time.Unix(1e9+int64(second), 0) }
	r := recorded(&Scenario{Steps: []Step{{Name: "a change"}}})
	r.launched, r.stepStarts, r.restBegan = at(1), []time.Time{at(2), at(3)}, at(5)
	for second, want := range map[int]string{0: "before the controller was started", 1: "at the start", 2: "at the start", 3: `in the step "a change"`, 4: `in the step "a change"`, 6: "after the last step"} {
		require.Equal(t, want, r.during(at(second)), second)
	}
}

// A program that exits because of a request that failed may be right, if the scenario says so.
func TestDiedOfARequest(t *testing.T) {
	refused := injected(history.Request{Verb: "list", Resource: "pods", Status: 500}, refusal)
	write := history.Request{Verb: "patch", Resource: "pods", Name: "a", Status: 200}
	failed := exec.Command("/bin/sh", "-c", "exit 3")
	require.Error(t, failed.Run())
	const hint = `; if it may exit when a request fails and it has not written anything, put "mayExit: 3" into the scenario`
	for name, c := range map[string]struct {
		requests []history.Request
		output   string
		mayExit  int
		want     string
	}{
		"a request failed":            {[]history.Request{refused}, "no list", 0, "it exited by itself, with exit status 3: no list" + hint},
		"none failed":                 {nil, "no list", 0, "it exited by itself, with exit status 3: no list"},
		"it had written":              {[]history.Request{write, refused}, "no list", 0, "it exited by itself, with exit status 3: no list"},
		"it panics":                   {[]history.Request{refused}, "panic: no", 0, "it exited by itself, with exit status 3: panic: no"},
		"the scenario allows another": {[]history.Request{refused}, "no list", 1, "it exited by itself, with exit status 3: no list"},
	} {
		t.Run(name, func(t *testing.T) {
			r := recorded(&Scenario{MayExit: c.mayExit}, c.requests...)
			require.Equal(t, c.want, r.died(r.programs[0], exit{state: failed.ProcessState, output: c.output}).Message)
		})
	}
}

func TestUnfitError(t *testing.T) {
	var err error = &UnfitError{Verdict: Died, message: "it fails by itself"}
	require.EqualError(t, err, "it fails by itself")
	var unfit *UnfitError
	require.True(t, errors.As(fmt.Errorf("torture: %w", err), &unfit))
	require.Equal(t, Died, unfit.Verdict)
}

// baselineOf is the baseline of runs that showed this.
func baselineOf(t *testing.T, s *Scenario, runs ...*observation) (*Baseline, error) {
	t.Helper()
	b := &Baseline{}
	for _, o := range runs {
		b.add(Outcome{}, o)
	}
	if unfit := b.unfit(s.MayDiffer.Writes); unfit != nil {
		return b, unfit
	}
	return b, nil
}

func TestBaseline(t *testing.T) {
	run := func(requests, events int, watched ...string) *observation {
		o := &observation{rest: quietTime{requests: requests, events: events}, watched: map[watching]bool{}, opened: map[watching]bool{}}
		for _, resource := range watched {
			o.watched[watching{resource: resource}] = true
			o.opened[watching{resource: resource}] = true
		}
		return o
	}
	b, err := baselineOf(t, &Scenario{}, run(1, 5, "pods", "secrets"), run(3, 2, "pods"))
	require.NoError(t, err)
	require.Equal(t, 2, b.Runs)
	require.Equal(t, 3, b.requests)
	require.Equal(t, 5, b.events)
	require.Equal(t, map[watching]bool{{resource: "pods"}: true}, b.watched)
	require.Equal(t, b.watched, b.opened)
}

// What differs between runs without faults is printed as the scenario wants it.
// All that differs is printed at once, in the words in which the scenario allows it.
func TestBaselineThatDiffers(t *testing.T) {
	object := func(resource, name, fields string) string {
		return resource + ` {"metadata":{"name":"` + name + `"}` + fields + `}`
	}
	run := func(added int, end ...string) *observation {
		return &observation{end: end, effects: oracle.Effects{Changes: map[string]int{"added pods web-*": added, "added pods a": 1}}}
	}
	for name, c := range map[string]struct {
		runs  []*observation
		says  string
		block string
	}{
		"fields": {[]*observation{run(1, object("pods", "a", `,"x":1,"y":{"b.c":1}`)), run(1, object("pods", "a", `,"x":2,"y":{"b.c":3}`))},
			`runs without faults end differently:
  pod a: x is 2, should be 1; y["b.c"] is 3, should be 1`, `
  fields:
  - "pods: x"
  - "pods: y[\"b.c\"]"`},
		"a field of one object": {[]*observation{run(1, object("pods", "a", `,"x":1`), object("pods", "b", `,"x":1`)), run(1, object("pods", "a", `,"x":2`), object("pods", "b", `,"x":1`))},
			`runs without faults end differently:
  pod a: x is 2, should be 1`, `
  fields:
  - "pods/a: x"`},
		"a field of several": {[]*observation{run(1, object("pods", "a", `,"x":1`), object("pods", "b", `,"x":1`)), run(1, object("pods", "a", `,"x":2`), object("pods", "b", `,"x":1`)),
			run(1, object("pods", "a", `,"x":1`), object("pods", "b", `,"x":2`))},
			`runs without faults end differently:
  pod a: x is 2, should be 1
  pod b: x is 2, should be 1`, `
  fields:
  - "pods: x"`},
		"writes": {[]*observation{run(1), run(3)},
			`in runs without faults, objects come and go a different number of times:
  added pods web-*: 1 to 3 times`, `
  writes:
  - "added pods web-*"`},
		"an object that is missing": {[]*observation{run(1, object("pods", "a", "")), run(1)},
			`runs without faults end differently:
  pod a is missing`, ""},
		"names that have something in common": {[]*observation{run(1, object("pods", "job-a-x1", ""), object("pods", "job-b-x2", "")), run(1, object("pods", "job-a-y3", ""), object("pods", "job-b-y4", ""))},
			`runs without faults end differently:
  pod job-a-x1 is missing
  pod job-b-x2 is missing
  pod job-a-y3 should not exist
  pod job-b-y4 should not exist`, `
  names:
  - "pods: job-a-*"
  - "pods: job-b-*"`},
		"all": {[]*observation{run(1, object("configmaps", "lock-7", ""), object("pods", "a", `,"x":1`)), run(3, object("configmaps", "lock-8", ""), object("pods", "a", `,"x":2`)),
			run(3, object("configmaps", "lock-9", ""), object("pods", "a", `,"x":3`))},
			`runs without faults end differently:
  configmap lock-7 is missing
  pod a: x is 2, should be 1
  configmap lock-8 should not exist
  configmap lock-9 should not exist
in runs without faults, objects come and go a different number of times:
  added pods web-*: 1 to 3 times`, `
  fields:
  - "pods: x"
  names:
  - "configmaps: lock-*"
  writes:
  - "added pods web-*"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := baselineOf(t, &Scenario{}, c.runs...)
			want := c.says
			if c.block != "" {
				want += "\nIf that may be, put this into the scenario:\nmayDiffer:" + c.block
				_, err := read(t, "resources: [pods]\nconverged: [{rule: 'true'}]\nmayDiffer:"+c.block)
				require.NoError(t, err, "the scenario takes it")
			}
			require.EqualError(t, err, want)
		})
	}
	withWrites := func(n int) *observation {
		o := run(n)
		o.effects.Changes["deleted deployments b"] = n
		o.effects.Did = map[string]int{"create pods web-*": n, "create pods other": n, "patch pods web-*": n, "delete deployments.apps b": n, "delete deployments.apps/status b": n}
		return o
	}
	_, err := baselineOf(t, &Scenario{}, withWrites(1), withWrites(2))
	require.ErrorContains(t, err, `
  writes:
  - "added pods web-*"
  - "create pods web-*"
  - "deleted deployments b"
  - "delete deployments.apps b"`, "the writes that belong to them")
	_, err = baselineOf(t, &Scenario{MayDiffer: MayDiffer{Writes: []string{"added pods web-*"}}}, run(1), run(3))
	require.NoError(t, err)
	renamed := func(name string) *observation {
		return &observation{end: []string{object("configmaps", name, "")}, effects: oracle.Effects{Changes: map[string]int{"added configmaps " + name: 1}}}
	}
	_, err = baselineOf(t, &Scenario{}, renamed("lock-7"), renamed("lock-8"))
	require.NotContains(t, err.Error(), "come and go", "it has another name")
}

// With --parallel 1 there is one run at a time, those that kill the control plane included.
func TestQueues(t *testing.T) {
	crash := Plan{Faults: []apiproxy.Fault{{Effect: apiproxy.Effect{Crash: apiproxy.After}}}}
	plans := []Plan{NoFault, crash, NoFault}
	s := &subject{scenario: &Scenario{}}
	require.Equal(t, [][]Plan{{NoFault, NoFault}, {crash}}, s.queues(Options{Scenario: s.scenario, Parallel: 2}, plans))
	require.Equal(t, [][]Plan{plans}, s.queues(Options{Scenario: s.scenario, Parallel: 1}, plans))
	s.scenario.Scope = "cluster"
	require.Equal(t, [][]Plan{plans, nil}, s.queues(Options{Scenario: s.scenario, Parallel: 2}, plans), "each has a control plane of its own")
}

// runSilent is a run of a program that sends no requests. request sends one in its place.
func runSilent(t *testing.T) (r *run, p *program, request func() error) {
	upstream := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(upstream.Close)
	proxy, err := apiproxy.Start(t.Context(), apiproxy.Options{Upstream: &rest.Config{Host: upstream.URL}, Record: func(history.Record) {}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Stop()) })
	client, err := rest.HTTPClientFor(proxy.Config())
	require.NoError(t, err)
	p = &program{instance: instance{name: "controller"}, process: &process{command: []string{"/bin/sleep", "1000"}}, proxy: proxy}
	require.NoError(t, p.start())
	t.Cleanup(p.kill)
	r = recorded(&Scenario{})
	r.programs = []*program{p}
	return r, p, func() error {
		response, err := client.Get(proxy.URL() + "/version")
		if err != nil {
			return err
		}
		return response.Body.Close()
	}
}

// A program that never sends a request uses another kubeconfig. One that did, and does not after it was killed, is broken.
func TestAProgramThatIsSilent(t *testing.T) {
	r, p, request := runSilent(t)
	startedBefore := func(d time.Duration) {
		r.noteStart(p)
		p.contact.at = time.Now().Add(-d)
	}
	startedBefore(time.Second)
	require.NoError(t, r.checkContact(silenceLimit))
	startedBefore(time.Hour)
	var silent *SilentError
	require.ErrorAs(t, r.checkContact(silenceLimit), &silent)
	require.ErrorAs(t, r.checkContact(0), &silent)

	require.NoError(t, request())
	require.Positive(t, r.arrived(p))
	startedBefore(time.Second)
	require.NoError(t, r.checkContact(silenceLimit))
	require.NoError(t, r.checkContact(0), "it has just been started")
	startedBefore(time.Hour)
	var failure *Failure
	require.ErrorAs(t, r.checkContact(silenceLimit), &failure)
	require.Equal(t, Lost, failure.Verdict)
	require.Contains(t, failure.Message, "after it was started again, the program controller has not sent any request")
}

// The next step waits for a program that was started again: until it has sent its first request.
func TestAwaitsProgramsThatWereStartedAgain(t *testing.T) {
	r, p, request := runSilent(t)
	r.noteStart(p)
	sent := make(chan error, 1)
	time.AfterFunc(100*time.Millisecond, func() { sent <- request() })
	require.NoError(t, r.awaitRestarts(t.Context()))
	require.Positive(t, r.arrived(p))
	require.NoError(t, <-sent)

	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	r.noteStart(p)
	time.AfterFunc(100*time.Millisecond, func() { cancel(interrupted) })
	require.ErrorIs(t, r.awaitRestarts(ctx), interrupted)
	p.kill()
	require.NoError(t, r.awaitRestarts(t.Context()), "it is down, and a step is to start it")
}

// The steps of the setup come before there are programs.
func TestAStepBeforeTheProgramsRun(t *testing.T) {
	r := recorded(&Scenario{})
	r.programs = nil
	_, err := r.tryAction(t.Context(), Action{Pause: metav1.Duration{Duration: time.Millisecond}}, nil)
	require.NoError(t, err)
}

// A step may name an instance that there is not.
func TestAStepForAnInstanceThatIsNotThere(t *testing.T) {
	r := recorded(&Scenario{})
	r.programs[0].instance = instance{name: "controller-1", program: "controller"}
	for _, action := range []Action{{Kill: "controller-3"}, {Stop: "controller-3"}, {Start: "controller-3"}} {
		_, err := r.tryAction(t.Context(), action, nil)
		require.EqualError(t, err, `there is no program "controller-3" in this run; there is controller-1`)
	}
}

// settled is a run whose controller has sent these requests, and has nothing left to do.
func settled(t *testing.T, scenario *Scenario, requests ...history.Request) *run {
	return settledOn(t, dynamicfake.NewSimpleDynamicClient(scheme.Scheme), nil, scenario, requests...)
}

// fakeCluster is a cluster whose watches end with the test.
func fakeCluster(t *testing.T) *dynamicfake.FakeDynamicClient {
	cluster := dynamicfake.NewSimpleDynamicClient(scheme.Scheme)
	cluster.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		watcher, err := cluster.Tracker().Watch(action.GetResource(), action.GetNamespace())
		context.AfterFunc(t.Context(), watcher.Stop) // which the fake does not do
		return true, watcher, err
	})
	return cluster
}

// fakePod is a Pod of such a cluster. Without a resourceVersion, nobody would see it go.
func fakePod(name, resourceVersion string) *unstructured.Unstructured {
	pod := &unstructured.Unstructured{}
	pod.SetAPIVersion("v1")
	pod.SetKind("Pod")
	pod.SetName(name)
	pod.SetResourceVersion(resourceVersion)
	return pod
}

// settledOn is settled, on a cluster of the test's, whose resources it watches.
func settledOn(t *testing.T, client dynamic.Interface, resources []schema.GroupVersionResource, scenario *Scenario, requests ...history.Request) *run {
	r := recorded(scenario, requests...)
	require.NoError(t, r.compile())
	r.active.Store(1)
	var err error
	r.states, err = oracle.Watch(t.Context(), client, r.scope(), resources)
	require.NoError(t, err)
	t.Cleanup(r.states.Stop)
	return r
}

// A retry that comes in the quiet time, as late as Retry-After asked for, begins it again. Any other write shows that the
// controller does not come to rest.
func TestTheQuietTimeBeginsAgainForAWriteThatIsOwed(t *testing.T) {
	for name, want := range map[string]int{"a": 0, "another": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const quiet = 2 * time.Second
				failed := history.Request{Start: time.Now(), Verb: "patch", Resource: "pods", Name: "a", Status: http.StatusTooManyRequests}
				r := settled(t, &Scenario{Quiet: metav1.Duration{Duration: quiet}, Patience: metav1.Duration{Duration: time.Minute}}, injected(failed, refusal))
				var written time.Time
				time.AfterFunc(time.Second, func() {
					written = time.Now()
					r.recording.Record(history.Record{Request: &history.Request{ID: 2, Start: written, Verb: "patch", Resource: "pods", Name: name, Status: http.StatusOK}})
				})
				rest, err := r.awaitRest(t.Context())
				require.NoError(t, err)
				require.Len(t, rest.writes, want)
				if want == 0 {
					require.GreaterOrEqual(t, time.Since(written), quiet)
				}
			})
		})
	}
}

// A backoff may be longer than the quiet time. While a write is owed and the end is another one, it is waited for, but not beyond patience.
func TestAnOwedWriteIsWaitedFor(t *testing.T) {
	const quiet, patience, backoff = 2 * time.Second, 20 * time.Second, 9 * time.Second
	for name, c := range map[string]struct {
		end    []string
		status int
		wants  time.Duration // at least
		atMost time.Duration
	}{
		"the end is another one":          {[]string{"pods {}"}, http.StatusTooManyRequests, backoff, patience},
		"the end is that of the baseline": {nil, http.StatusTooManyRequests, quiet, backoff},
		"it was refused for good":         {[]string{"pods {}"}, http.StatusForbidden, quiet, backoff},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				failed := history.Request{Start: time.Now(), Verb: "patch", Resource: "pods", Name: "a", Status: c.status}
				r := settled(t, &Scenario{Quiet: metav1.Duration{Duration: quiet}, Patience: metav1.Duration{Duration: patience}}, failed)
				if r.end = c.end; c.end == nil {
					r.end = []string{}
				}
				timer := time.AfterFunc(backoff, func() {
					r.end = []string{} // what it writes makes the end the right one
					r.recording.Record(history.Record{Request: &history.Request{ID: 2, Start: time.Now(), Verb: "patch", Resource: "pods", Name: "a", Status: http.StatusOK}})
				})
				defer timer.Stop()
				begin := time.Now()
				rest, err := r.awaitRest(t.Context())
				require.NoError(t, err)
				require.Empty(t, rest.writes)
				require.GreaterOrEqual(t, time.Since(begin), c.wants)
				require.Less(t, time.Since(begin), c.atMost)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // it never comes
		failed := history.Request{Start: time.Now(), Verb: "patch", Resource: "pods", Name: "a", Status: http.StatusConflict}
		r := settled(t, &Scenario{Quiet: metav1.Duration{Duration: quiet}, Patience: metav1.Duration{Duration: patience}}, failed)
		r.end = []string{"pods {}"}
		begin := time.Now()
		_, err := r.awaitRest(t.Context())
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(begin), patience)
		require.Less(t, time.Since(begin), patience+3*quiet)
	})
}

// A program that got no processor may write late, which begins the quiet time again. If it writes again and again, it does not
// come to rest on any machine.
func TestTheQuietTimeBeginsAgainForAProgramWithoutAProcessor(t *testing.T) {
	for name, c := range map[string]struct {
		starved time.Duration
		writes  int
		isBusy  bool
	}{
		"a late write":       {starved: 100 * time.Millisecond, writes: 1, isBusy: false},
		"many writes":        {starved: 100 * time.Millisecond, writes: 10, isBusy: true},
		"it had a processor": {writes: 1, isBusy: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				r := settled(t, &Scenario{Quiet: metav1.Duration{Duration: 2 * time.Second}, Patience: metav1.Duration{Duration: time.Minute}})
				r.stalls = &stalls{starved: []stall{{begin, begin.Add(c.starved)}}}
				var writes sync.WaitGroup
				defer writes.Wait()
				writes.Go(func() {
					for i := range c.writes {
						time.Sleep(1500 * time.Millisecond)
						r.recording.Record(history.Record{Request: &history.Request{ID: int64(i + 2), Start: time.Now(), Verb: "patch", Resource: "pods", Name: "a", Status: http.StatusOK}})
					}
				})
				rest, err := r.awaitRest(t.Context())
				require.NoError(t, err)
				require.Equal(t, c.isBusy, rest.isBusy(), "%v", rest.writes)
			})
		})
	}
}

// A controller that looks at something again and again meets faults at rest, too. After that it is stopped, and could not recover.
func TestNoFaultComesAfterTheQuietTime(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()
	r := settled(t, &Scenario{Patience: metav1.Duration{Duration: time.Minute}, Quiet: metav1.Duration{Duration: 200 * time.Millisecond}})
	r.armed = arm(Plan{Faults: []apiproxy.Fault{{Effect: apiproxy.Effect{Refuse: http.StatusServiceUnavailable}}}})
	proxy, err := apiproxy.Start(t.Context(), apiproxy.Options{Upstream: &rest.Config{Host: upstream.URL}, Armed: faultsOf(r.armed, instance{})})
	require.NoError(t, err)
	defer proxy.Stop()
	client, err := rest.HTTPClientFor(proxy.Config())
	require.NoError(t, err)
	get := func() int {
		response, err := client.Get(proxy.URL() + "/api/v1/namespaces/shop/pods/a")
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode
	}
	require.Equal(t, http.StatusServiceUnavailable, get())
	polls, isOver := make(chan struct{}), make(chan struct{})
	go func() { // it writes whenever it was refused
		defer close(polls)
		for id := int64(1); ; id += 2 {
			select {
			case <-isOver:
				return
			case <-time.After(20 * time.Millisecond):
			}
			poll := history.Request{ID: id, Start: time.Now(), Verb: "get", Resource: "pods", Name: "a", Status: get()}
			if poll.Status != http.StatusOK {
				poll.Injected = []history.Injection{refusal}
				r.recording.Record(history.Record{Request: &history.Request{ID: id + 1, Start: time.Now(), Verb: "patch", Resource: "pods", Name: "a", Status: http.StatusOK}})
			}
			r.recording.Record(history.Record{Request: &poll})
		}
	}()
	rest, err := r.awaitRest(t.Context())
	close(isOver)
	<-polls
	require.NoError(t, err)
	require.Empty(t, rest.writes)
	require.Equal(t, http.StatusOK, get())
}
