package apiproxy

import (
	"cmp"
	"net/http"
)

// learn looks at what was sent.
func (x *exchange) learn(body *prefix) {
	if x.record.Resource == "" || x.proxy.outside != "" || x.record.Subresource == "proxy" {
		return
	}
	m := body.metadata()
	switch x.record.Verb {
	case "create":
		x.record.Name = cmp.Or(x.record.Name, m.name)
	case "update", "patch":
		x.record.RVBefore = cmp.Or(m.resourceVersion, x.record.RVBefore)
	case "delete", "deletecollection":
		x.record.DryRun = x.record.DryRun || m.dryRun
	}
}

// look reads as much of the answer as it needs to know what came of the request.
func (x *exchange) look(response *http.Response, contentType string, through *relay) {
	if !x.hasObject(contentType) {
		return
	}
	if from, err := decompressed(response, through); err == nil {
		x.answer, _ = readMetadata(from) // as much as there is
	}
	x.conclude()
}

// hasObject says whether the answer is one of the API server's objects.
func (x *exchange) hasObject(contentType string) bool {
	return x.record.Resource != "" && x.proxy.outside == "" && x.record.Subresource != "proxy" &&
		(contentType == "application/json" || contentType == "application/vnd.kubernetes.protobuf")
}

// conclude draws what can be concluded from the answer's metadata, before the client has them.
//
// A write that changes nothing leaves the resourceVersion as it was, and the API server answers with
// the object at that one. What Kubernetes 1.37 answers to the others:
//
//   - An update or patch, by any kind of patch, that changes something: the object at its new
//     resourceVersion. To apply as another field manager changes the managed fields, which is something.
//   - An update or patch that takes the last finalizer of an object that is being deleted, and so removes
//     it: the object as it was asked for, at the resourceVersion from before. It is no no-op.
//   - A delete that starts a graceful one, or waits for finalizers: the object with its
//     deletionTimestamp, at a new resourceVersion. Another delete meanwhile: the same object at the same
//     resourceVersion, unless it shortens the grace period; so it is a no-op.
//   - A delete that removes: the object, for Pods and a few more, at the resourceVersion of the removal;
//     for the rest a Status without one.
//   - A dry run: the object at a resourceVersion that may not be anybody's.
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
		r.RVBefore = "" // of one that was there before
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
