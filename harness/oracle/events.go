package oracle

import (
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"example.com/controllers/harness/history"
)

// Events returns the changes since a time as events, after an ADDED event, at that time, for each object that there was.
// They have no Group, and do not belong to a request.
func (s *States) Events(since time.Time) (events []history.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.start.clone()
	changes := s.changes
	for len(changes) > 0 && changes[0].Time.Before(since) {
		state.apply(changes[0])
		changes = changes[1:]
	}
	for _, resource := range sorted(state) {
		for _, name := range sorted(state[resource]) {
			events = append(events, eventOf(state[resource][name], resource, string(watch.Added), since, 0))
		}
	}
	for _, c := range changes {
		events = append(events, eventOf(c.New, c.Resource, string(c.Type), c.Time, c.version))
	}
	return events
}

// eventOf returns an event of an object. The resourceVersion of a deletion is not the object's.
func eventOf(o Object, resource, kind string, at time.Time, version uint64) history.Event {
	rv := field(o, "metadata", "resourceVersion")
	if kind == string(watch.Deleted) {
		rv = strconv.FormatUint(version, 10)
	}
	return history.Event{Time: at, Type: kind, Resource: resource, Namespace: field(o, "metadata", "namespace"), Name: field(o, "metadata", "name"),
		UID: field(o, "metadata", "uid"), ResourceVersion: rv}
}
