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

// answered reports whether a request succeeded.
func answered(r history.Request) bool { return r.Status == http.StatusOK && !r.Failed() }

// synced reports whether a controller that was started at a time has received all Pods and the config: in a response, or
// by a watch that has delivered its first bookmark, which follows the objects that existed.
func synced(h *history.History, started time.Time) bool {
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

// sawConfig returns when the controller first received the config at a resourceVersion or later.
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

// polledSince reports whether a controller that polls has listed the Pods at least a few times since a time. One that watches
// does not list them.
func polledSince(h *history.History, from time.Time) bool {
	lists := func(h *history.History) int {
		return len(h.Where(func(r history.Request) bool { return r.Resource == "pods" && r.Verb == "list" && answered(r) }).Requests)
	}
	return lists(h) == 0 || lists(h.Between(from, time.Time{})) >= passes
}

const (
	// pollInterval is how often an outcome is checked.
	pollInterval = 100 * time.Millisecond
	// patience is how many checks in a row must find a controller idle before a change counts as lost: at least
	// 10 s. Checks are counted and not seconds, so that a machine that stalls does not make a change lost.
	patience = 100
	// passes is how many more times a controller that polls must have listed the Pods.
	passes = 3
)

// idleness counts for how long a controller has had reason to act and has not.
type idleness struct {
	since  time.Time // when it received the change or made its last write, whichever was later
	checks int       // since then
}

// observe checks the recording of a controller that has not applied a change yet, and reports whether the change is lost:
// the controller has received the change, it watches the Pods or has listed them several times since, and it has made
// no write for many checks.
func (i *idleness) observe(h *history.History, resourceVersion string) (lost bool) {
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
		i.checks = 0
		return false
	}
	i.checks++
	return i.checks >= patience
}
