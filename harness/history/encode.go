package history

import (
	"strconv"
	"sync"
	"time"
)

// lines are used again for later records.
var lines = sync.Pool{New: func() any { return new(line) }}

// line is a record in JSON, to which fields are added. It is what [encoding/json] makes of a record, made without reflection:
// a client waits for the record of its request. A test compares the two.
type line []byte

// record writes a request that no fault has met, or an event. It returns false for other records, which are rare.
func (l *line) record(r Record) bool {
	*l = append((*l)[:0], '{')
	ok := false
	switch {
	case r.kinds() != 1:
	case r.Request != nil:
		l.key("request")
		ok = l.request(r.Request)
	case r.Event != nil:
		l.key("event")
		ok = l.event(r.Event)
	case r.Seen != nil:
		l.key("seen")
		ok = l.event(r.Seen)
	}
	*l = append(*l, '}', '\n')
	return ok
}

func (l *line) request(r *Request) bool {
	*l = append(*l, '{')
	l.number("id", r.ID)
	ok := l.time("start", r.Start.UTC())
	l.optional("who", r.Who)
	l.optional("agent", r.Agent)
	l.text("verb", r.Verb)
	l.optional("group", r.Group)
	l.optional("version", r.Version)
	l.optional("resource", r.Resource)
	l.optional("sub", r.Subresource)
	l.optional("ns", r.Namespace)
	l.optional("name", r.Name)
	l.text("uri", r.URI)
	l.unlessZero("status", int64(r.Status))
	l.optional("error", r.Error)
	l.ifTrue("gaveUp", r.GaveUp)
	l.ifTrue("open", r.Open)
	l.unlessZero("sent", r.Sent)
	l.unlessZero("received", r.Received)
	l.optional("rvBefore", r.RVBefore)
	l.optional("rvAfter", r.RVAfter)
	l.optional("uid", r.UID)
	l.ifTrue("noop", r.NoOp)
	l.ifTrue("dryRun", r.DryRun)
	l.unlessZero("conn", r.Connection)
	l.optional("program", r.Program)
	if r.Duration != 0 {
		l.key("ms")
		ms := milliseconds(r.Duration) // at least a millionth, and so encoding/json does not use exponents either
		*l = strconv.AppendFloat(*l, ms, 'f', -1, 64)
	}
	*l = append(*l, '}')
	return ok && len(r.Injected) == 0
}

func (l *line) event(e *Event) bool {
	*l = append(*l, '{')
	l.number("watch", e.Request)
	ok := l.time("time", e.Time)
	if !e.Came.IsZero() {
		ok = l.time("came", e.Came) && ok
	}
	l.text("type", e.Type)
	l.optional("group", e.Group)
	l.text("resource", e.Resource)
	l.optional("ns", e.Namespace)
	l.optional("name", e.Name)
	l.optional("uid", e.UID)
	l.optional("rv", e.ResourceVersion)
	l.optional("changed", e.Changed)
	l.number("bytes", int64(e.Bytes))
	*l = append(*l, '}')
	return ok
}

func (l *line) key(name string) {
	if (*l)[len(*l)-1] != '{' {
		*l = append(*l, ',')
	}
	*l = append(*l, '"')
	*l = append(*l, name...)
	*l = append(*l, '"', ':')
}

func (l *line) text(key, value string) {
	l.key(key)
	for i := range len(value) {
		if c := value[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			escaped, _ := marshal(value) // a string always can be
			*l = append(*l, escaped[:len(escaped)-len("\n")]...)
			return
		}
	}
	*l = append(*l, '"')
	*l = append(*l, value...)
	*l = append(*l, '"')
}

// optional writes a text, unless it is empty.
func (l *line) optional(key, value string) {
	if value != "" {
		l.text(key, value)
	}
}

func (l *line) number(key string, value int64) {
	l.key(key)
	*l = strconv.AppendInt(*l, value, 10)
}

func (l *line) unlessZero(key string, value int64) {
	if value != 0 {
		l.number(key, value)
	}
}

func (l *line) ifTrue(key string, value bool) {
	if value {
		l.key(key)
		*l = append(*l, "true"...)
	}
}

// time writes a time, and returns false if JSON has none like it.
func (l *line) time(key string, t time.Time) bool {
	l.key(key)
	*l = append(*l, '"')
	text, err := t.AppendText(*l)
	if err != nil {
		return false
	}
	*l = append(text, '"')
	return true
}
