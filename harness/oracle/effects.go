package oracle

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"example.com/controllers/harness/history"
)

// Effects is what the writes of a controller came to in one run. The keys of its maps name a kind of write, with "*"
// in place of what was generated: "delete pods frontend-*".
type Effects struct {
	// Did counts the writes that changed something.
	Did map[string]int
	// Unknown counts the writes of which the recording does not say whether they were carried out.
	Unknown map[string]int
	// Changes counts how often objects were created and deleted, by whomever: see [States.Counts]. It is nil if that
	// is not known.
	Changes map[string]int
	// Needless are the writes that could not change anything: no-ops, and writes to an object that was gone or had
	// changed since, as the API server itself answered. Repeated conflicts at the same version of an object are one, up
	// to mostConflicts.
	Needless []Needless
	// Disturbed counts the requests that failed, the watches that were tampered with, and the requests at which a program
	// was stopped, was frozen or lost its machine. For each of them there may be one needless write of each kind. A
	// request that was only slow does not count.
	Disturbed int
	// Attempts counts the writes to each object, by "delete pods frontend-x".
	Attempts map[string]int
}

// Needless is a write that could not change anything.
type Needless struct {
	What string // as in Effects.Did
	// Why is what the API server answered: "it was being deleted already".
	Why string
	// Stale is how the controller's cache was behind, if the recording shows it, or "".
	Stale string
}

// mostConflicts is how often a write may be refused at the same version of an object, until each further conflict is a
// needless write of its own. While its cache is five seconds behind, a controller with client-go's default backoff tries
// about ten times, and five times as often with RetryOnConflict. One that tries more often does not back off.
const mostConflicts = 100

// EffectsOf counts the writes in a recording. Events and Leases are left out unless they are among resources. class
// names objects, see [States.Classes].
func EffectsOf(h *history.History, scope Scope, resources []string, class func(resource, name string) string) Effects {
	e := Effects{Did: map[string]int{}, Unknown: map[string]int{}, Attempts: map[string]int{}}
	deleted := map[string]bool{}  // UIDs
	conflicts := map[string]int{} // by attempt and resourceVersion
	for _, r := range h.Requests {
		if isDisturbed(r) {
			e.Disturbed++
		}
		if !r.IsWrite() || (r.Resource == "events" || r.Resource == "leases") && !slices.Contains(resources, r.Resource) {
			continue
		}
		name := r.Name
		if name != "" {
			name = scope.qualify(r.Namespace, name)
		}
		what := withoutNamespace(strings.TrimRight(fmt.Sprintf("%s %s %s", r.Verb, r.What(), class(r.Resource, name)), " "), scope.Namespace)
		attempt := fmt.Sprintf("%s %s %s", r.Verb, r.What(), name)
		if r.Name != "" || r.Verb != "create" { // a create that was refused names no object
			e.Attempts[attempt]++
		}
		isDone := r.Status >= http.StatusOK && r.Status < http.StatusMultipleChoices
		// An answer that broke off before it reached the recorder does not say whether anything changed.
		isUnknown := r.Status == 0 || isDone && r.Error != "" && r.RVAfter == ""
		isRefused := (!r.IsDisturbed() || r.IsOnlySlow()) && r.Error == "" && r.Status >= http.StatusBadRequest &&
			r.Status < http.StatusInternalServerError && r.Status != http.StatusTooManyRequests
		isConflict := isRefused && r.Status == http.StatusConflict && r.RVBefore != ""
		conflict := attempt + " at " + r.RVBefore
		if isConflict {
			conflicts[conflict]++
		}
		isRepeated := isDone && r.Verb == "delete" && r.UID != "" && deleted[r.UID]
		switch {
		case isUnknown:
			e.Unknown[what]++
		case isDone && !r.NoOp && !isRepeated:
			e.Did[what]++
			if r.Verb == "delete" {
				deleted[r.UID] = true
			}
		case isConflict && conflicts[conflict] > 1 && conflicts[conflict] <= mostConflicts: // its cache has not caught up yet
		case isDone || isRefused:
			e.Needless = append(e.Needless, Needless{What: what, Why: whyNeedless(r, isRepeated), Stale: staleness(h, r)})
		}
	}
	return e
}

