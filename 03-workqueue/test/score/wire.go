package main

import (
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"example.com/controllers/harness/history"
)

// configName is the ConfigMap that the frontend reads.
const configName = "frontend-config"

// answered says whether a request was answered with what it asked for.
func answered(r history.Request) bool { return r.Status == http.StatusOK && !r.Failed() }

// inStep says whether a controller that was started at a time has been told of all Pods and of the config: by
// an answer, or by a watch that has delivered its first bookmark, which comes after all that was there.
func inStep(h *history.History, started time.Time) bool {
	return !slices.ContainsFunc([]string{"pods", "configmaps"}, func(resource string) bool {
		return !slices.ContainsFunc(h.Requests, func(r history.Request) bool {
			if r.Resource != resource || r.Start.Before(started) || !answered(r) {
				return false
			}
			return r.Verb == "get" || r.Verb == "list" || r.Verb == "watch" && slices.ContainsFunc(h.Events, func(e history.Event) bool {
				return e.Request == r.ID && e.Type == "BOOKMARK"
			})
		})
	})
}

// sawConfig returns when the controller had first been sent the config as it was at a resourceVersion or
// later.
func sawConfig(h *history.History, resourceVersion string) (first time.Time, saw bool) {
	see := func(at time.Time, seen string) {
		order, err := resourceversion.CompareResourceVersion(seen, resourceVersion)
		if err == nil && order >= 0 && (!saw || at.Before(first)) {
			first, saw = at, true
		}
	}
	for _, e := range h.Events {
		if e.Resource == "configmaps" && e.Name == configName {
			see(e.Time, e.ResourceVersion)
		}
	}
	for _, r := range h.Requests {
		if r.Resource == "configmaps" && (r.Verb == "get" || r.Verb == "list") && answered(r) {
			see(r.End(), r.RVAfter)
		}
	}
	return first, saw
}

const (
	// lookEvery is the pause between two looks at whether a change is done.
	lookEvery = 100 * time.Millisecond
	// patience is how many looks in a row must find a controller idle before a change counts as lost: 10 s
	// at least. Looks are counted, not seconds: where the machine stands still, so do the looks.
	patience = 100
	// passes is how many more times a controller that polls must have asked for the Pods.
	passes = 3
)

// idleness counts for how long a controller has had reason to act and has not.
type idleness struct {
	since time.Time // when it was sent the change or wrote last, whichever was later
	looks int       // since then
}

// look looks at the recording of a controller after a change of the config, which it was not done with at
// that moment, and says whether the change is lost: it was sent the change; it is told of the Pods, or has
// asked for them several times since then; and still it has not written anything for a long time.
func (i *idleness) look(h *history.History, resourceVersion string) (lost bool) {
	since, saw := sawConfig(h, resourceVersion)
	if !saw {
		*i = idleness{}
		return false
	}
	for _, write := range h.Writes() {
		if write.End().After(since) {
			since = write.End()
		}
	}
	if !since.Equal(i.since) {
		*i = idleness{since: since}
	}
	asked := 0
	for _, r := range h.Requests {
		switch {
		case r.Resource != "pods":
		case r.Verb == "watch" && r.Open && answered(r):
			asked = passes
		case r.Verb == "list" && r.Start.After(since) && answered(r):
			asked++
		}
	}
	if asked < passes {
		i.looks = 0
		return false
	}
	i.looks++
	return i.looks >= patience
}
