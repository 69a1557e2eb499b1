package view

import (
	"cmp"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.com/controllers/harness/history"
)

// Of returns the model of a recording, or of several of the same time on the same machine.
func Of(title string, recordings ...*history.History) *Model {
	h, seen := merge(recordings)
	b := &builder{model: &Model{Title: title, Programs: []string{}, Lanes: []Lane{}, Marks: []Mark{}, Events: []Event{}, Missing: []string{}},
		lanes: map[laneKey]int{}, programs: map[string]int{}, marks: map[int64]int{}}
	b.begin(h)
	b.requests(h)
	b.processes(h)
	b.events(h, seen)
	b.sortLanes()
	b.families()
	b.truth()
	b.told()
	b.causes()
	b.besides(h)
	return b.model
}

// laneKey identifies a lane.
type laneKey struct{ resource, name string }

// builder makes a model.
type builder struct {
	model    *Model
	start    time.Time
	lanes    map[laneKey]int
	programs map[string]int
	marks    map[int64]int // by the ID of the request
	process  []int         // by mark: a number of the process that sent the request, as far as that is known
	numbers  map[int]int   // by process: its number among those of its program; 0 for the only one
	many     map[int]bool  // by program: it has too many processes to number them
	heardBy  []int         // by event: the mark of its watch
	knew     map[hears][]Span
	watches  []watch
	news     []news // bookmarks and lists, sorted by time
	sights   [][]sight
	initial  []initialEvents
}

// initialEvents are the events with which a watch began that was asked for all objects there are.
type initialEvents struct {
	watch watch
	lanes map[int]bool // of the objects
	at    float64      // when the watch had told of all of them
	rv    string
}

// watch is a watch of a program.
type watch struct {
	mark     int
	program  int
	resource string
	// all says that the watch selects all objects of its resource, or of one namespace.
	all       bool
	namespace string
	name      string // if it is of one object
}

// news tell a program that it has been told everything up to a version.
type news struct {
	watch watch // or the list, as if it were one
	at    float64
	rv    uint64
}

func (b *builder) ms(t time.Time) float64 {
	return math.Round(float64(t.Round(0).Sub(b.start))/float64(time.Microsecond)) / 1000
}

// begin finds the first and the last moment, and the names of the programs.
func (b *builder) begin(h *history.History) {
	var last time.Time
	see := func(from, to time.Time) {
		if from = from.Round(0); b.start.IsZero() || from.Before(b.start) {
			b.start = from
		}
		if to = to.Round(0); to.After(last) {
			last = to
		}
	}
	names := map[string]bool{}
	for _, r := range h.Requests {
		see(r.Start, r.End())
		names[programOf(r)] = true
	}
	for _, e := range h.Events {
		see(came(e), e.Time)
	}
	for _, e := range h.Seen {
		see(e.Time, e.Time)
	}
	for _, s := range h.Steps {
		see(s.Time, s.Time)
	}
	alone := len(names) == 1
	name := func(program string) {
		if program != "" || !alone {
			names[cmp.Or(program, unnamed)] = true
		}
	}
	for _, p := range h.Processes {
		see(p.Time, p.Time)
		name(p.Program)
	}
	for _, s := range h.Samples {
		see(s.Time, s.Time)
		name(s.Program)
	}
	b.model.Start = b.start
	if !last.IsZero() {
		b.model.End = b.ms(last)
	}
	b.model.Programs = append(b.model.Programs, slices.Sorted(maps.Keys(names))...)
	for i, name := range b.model.Programs {
		b.programs[name] = i
	}
}

// programOf returns the name of the program that sent a request: as recorded, or else from its User-Agent, or else its user.
func programOf(r history.Request) string {
	return cmp.Or(r.Program, r.ShortAgent(), r.Who, "unknown")
}

// came is when an event came from the API server.
func came(e history.Event) time.Time {
	if e.Came.IsZero() {
		return e.Time
	}
	return e.Came
}

// lane returns the lane with a key, which it makes if need be.
func (b *builder) lane(key laneKey) int {
	i, ok := b.lanes[key]
	if !ok {
		i = len(b.model.Lanes)
		b.lanes[key] = i
		b.model.Lanes = append(b.model.Lanes, Lane{Resource: key.resource, Name: key.name})
	}
	return i
}

func laneOf(r history.Request) laneKey {
	if r.Resource == "" {
		return laneKey{}
	}
	parent := r
	parent.Subresource = ""
	switch {
	case r.Verb == "list" || r.Verb == "watch" || r.Verb == "deletecollection" || r.Name == "":
		return laneKey{resource: parent.What()}
	default:
		return laneKey{parent.What(), r.Object()}
	}
}

// requests makes the marks, and finds the watches and lists among them.
func (b *builder) requests(h *history.History) {
	for i, r := range h.Requests {
		b.marks[r.ID] = i
		program := b.programs[programOf(r)]
		m := Mark{
			ID: r.ID, Lane: b.lane(laneOf(r)), Program: program, Start: b.ms(r.Start), End: b.ms(r.End()), Verb: r.Verb, What: r.What(),
			Outcome: outcome(r), Status: r.Status, Error: r.Error, Fault: r.Injections(), URI: r.URI, Who: r.Who, Sent: r.Sent,
			Received: r.Received, RVBefore: r.RVBefore, RVAfter: r.RVAfter,
		}
		if m.Outcome == StillOpen {
			m.End = b.model.End
		}
		b.model.Marks = append(b.model.Marks, m)
		w := watch{mark: i, program: program, resource: b.model.Lanes[m.Lane].Resource, namespace: r.Namespace, name: r.Name,
			all: !strings.Contains(r.URI, "labelSelector=") && !strings.Contains(r.URI, "fieldSelector=")}
		if r.Group == "" && r.Resource == "namespaces" {
			w.namespace = ""
		}
		switch {
		case r.Verb == "watch":
			b.watches = append(b.watches, w)
		case r.Verb == "list" && m.Outcome == Read:
			if rv, ok := number(r.RVAfter); ok {
				b.news = append(b.news, news{w, m.End, rv})
			}
		}
	}
}

