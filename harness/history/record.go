// Package history reads recordings of the requests that reached an API server, and answers questions about them: how
// many writes there were, which of them changed nothing, how long it took until the last one, and what they cost.
//
//   - A recording names objects. It never holds their content, nor credentials.
//   - A [History] is never modified. Its methods return parts of it, which can be queried in the same way.
//   - What a fault did to a request is recorded as data: see [Injection].
//
// A recording is a file of JSON Lines, written by [example.com/controllers/harness/apiproxy]. Each line is a [Record]: a
// [Request], an [Event] of a watch, or something that is not on the wire (besides.go). A request is written when it has ended. A watch may stay open for
// minutes, so it is written twice with the same ID: with "open" when the response begins, and without it when the watch
// has ended. If the recorder was killed, the last line may be incomplete.
//
//	{"request":{"id":7,"start":"2026-01-02T15:04:05.1Z","ms":4.2,"agent":"kubectl/v1.37.1 (linux/amd64)","verb":"delete","version":"v1","resource":"pods","ns":"shop","name":"frontend-x","uri":"/api/v1/namespaces/shop/pods/frontend-x","status":200,"sent":82,"received":1204,"rvBefore":"611","rvAfter":"640"}}
//	{"event":{"watch":3,"time":"2026-01-02T15:04:05.1Z","type":"MODIFIED","resource":"pods","ns":"shop","name":"frontend-x","rv":"640","bytes":1310}}
package history

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

// Record is one line of a recording. Exactly one of its fields is set.
type Record struct {
	Request *Request `json:"request,omitempty"`
	Event   *Event   `json:"event,omitempty"`
	Seen    *Event   `json:"seen,omitempty"` // an event of a watch of the recorder's own; its Request is 0
	Step    *Step    `json:"step,omitempty"`
	Process *Process `json:"process,omitempty"`
	Sample  *Sample  `json:"sample,omitempty"`
}

// kinds is how many of the fields are set.
func (r Record) kinds() (n int) {
	for _, isSet := range []bool{r.Request != nil, r.Event != nil, r.Seen != nil, r.Step != nil, r.Process != nil, r.Sample != nil} {
		if isSet {
			n++
		}
	}
	return n
}

// Request is a request and its outcome.
type Request struct {
	ID       int64         `json:"id"` // from 1, in the order of arrival
	Start    time.Time     `json:"start"`
	Duration time.Duration `json:"-"`               // until the response had been forwarded; in JSON "ms", in milliseconds
	Who      string        `json:"who,omitempty"`   // the user; "" if the recorder could not tell
	Agent    string        `json:"agent,omitempty"` // User-Agent

	// Verb is as in the API server's audit log: get, list, watch, create, update, patch, delete or deletecollection;
	// for a path that is no resource, such as /version, the HTTP method in lower case.
	Verb        string `json:"verb"`
	Group       string `json:"group,omitempty"`
	Version     string `json:"version,omitempty"`
	Resource    string `json:"resource,omitempty"`
	Subresource string `json:"sub,omitempty"`
	Namespace   string `json:"ns,omitempty"`
	Name        string `json:"name,omitempty"`
	URI         string `json:"uri"` // path and query, without what may be secret

	Status int    `json:"status,omitempty"` // HTTP status of the response; 0 if there was none, or none yet
	Error  string `json:"error,omitempty"`  // why there was no response, why it was cut off, or what the client got instead
	GaveUp bool   `json:"gaveUp,omitempty"` // true if the client went away before it had the whole response
	Open   bool   `json:"open,omitempty"`   // true for a watch that had not ended when it was recorded

	// Sent and Received are the sizes of the bodies in bytes on the wire, so compressed if they were. Received does not
	// include the events of a watch, which have their own Bytes.
	Sent     int64 `json:"sent,omitempty"`
	Received int64 `json:"received,omitempty"`

	// RVBefore and RVAfter are the object's resourceVersion before and after the request, "" if unknown. For a list,
	// RVAfter is the resourceVersion of the list.
	RVBefore string `json:"rvBefore,omitempty"`
	RVAfter  string `json:"rvAfter,omitempty"`
	UID      string `json:"uid,omitempty"` // of the object in the response; "" if unknown

	NoOp   bool `json:"noop,omitempty"`   // true for a write that succeeded and did not change the resourceVersion
	DryRun bool `json:"dryRun,omitempty"` // true for a request with dryRun, which asks for no change

	// Connection numbers the HTTP/2 connections of the clients, from 1. A process built on client-go keeps one for as long as it runs, unless
	// it breaks. It is 0 if unknown, and for HTTP/1, of which a client uses several. In memory, each client of the exercises' API server is one.
	Connection int64 `json:"conn,omitempty"`

	// Program is the name of the program that sent the request, if there are several that are recorded together.
	Program string `json:"program,omitempty"`

	// Injected is what the recorder did to the request on purpose, in the order in which the request met it;
	// empty for a request that the recorder left alone.
	Injected []Injection `json:"injected,omitempty"`
}

