package torture

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/view"
)

// excerpt returns the recorded requests that tell the failure, as lines: those around the first that something was done
// to, those after the failing step began, and the last of the writes that the failure is about; or the last ones. A line "…" stands for those left out between them.
func excerpt(o Outcome) []string {
	requests := slices.DeleteFunc(slices.Clone(o.History.Requests), func(r history.Request) bool { return r.Resource == "" })
	chosen := map[int]bool{}
	choose := func(at, before, after int) {
		for i := max(0, at-before); i < min(len(requests), at+after+1); i++ {
			chosen[i] = true
		}
	}
	const before, after = 2, 4
	if at := slices.IndexFunc(requests, history.Request.IsDisturbed); at >= 0 {
		choose(at, before, after)
	} else {
		choose(len(requests)-1, before, 0)
	}
	if !o.FailedAt.IsZero() {
		at := slices.IndexFunc(requests, func(r history.Request) bool { return !r.Start.Before(o.FailedAt) })
		if at < 0 {
			at = len(requests)
		}
		choose(at, before, after)
	}
	if verb, resource, found := writeIn(o.Cause); found { // the last ones of these: it did them once too often
		left := 3
		for at := len(requests) - 1; at >= 0 && left > 0; at-- {
			if r := requests[at]; r.Verb == verb && (r.Resource == resource || r.What() == resource) {
				choose(at, 0, 0)
				left--
			}
		}
	}
	part := &history.History{}
	gaps := map[int]bool{} // before these rows, there are others
	for i, r := range requests {
		if !chosen[i] {
			continue
		}
		if i > 0 && !chosen[i-1] && len(part.Requests) > 0 {
			gaps[len(part.Requests)] = true
		}
		part.Requests = append(part.Requests, r)
	}
	if len(part.Requests) == 0 {
		return []string{}
	}
	withoutNamespace(part.Requests)
	var text strings.Builder
	if err := part.WriteRequests(&text); err != nil {
		return []string{}
	}
	var lines []string
	for i, line := range trimmedLines(text.String()) { // after the header
		if gaps[i-1] {
			lines = append(lines, "…")
		}
		lines = append(lines, line)
	}
	return lines
}

// writeIn returns the write that the cause of a failure names, such as "added pods web-*" or "needless patch pods a".
func writeIn(cause string) (verb, resource string, found bool) {
	words := strings.Fields(strings.TrimPrefix(cause, "needless "))
	if len(words) < 2 {
		return "", "", false
	}
	verb = words[0]
	switch verb {
	case "added":
		verb = "create"
	case "deleted":
		verb = "delete"
	}
	return verb, words[1], slices.Contains([]string{"create", "update", "patch", "delete"}, verb)
}

// trimmedLines returns the lines of a table without the spaces at their ends.
func trimmedLines(table string) []string {
	lines := strings.Split(strings.TrimRight(table, "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return lines
}

// withoutNamespace leaves out the namespace if all requests are for the same one, which is the run's: its name says nothing.
func withoutNamespace(requests []history.Request) {
	namespaces := map[string]bool{}
	for _, r := range requests {
		if r.Namespace != "" {
			namespaces[r.Namespace] = true
		}
	}
	if len(namespaces) > 1 {
		return
	}
	for i := range requests {
		requests[i].Namespace = ""
	}
}

// staleWrites says, of the last writes before a failure that were made by a program that was behind, what it did not know. There are
// none without a watch, and its own writes do not count.
func staleWrites(o Outcome) []string {
	const most = 2
	m := view.Of("", o.History)
	var marks []view.Mark
	for _, mark := range m.Marks {
		at := m.Start.Add(time.Duration(mark.Start * float64(time.Millisecond)))
		if s := mark.Stale; s != nil && (!s.Own || len(s.Others) > 0) && (o.FailedAt.IsZero() || at.Before(o.FailedAt)) {
			marks = append(marks, mark)
		}
	}
	var texts []string
	for _, mark := range marks[max(0, len(marks)-most):] {
		_, name, isNamespaced := strings.Cut(m.Lanes[mark.Lane].Name, "/")
		if !isNamespaced {
			name = m.Lanes[mark.Lane].Name
		}
		texts = append(texts, fmt.Sprintf("behind at %.3fs: %s %s %s: %s", mark.Start/1000, mark.Verb, mark.What, name, mark.Stale.Text))
	}
	return texts
}