func outcome(r history.Request) Outcome {
	switch {
	case r.Verb == "watch" && r.Open:
		return StillOpen
	case r.Verb == "watch" && r.Status < http.StatusBadRequest && r.Status != 0:
		return Read // however it ended: a watch always ends
	case r.GaveUp:
		return GaveUp
	case r.Status == 0 || r.Error != "" && r.Status < http.StatusBadRequest:
		return Lost
	case r.Status == http.StatusConflict:
		return Conflict
	case r.Status == http.StatusNotFound:
		return NotFound
	case r.Status >= http.StatusBadRequest:
		return Refused
	case r.NoOp || r.DryRun && isWriteVerb(r.Verb):
		return NoOp
	case r.IsWrite():
		return Wrote
	}
	return Read
}

func isWriteVerb(verb string) bool {
	return verb != "get" && verb != "list" && verb != "watch"
}

// events makes the events; bookmarks become news.
// What is only seen tells no program anything.
func (b *builder) events(h *history.History, seen []history.Event) {
	watches := map[int64]watch{}
	for _, w := range b.watches {
		watches[b.model.Marks[w.mark].ID] = w
	}
	orphans := 0
	initial := map[int64]*initialEvents{} // by request, until it has told of all objects
	for id, w := range watches {
		if uri := b.model.Marks[w.mark].URI; w.all && strings.Contains(uri, "sendInitialEvents=true") {
			initial[id] = &initialEvents{watch: w, lanes: map[int]bool{}}
		}
	}
	for _, e := range h.Events {
		w, ok := watches[e.Request]
		if !ok {
			orphans++
			continue
		}
		if e.Type == "BOOKMARK" {
			if all := initial[e.Request]; all != nil {
				all.at, all.rv = b.ms(e.Time), e.ResourceVersion
				b.initial = append(b.initial, *all)
				delete(initial, e.Request)
			}
			if rv, ok := number(e.ResourceVersion); ok {
				b.news = append(b.news, news{w, b.ms(e.Time), rv})
			}
			continue
		}
		key := laneKey{resource: w.resource}
		if e.Type != "ERROR" {
			key.name = strings.Trim(e.Namespace+"/"+e.Name, "/")
		}
		b.model.Events = append(b.model.Events, Event{
			Lane: b.lane(key), Program: w.program, Came: b.ms(came(e)), Told: b.ms(e.Time), Type: e.Type, Version: -1, Bytes: e.Bytes,
		})
		b.heardBy = append(b.heardBy, w.mark)
		if all := initial[e.Request]; all != nil {
			all.lanes[b.model.Events[len(b.model.Events)-1].Lane] = true
		}
		if n := len(b.model.Events) - 1; e.Type != "ERROR" {
			b.sight(b.model.Events[n].Lane, sight{
				text: e.ResourceVersion, uid: e.UID, at: b.model.Events[n].Came, mark: -1, gone: e.Type == "DELETED", changed: e.Changed, event: n,
			})
		}
	}
	for i, e := range slices.Concat(seen, h.Seen) {
		if e.Type != "BOOKMARK" && e.Type != "ERROR" {
			resource := history.Request{Group: e.Group, Resource: e.Resource}.What()
			lane := b.lane(laneKey{resource, strings.Trim(e.Namespace+"/"+e.Name, "/")})
			b.sight(lane, sight{text: e.ResourceVersion, uid: e.UID, at: b.ms(came(e)), mark: -1, gone: e.Type == "DELETED", changed: e.Changed, event: -1, ours: i >= len(seen)})
		}
	}
	if orphans > 0 {
		b.model.Missing = append(b.model.Missing, plural(orphans, "event", "events")+" of watches that are not in the recording.")
	}
	slices.SortStableFunc(b.news, func(x, y news) int { return cmp.Compare(x.at, y.at) })
}

// sortLanes sorts the lanes, and corrects what refers to them.
func (b *builder) sortLanes() {
	order := make([]int, len(b.model.Lanes))
	for i := range order {
		order[i] = i
	}
	lanes := b.model.Lanes
	slices.SortStableFunc(order, func(i, j int) int {
		return cmp.Or(cmp.Compare(lanes[i].Resource, lanes[j].Resource), compareNames(lanes[i].Name, lanes[j].Name))
	})
	sorted, at, sights := make([]Lane, len(lanes)), make([]int, len(lanes)), make([][]sight, len(lanes))
	for to, from := range order {
		sorted[to], at[from] = lanes[from], to
		if from < len(b.sights) {
			sights[to] = b.sights[from]
		}
		b.lanes[laneKey{lanes[from].Resource, lanes[from].Name}] = to
	}
	b.model.Lanes, b.sights = sorted, sights
	for i := range b.model.Marks {
		b.model.Marks[i].Lane = at[b.model.Marks[i].Lane]
	}
	for i := range b.model.Events {
		b.model.Events[i].Lane = at[b.model.Events[i].Lane]
	}
	for i, all := range b.initial {
		b.initial[i].lanes = map[int]bool{}
		for lane := range all.lanes {
			b.initial[i].lanes[at[lane]] = true
		}
	}
}