// Event is an event of a watch, as the client got it.
type Event struct {
	Request int64     `json:"watch"` // ID of the watch request
	Time    time.Time `json:"time"`
	// Came is when the event came from the API server, if the recorder has held it back on purpose; otherwise the zero time.
	Came            time.Time `json:"came,omitzero"`
	Type            string    `json:"type"` // ADDED, MODIFIED, DELETED, BOOKMARK, ERROR
	Group           string    `json:"group,omitempty"`
	Resource        string    `json:"resource"`
	Namespace       string    `json:"ns,omitempty"`
	Name            string    `json:"name,omitempty"`
	UID             string    `json:"uid,omitempty"`
	ResourceVersion string    `json:"rv,omitempty"`
	// Changed says in a few words in what the object differs from its version before; "" if the recorder does not know that
	// version.
	Changed string `json:"changed,omitempty"`
	// Bytes is the event's size on the wire. The size of a batch of events that were compressed together is divided
	// among them by their uncompressed sizes.
	Bytes int `json:"bytes"`
}

// End is when the request ended; for an open watch, when its response began.
func (r Request) End() time.Time { return r.Start.Add(r.Duration) }

// What names the resource as kubectl does, such as "pods", "pods/status" or "deployments.apps". For a request that is not
// for a resource, it is the path.
func (r Request) What() string {
	if r.Resource == "" {
		path, _, _ := strings.Cut(r.URI, "?")
		return path
	}
	name := qualified(r.Group, r.Resource)
	if r.Subresource != "" {
		name += "/" + r.Subresource
	}
	return name
}

// Object is the object as namespace/name, without the parts that the request does not have.
func (r Request) Object() string {
	if r.Group == "" && r.Resource == "namespaces" {
		return r.Name // requests for a Namespace have it as their namespace, too
	}
	return strings.Trim(r.Namespace+"/"+r.Name, "/")
}

// ShortAgent is the User-Agent up to the first "/", which is the name of the program for clients built on client-go.
func (r Request) ShortAgent() string {
	name, _, _ := strings.Cut(r.Agent, "/")
	return name
}

// Failed says whether the request got no response, an error, or a response that was cut off.
func (r Request) Failed() bool {
	return r.Error != "" || r.Status == 0 || r.Status >= http.StatusBadRequest
}

// IsWrite says whether the request asked for a change of stored objects, whether it succeeded or not. It is false for a
// dry run, for queries that use create (token reviews, access reviews, ServiceAccount tokens), and for what the API
// server only passes to a container or a port. Leases and Events are stored, so renewing a Lease is a write; use
// [History.Where] to leave them out.
func (r Request) IsWrite() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
	default:
		return false
	}
	switch r.Group {
	case "authentication.k8s.io", "authorization.k8s.io":
		return false
	}
	switch r.Subresource {
	case "token", "exec", "attach", "portforward", "proxy":
		return false
	}
	return !r.DryRun
}

