package apiproxy

import (
	"bytes"
	"cmp"
	"io"
	"net/http"
)

// learn completes the record from the object in the request's body, and returns the body. It reads the beginning of the
// body before anything is sent: the API server may refuse a request without reading its body, and then nobody reads it.
func (x *exchange) learn() (*body, error) {
	from := x.in.Body
	if x.in.ContentLength == 0 || x.record.Resource == "" || x.proxy.outside != "" || x.record.Subresource == "proxy" {
		return &body{Reader: from, Closer: from}, nil
	}
	start, err := io.ReadAll(io.LimitReader(from, kept))
	if err != nil {
		return nil, err
	}
	m, _ := readMetadata(bytes.NewReader(start)) // after an error, m has as much as could be read
	switch x.record.Verb {
	case "create":
		x.record.Name = cmp.Or(x.record.Name, m.name)
	case "update", "patch":
		x.record.RVBefore = m.resourceVersion
	case "delete", "deletecollection":
		x.record.DryRun = x.record.DryRun || m.dryRun
	}
	return &body{Reader: io.MultiReader(bytes.NewReader(start), from), Closer: from}, nil
}

// look reads as much of the response as it takes to find the outcome of the request.
func (x *exchange) look(response *http.Response, contentType string, through *relay) {
	if !x.hasObject(contentType) {
		return
	}
	if from, err := decompressed(response, through); err == nil {
		x.answer, _ = readMetadata(from) // after an error, it has as much as could be read
	}
	x.conclude()
}

// hasObject says whether the response is an object of the Kubernetes API.
func (x *exchange) hasObject(contentType string) bool {
	return x.record.Resource != "" && x.proxy.outside == "" && x.record.Subresource != "proxy" &&
		(contentType == "application/json" || contentType == "application/vnd.kubernetes.protobuf")
}

// conclude completes the record from the metadata in the response, before the client gets it. In particular, it decides
// whether a write was a no-op.
//
// A write that changes nothing leaves the resourceVersion as it was, and the response has the object at that
// resourceVersion. To other writes, Kubernetes 1.37 responds as follows:
//
//   - An update or patch that changes something: the object at its new resourceVersion. Applying as another field
//     manager changes managedFields, so it is such a change.
//   - An update or patch that removes the last finalizer of an object that is being deleted, and so the object: the
//     object as requested, at its previous resourceVersion. This is not a no-op.
//   - A delete that starts graceful deletion or waits for finalizers: the object with its deletionTimestamp, at a new
//     resourceVersion. Another delete before the object is gone: the same object at the same resourceVersion, so it is
//     a no-op, unless it shortens the grace period.
//   - A delete that removes the object: for Pods and a few other kinds, the object at the resourceVersion of its
//     removal; for all others, a Status without a resourceVersion.
//   - A dry run: the object at a resourceVersion that it may never have had.
func (x *exchange) conclude() {
	m, r := x.answer, &x.record
	seen := x.proxy.seen
	if r.Status < 200 || r.Status >= 300 {
		if r.Status == http.StatusNotFound && r.Subresource == "" {
			seen.gone(x.object())
		}
		return
	}
	if m.kind == "Status" {
		if r.Verb == "delete" && r.Subresource == "" && !r.DryRun {
			seen.gone(x.object())
		}
		return
	}
	r.UID, r.RVAfter = m.uid, m.resourceVersion
	if r.Verb == "create" {
		r.Name = cmp.Or(m.name, r.Name)
	}
	if r.Status == http.StatusCreated {
		r.RVBefore = "" // it was the version of a deleted object with the same name
	}
	if r.DryRun {
		return
	}
	switch r.Verb {
	case "list":
		seen.version(x.resource(), r.RVAfter)
	case "get", "create":
		seen.object(x.object(), r.RVAfter)
	case "update", "patch", "delete":
		if m.removed() || r.Verb == "delete" && !m.deleting {
			seen.gone(x.object())
			seen.version(x.resource(), r.RVAfter)
			return
		}
		r.NoOp = r.RVAfter != "" && (r.RVAfter == r.RVBefore || isAtMost(r.RVAfter, x.latest))
		seen.object(x.object(), r.RVAfter)
	}
}