// isDisturbed reports whether a request failed through no fault of the controller, is a watch that was tampered with, or
// is one at which a program was interrupted.
func isDisturbed(r history.Request) bool {
	isInjected := r.IsDisturbed() && !r.IsOnlySlow() && (r.Verb == "watch" || r.Status >= http.StatusBadRequest)
	return isInjected || slices.ContainsFunc(r.Injected, isInterruption) || r.Error != "" || r.Status >= http.StatusInternalServerError || r.Status == http.StatusTooManyRequests
}

// isInterruption reports whether an injection keeps a program from running, although the request itself may succeed. What
// the program had prepared to write may be outdated when it is thawed, and one that is started again checks every object.
func isInterruption(i history.Injection) bool {
	switch i.Kind {
	case history.ControllerStopped, history.ControllerFrozen, history.MachineRebooted, history.PowerCut:
		return i.Skipped == ""
	}
	return false
}

func whyNeedless(r history.Request, isRepeated bool) string {
	switch {
	case isRepeated:
		return "it was being deleted already"
	case r.Status == http.StatusNotFound:
		return "it did not exist any more"
	case r.Status == http.StatusConflict && r.Verb == "create":
		return "it existed already"
	case r.Status == http.StatusConflict:
		return "it had changed since it was read"
	case r.NoOp && r.Verb == "delete":
		return "it was being deleted already"
	case r.NoOp:
		return "it changed nothing"
	}
	return fmt.Sprintf("the answer was %d", r.Status)
}

// staleness says how the controller's cache was behind when it sent a request: which event of that object reached the
// controller only after it. It is "" if the recording does not show any.
func staleness(h *history.History, r history.Request) string {
	for _, e := range h.Events {
		if e.Resource != r.Resource || e.Name != r.Name || e.Namespace != r.Namespace || e.Type == "BOOKMARK" || !e.Time.After(r.Start) {
			continue
		}
		// Only an event of what had happened before is late.
		if !older(e.ResourceVersion, r) {
			continue
		}
		return fmt.Sprintf("the %s event of it reached the controller only later", e.Type)
	}
	return ""
}

// older reports whether the change with this resourceVersion came before the request. Before a request that changed
// nothing, the object had the version in its answer; after one that failed, there is none, and the first later event
// is taken for the one that the controller had not seen.
func older(version string, r history.Request) bool {
	if r.RVAfter == "" {
		return true
	}
	return version == r.RVAfter || version == r.RVBefore
}

// Range is how often something happened in runs without faults.
type Range struct{ Min, Max int }

func (r Range) String() string {
	if r.Min == r.Max {
		return fmt.Sprint(r.Min)
	}
	return fmt.Sprintf("%d to %d", r.Min, r.Max)
}

// Expected is what the writes of a controller come to in runs without faults. Its zero value has not seen any.
type Expected struct {
	Did, Changes map[string]Range
	Needless     int // the most in one run
	runs         int
	changeRuns   int // those of which Changes is known
}

// Clone returns a copy that does not share anything.
func (e Expected) Clone() Expected {
	e.Did, e.Changes = maps.Clone(e.Did), maps.Clone(e.Changes)
	return e
}

// Add adds what a run came to. It reports whether that was news: another count than in the runs before.
func (e *Expected) Add(run Effects) (news bool) {
	if e.runs == 0 {
		e.Did, e.Changes = map[string]Range{}, map[string]Range{}
	}
	news = widen(e.Did, run.Did, e.runs)
	if run.Changes != nil { // what is not known is not nothing
		news = widen(e.Changes, run.Changes, e.changeRuns) || news
		e.changeRuns++
	}
	news = news || e.runs == 0 || len(run.Needless) > e.Needless
	e.Needless = max(e.Needless, len(run.Needless))
	e.runs++
	return news
}

// widen adds the counts of a run to those of so many before. It reports whether that was news.
func widen(expected map[string]Range, run map[string]int, runs int) (news bool) {
	for what, n := range run {
		if _, ok := expected[what]; !ok && runs > 0 {
			expected[what] = Range{} // it did not happen in the runs before
		} else if !ok {
			expected[what] = Range{n, n}
		}
	}
	for what, r := range expected {
		wider := Range{min(r.Min, run[what]), max(r.Max, run[what])}
		news = news || wider != r
		expected[what] = wider
	}
	return news
}