func qualified(group, resource string) string {
	if group == "" {
		return resource
	}
	return resource + "." + group
}

// requestJSON is a Request with its duration in milliseconds.
type requestJSON struct {
	*plainRequest
	Milliseconds float64 `json:"ms,omitempty"`
}

type plainRequest Request // without methods

// MarshalJSON writes Duration as milliseconds.
func (r Request) MarshalJSON() ([]byte, error) {
	r.Start = r.Start.UTC()
	return marshal(requestJSON{(*plainRequest)(&r), milliseconds(r.Duration)})
}

// marshal is like [json.Marshal], but does not escape the "&" in URIs.
func marshal(v any) ([]byte, error) {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return line.Bytes(), err
}

// Write writes a record as one line, with a single call of w.Write.
func Write(w io.Writer, r Record) error {
	l := lines.Get().(*line)
	defer lines.Put(l)
	if l.record(r) {
		_, err := w.Write(*l)
		return err
	}
	text, err := marshal(r)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (r *Request) UnmarshalJSON(data []byte) error {
	parsed := requestJSON{plainRequest: (*plainRequest)(r)}
	if err := json.Unmarshal(data, &parsed); err != nil {
		return err
	}
	r.Duration = ofMilliseconds(parsed.Milliseconds)
	return nil
}

// ReadFile reads a recording, to which the recorder may still be writing.
func ReadFile(path string) (*History, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the recording: %w", err)
	}
	defer file.Close()
	h, err := Read(file)
	if err != nil {
		return nil, fmt.Errorf("read the recording %s: %w", path, err)
	}
	return h, nil
}

// Read reads a recording. It ignores an incomplete last line.
func Read(r io.Reader) (*History, error) {
	var records []Record
	in := bufio.NewReader(r)
	for number := 1; ; number++ {
		line, err := in.ReadBytes('\n')
		isLast := errors.Is(err, io.EOF)
		if err != nil && !isLast {
			return nil, err
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			record, err := parse(line)
			switch {
			case err == nil:
				records = append(records, record)
			case !isLast:
				return nil, fmt.Errorf("line %d: %w", number, err)
			}
		}
		if isLast {
			return Of(records...), nil
		}
	}
}

func parse(line []byte) (Record, error) {
	var record Record
	if err := json.Unmarshal(line, &record); err != nil {
		return record, fmt.Errorf("not a record: %w", err)
	}
	kinds := record.kinds()
	if kinds == 0 {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(line, &fields); err == nil && len(fields) == 1 {
			for kind, value := range fields {
				if bytes.HasPrefix(value, []byte("{")) {
					return record, fmt.Errorf("a record of the kind %q, which this version does not know: use the version that made the recording, or a later one", kind)
				}
			}
		}
	}
	if kinds != 1 {
		return record, errors.New("not a record: it must have one of request, event, seen, step, process and sample")
	}
	return record, nil
}

// Of returns the history of some records. Of several records of the same request, the last one counts.
func Of(records ...Record) *History {
	h := &History{}
	at := map[int64]int{}
	for _, record := range records {
		switch {
		case record.Event != nil:
			h.Events = append(h.Events, *record.Event)
		case record.Request == nil:
			h.addBesides(record)
		default:
			if i, ok := at[record.Request.ID]; ok {
				h.Requests[i] = *record.Request
				continue
			}
			at[record.Request.ID] = len(h.Requests)
			h.Requests = append(h.Requests, *record.Request)
		}
	}
	slices.SortStableFunc(h.Requests, byStart)
	slices.SortStableFunc(h.Events, byTimeOf(Event.at))
	h.sortBesides()
	return h
}

func byStart(a, b Request) int { return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.ID, b.ID)) }
