package oracle

import (
	"fmt"
	"net/http"
	"strings"

	"example.com/controllers/harness/history"
)

// Effects is what a controller's writes came to.
type Effects struct {
	// Did counts the writes that changed something, by what they did to what: "delete pods frontend-*".
	Did map[string]int
	// Unknown counts those of which nobody was told whether they were done.
	Unknown map[string]int
	// Changes counts how often objects came and went, whoever it was: see [States.Counts]. It is nil where that
	// is not known.
	Changes map[string]int
	// Needless counts the writes that could change nothing: no-ops, and those of what is not there any more or
	// has changed since, as the API server itself said.
	Needless int
	// Excused is how many requests failed, and watches something was done to: for each, there may be one such
	// write. A request that was only slow is no excuse.
	Excused int
	// Tries is how many writes there were for each object, by "delete pods frontend-x".
	Tries map[string]int
}

// EffectsOf counts them. Events and Leases are left out, unless they are among the resources that are looked
// at. class names objects, see [States.Classes].
func EffectsOf(h *history.History, namespace string, resources []string, class func(resource, name string) string) Effects {
	e := Effects{Did: map[string]int{}, Unknown: map[string]int{}, Tries: map[string]int{}}
	looked := map[string]bool{}
	for _, r := range resources {
		looked[r] = true
	}
	deleted := map[string]bool{} // by UID
	for _, r := range h.Requests {
		isDisturbed := r.IsDisturbed() && !r.IsOnlySlow() && (r.Verb == "watch" || r.Status >= http.StatusBadRequest)
		if isDisturbed || r.Error != "" || r.Status >= http.StatusInternalServerError || r.Status == http.StatusTooManyRequests {
			e.Excused++
		}
		if !r.IsWrite() || !looked[r.Resource] && (r.Resource == "events" || r.Resource == "leases") {
			continue
		}
		what := within(strings.TrimRight(fmt.Sprintf("%s %s %s", r.Verb, r.What(), class(r.Resource, r.Name)), " "), namespace)
		if r.Name != "" || r.Verb != "create" { // a create that was refused has no name, and may have been of any
			e.Tries[fmt.Sprintf("%s %s %s", r.Verb, r.What(), r.Name)]++
		}
		isDone := r.Status >= http.StatusOK && r.Status < http.StatusMultipleChoices
		// An answer that broke off on its way to the recorder does not say whether anything was changed.
		isCut := isDone && r.Error != "" && r.RVAfter == ""
		// What has been deleted once, and is on its way out, is not deleted once more.
		isAgain := isDone && r.Verb == "delete" && r.UID != "" && deleted[r.UID]
		switch {
		case r.Status == 0 || isCut:
			e.Unknown[what]++
		case isDone && !r.NoOp && !isAgain:
			e.Did[what]++
			if r.Verb == "delete" {
				deleted[r.UID] = true
			}
		case isDone || (!r.IsDisturbed() || r.IsOnlySlow()) && r.Error == "" && r.Status >= http.StatusBadRequest && r.Status < http.StatusInternalServerError &&
			r.Status != http.StatusTooManyRequests:
			e.Needless++
		}
	}
	return e
}

// CompareEffects says what a controller did more or less of than it should have, or "". mayDiffer are the
// beginnings of what may differ.
func CompareEffects(want, got Effects, mayDiffer []string) (tooMuch, tooLittle string) {
	if want.Changes != nil && got.Changes != nil {
		tooMuch, tooLittle = differ(want.Changes, got.Changes, nil, mayDiffer)
	}
	if tooMuch+tooLittle == "" {
		tooMuch, tooLittle = differ(want.Did, got.Did, got.Unknown, mayDiffer)
	}
	if tooMuch == "" && got.Needless > want.Needless+got.Excused && !MayDiffer("needless", mayDiffer) {
		tooMuch = fmt.Sprintf("%d writes that could change nothing; undisturbed it makes %d, and %d requests were disturbed",
			got.Needless, want.Needless, got.Excused)
	}
	return tooMuch, tooLittle
}

// differ compares counts. unknown may have to be added to got.
func differ(want, got, unknown map[string]int, mayDiffer []string) (tooMuch, tooLittle string) {
	names := map[string]bool{}
	for name := range want {
		names[name] = true
	}
	for name := range got {
		names[name] = true
	}
	for _, name := range sorted(names) {
		if MayDiffer(name, mayDiffer) {
			continue
		}
		switch w, g := want[name], got[name]; {
		case g > w && tooMuch == "":
			tooMuch = fmt.Sprintf("%s: %d times, should be %d", name, g, w)
		case g+unknown[name] < w && tooLittle == "":
			tooLittle = fmt.Sprintf("%s: %d times, should be %d", name, g, w)
		}
	}
	return tooMuch, tooLittle
}

// MayDiffer says whether a write begins with one of these.
func MayDiffer(text string, beginnings []string) bool {
	for _, beginning := range beginnings {
		if strings.HasPrefix(text, beginning) {
			return true
		}
	}
	return false
}