// Uneven returns the creations and deletions whose number differs between runs without faults, sorted, but for those
// that begin as one of mayDiffer. Nothing can be said of a controller whose objects come and go at random.
func (e *Expected) Uneven(mayDiffer []string) []string {
	var uneven []string
	for _, what := range sorted(e.Changes) {
		if r := e.Changes[what]; r.Min != r.Max && !MayDiffer(what, mayDiffer) {
			uneven = append(uneven, what)
		}
	}
	return uneven
}

// Deviation is a number of writes that is not as in runs without faults.
type Deviation struct {
	What string // as in Effects.Did or Changes, or "needless"
	// More says that there were more than expected, not fewer.
	More bool
	// Tolerable says that fewer writes of this kind may be right: updates coalesce, and what matters is where they end.
	Tolerable bool
	// Message says what happened.
	Message string
}

// Deviations returns in what the writes of a run deviate from the expected, creations and deletions first. Kinds of
// writes that begin as one of mayDiffer are left out; "needless" among them leaves out the needless ones.
//
// A write other than a create or delete may come once more for each request that was disturbed or slow, as the controller
// may have read the object in a state that it otherwise does not see; a write of a status twice, as the status may say what has failed, and then
// that it no longer does. A needless write of each kind may come once more for
// each request that was disturbed, see [Effects.Disturbed].
func (e *Expected) Deviations(run Effects, injected int, mayDiffer []string) []Deviation {
	var all []Deviation
	if run.Changes != nil && e.changeRuns > 0 {
		all = deviations(e.Changes, run.Changes, nil, 0, mayDiffer)
	}
	if len(all) == 0 {
		for _, d := range deviations(e.Did, run.Did, run.Unknown, max(injected, run.Disturbed), mayDiffer) {
			d.Tolerable = !d.More
			all = append(all, d)
		}
	}
	if unexplained := run.unexplained(); len(unexplained) > e.Needless && !MayDiffer("needless", mayDiffer) {
		all = append(all, Deviation{What: "needless " + unexplained[0].What, More: true, Message: needlessMessage(run.Needless, e.Needless, run.Disturbed)})
	}
	return all
}

// unexplained returns the needless writes that disturbances do not explain. After each disturbance, a controller may make
// one needless write of each kind: one that was restarted, or has listed again, may apply every object once more.
func (e Effects) unexplained() (rest []Needless) {
	counts := map[string]int{}
	for _, n := range e.Needless {
		if counts[n.What]++; counts[n.What] > e.Disturbed {
			rest = append(rest, n)
		}
	}
	return rest
}

// deviations compares counts. unknown may have to be added to got, and each update may have happened slack times more.
func deviations(want map[string]Range, got, unknown map[string]int, slack int, mayDiffer []string) []Deviation {
	names := map[string]bool{}
	for name := range want {
		names[name] = true
	}
	for name := range got {
		names[name] = true
	}
	var all []Deviation
	for _, name := range sorted(names) {
		if MayDiffer(name, mayDiffer) {
			continue
		}
		slack := slack
		switch _, what, _ := strings.Cut(name, " "); {
		case strings.HasPrefix(name, "create "), strings.HasPrefix(name, "delete"):
			slack = 0
		case strings.HasSuffix(strings.SplitN(what, " ", 2)[0], "/status"):
			slack *= 2 // it may say what failed, and then that it no longer does
		}
		w, g := want[name], got[name]
		if g > w.Max+slack || g+unknown[name] < w.Min {
			all = append(all, Deviation{What: name, More: g > w.Max, Message: fmt.Sprintf("%s: %s, should be %s", name, times(g), w)})
		}
	}
	return all
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// needlessMessage says which writes were needless, by kind and reason.
func needlessMessage(all []Needless, expected, disturbed int) string {
	counts := map[Needless]int{}
	var order []Needless
	for _, n := range all {
		if counts[n] == 0 {
			order = append(order, n)
		}
		counts[n]++
	}
	var parts []string
	for _, n := range order {
		part := fmt.Sprintf("%s: %s, although %s", n.What, times(counts[n]), n.Why)
		if n.Stale != "" {
			part += " (its cache was stale: " + n.Stale + ")"
		}
		parts = append(parts, part)
	}
	return fmt.Sprintf("%s; without faults there are %d such writes, and %d requests were disturbed", strings.Join(parts, "; "), expected, disturbed)
}

// MayDiffer reports whether a kind of write begins as one of these.
func MayDiffer(what string, beginnings []string) bool {
	return slices.ContainsFunc(beginnings, func(beginning string) bool { return strings.HasPrefix(what, beginning) })
}
