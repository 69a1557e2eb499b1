package main

import (
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"example.com/controllers/harness/history"
)

// recorder records the requests of one program, or of all agents.
type recorder struct {
	history.Memory
	// sent is the number of requests other than those for Leases, and watches. A client opens each of its watches again
	// after five to ten minutes, so with thousands of agents one of them always does.
	sent   atomic.Int64
	lastID atomic.Int64 // of the requests that a transport records
	synced atomic.Bool  // an informer has received all Nodes
}

// Record records a request or an event.
func (r *recorder) Record(record history.Record) {
	if q := record.Request; q != nil && q.Resource != "leases" && q.Verb != "watch" {
		r.sent.Add(1)
	}
	if e := record.Event; e != nil && e.Resource == "nodes" && e.Type == "BOOKMARK" {
		r.synced.Store(true)
	}
	r.Memory.Record(record)
}

var requestInfo = &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// transport records each request when its response begins.
type transport struct {
	http.RoundTripper
	recorder *recorder
	watching func() // called when the response to a watch begins
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	info, err := requestInfo.NewRequestInfo(r)
	if err != nil {
		return nil, err
	}
	q := &history.Request{
		ID: t.recorder.lastID.Add(1), Start: time.Now(), Verb: info.Verb, Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource,
		Subresource: info.Subresource, Namespace: info.Namespace, Name: info.Name, URI: r.URL.RequestURI(),
	}
	response, err := t.RoundTripper.RoundTrip(r)
	q.Duration = time.Since(q.Start)
	if err != nil {
		q.Error = err.Error()
	} else {
		q.Status = response.StatusCode
	}
	t.recorder.Record(history.Record{Request: q})
	if err == nil && q.Verb == "watch" && q.Status == http.StatusOK {
		t.watching()
	}
	return response, err
}
