package verdict

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"example.com/controllers/harness/history"
)

// UserName is the field Who of the requests that a check makes as a user of the cluster.
const UserName = "user"

// OfRecord returns the line of a recorded request or event, without its time. It returns false for what no timeline shows:
// bookmarks, the ends of watches, and what the check reads as a user.
func OfRecord(r history.Record) (Line, bool) {
	if e := r.Event; e != nil {
		if e.Type == "BOOKMARK" {
			return Line{}, false
		}
		return Line{Who: "event", What: fmt.Sprintf("%s %s %s", e.Type, Singular(e.Resource), strings.Trim(e.Namespace+"/"+e.Name, "/")), Note: e.Changed}, true
	}
	q := r.Request
	isRead := q.Verb == "get" || q.Verb == "list" || q.Verb == "watch"
	if q.Verb == "watch" && !q.Open || q.Who == UserName && isRead {
		return Line{}, false
	}
	l := Line{Who: q.Who, What: q.Verb + " " + Singular(q.What())}
	if q.Verb == "list" || q.Verb == "watch" || q.Verb == "deletecollection" || q.Resource == "" {
		l.What = q.Verb + " " + q.What()
	}
	if object := q.Object(); object != "" {
		l.What += " " + object
	}
	switch {
	case q.Injections() != "":
		l.Note = q.Injections()
	case q.Error != "":
		l.Note = q.Error
	case q.NoOp:
		l.Note = fmt.Sprintf("%d, nothing changed", q.Status)
	case q.Status > 0:
		l.Note = fmt.Sprint(q.Status)
	}
	switch q.Status {
	case 404:
		l.Note = "404 not found"
	case 409:
		l.Note = "409 conflict"
		if q.Verb == "create" {
			l.Note = "409 already exists"
		}
	}
	l.Bad = q.Who != UserName && (q.Failed() || q.Error != "") && !(isRead && q.Status == 404)
	return l, true
}

var plural = regexp.MustCompile(`^([a-z]+?)(ies|sses|s)\b`)

// Singular makes "pods/status" "pod/status".
func Singular(resource string) string {
	return plural.ReplaceAllStringFunc(resource, func(word string) string {
		switch {
		case strings.HasSuffix(word, "ies"):
			return strings.TrimSuffix(word, "ies") + "y"
		case strings.HasSuffix(word, "sses"):
			return strings.TrimSuffix(word, "es")
		case word == "endpoints":
			return word
		}
		return strings.TrimSuffix(word, "s")
	})
}

// OfHistory returns the lines of a recording, whose time begins with its first request. Requests of a program that the
// recorder did not know are the controller's.
func OfHistory(h *history.History) []Line {
	var records []history.Record
	for _, r := range h.Requests {
		r.Who = programOf(r)
		r.Open = r.Verb == "watch"
		records = append(records, history.Record{Request: &r})
	}
	for _, e := range h.Events {
		records = append(records, history.Record{Event: &e})
	}
	when := func(r history.Record) time.Time {
		if r.Event != nil {
			return r.Event.Time
		}
		return r.Request.Start
	}
	slices.SortStableFunc(records, func(a, b history.Record) int { return when(a).Compare(when(b)) })
	var lines []Line
	for _, r := range records {
		if line, ok := OfRecord(r); ok {
			line.At = when(r).Sub(when(records[0]))
			lines = append(lines, line)
		}
	}
	return lines
}
