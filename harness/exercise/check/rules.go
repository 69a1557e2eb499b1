package check

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.com/controllers/harness/exercise/verdict"
	"example.com/controllers/harness/history"
)

// Rules that hold in every scene, beside that no program ends by itself, or never waits.

// blindWrite fails the check after a write that may have undone what somebody else has changed.
func (w *World) blindWrite(r history.Request) {
	w.fail(fmt.Sprintf("The %s replaced %s %s without saying which version it had read: a change that somebody else made in the meantime would be lost.",
		r.Who, verdict.Singular(r.What()), r.Object()))
}

// timeToReport is how long a program may take to log a request that has failed, or to repeat it.
const timeToReport = time.Minute

// requireReports fails the check if a request of a program has failed for good, and the program has logged no error since. A
// request that succeeds later, or another one for the same object, needs no log. Nor does "not found", a conflict, or that a
// namespace is being deleted.
func (w *World) requireReports() {
	w.T.Helper()
	requests := w.History().Requests
	for i, r := range requests {
		if !isReported(r) || w.Since() < r.End().Sub(w.start)+timeToReport {
			continue
		}
		repeated := slices.ContainsFunc(requests[i+1:], func(later history.Request) bool {
			return later.Who == r.Who && later.What() == r.What() && later.Object() == r.Object() && later.IsWrite() == r.IsWrite() && !later.Failed()
		})
		w.mu.Lock()
		logged := slices.ContainsFunc(w.errors, func(at time.Time) bool { return !at.Before(r.Start) })
		w.mu.Unlock()
		if !repeated && !logged {
			w.Failf("The %s could not %s %s: %s. It has not succeeded since, and no error was logged: nobody will know.", r.Who, r.Verb, what(r), outcome(r))
		}
	}
}

// isReported reports whether the failure of a request is one that somebody should be told of.
func isReported(r history.Request) bool {
	isReflectors := r.Verb == "list" && strings.Contains(r.URI, "resourceVersion=") // client-go logs what becomes of these
	if r.Who == verdict.UserName || r.Verb == "watch" || isReflectors || r.Resource == "events" || r.Resource == "leases" {
		return false
	}
	switch r.Status {
	case http.StatusNotFound, http.StatusConflict, http.StatusTooManyRequests:
		return false
	case http.StatusForbidden: // nothing can be created in a namespace that is being deleted
		return len(r.Injected) > 0
	case 0:
		return r.Error != "" && len(r.Injected) > 0 && !slices.ContainsFunc(r.Injected, func(i history.Injection) bool { return i.Kind == history.ControllerKilled })
	}
	return r.Status >= http.StatusBadRequest
}

func what(r history.Request) string {
	return strings.TrimSpace(verdict.Singular(r.What()) + " " + r.Object())
}

func outcome(r history.Request) string {
	if r.Status == 0 {
		return r.Injections()
	}
	return fmt.Sprintf("the API server answered %d", r.Status)
}

// Before makes something happen once: right before the API server carries out a program's next request with this verb for this
// resource, such as "delete" and "pods". It is called by a goroutine of the program.
func (w *World) Before(verb, resource string, do func()) {
	w.Server.Before(func(r history.Request) bool { return r.Verb == verb && r.What() == resource }, do)
}

// StopWhileHanging asks a program to stop while the API server answers no request. If that takes longer than a minute, the check
// fails. meanwhile makes the program send requests.
func (w *World) StopWhileHanging(p *Process, meanwhile func()) {
	w.T.Helper()
	w.Say("the API server answers no request any more")
	w.Inject("hang=1h")
	meanwhile()
	w.Advance(time.Minute)
	p.Stop()
	w.Heal()
}
