package apiproxy

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// hopByHop are the headers that belong to a connection and are not forwarded.
var hopByHop = []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

func dropHopByHop(h http.Header) {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hopByHop {
		h.Del(name)
	}
}

// forward sends the request to the API server, and returns the response.
func (x *exchange) forward(body *body) (*http.Response, error) {
	out := (&http.Request{
		Method:        x.in.Method,
		URL:           x.narrowed(x.as.url(x.path())),
		Header:        x.in.Header.Clone(),
		Body:          body,
		ContentLength: x.in.ContentLength,
	}).WithContext(x.ctx)
	if out.ContentLength == 0 {
		out.Body = nil
	}
	dropHopByHop(out.Header)
	if x.record.Verb == "watch" && x.injection.editsWatch() {
		out.Header.Del("Accept-Encoding") // events that are compressed together cannot be held back one by one
	}
	if out.Header.Get("User-Agent") == "" {
		out.Header.Set("User-Agent", "") // without this, net/http would send its own
	}
	switch x.record.Verb {
	case "update", "patch", "delete":
		before, latest := x.proxy.seen.before(x.object())
		x.record.RVBefore, x.latest = cmp.Or(x.record.RVBefore, before), latest
	}
	return x.as.transport.RoundTrip(out)
}

// path returns the request's URL without the prefix that stands for [Options.Outside].
func (x *exchange) path() url.URL {
	u := *x.in.URL
	if x.proxy.outside != "" {
		prefix := "/" + x.proxy.outside
		u.Path, u.RawPath = strings.TrimPrefix(u.Path, prefix), strings.TrimPrefix(u.RawPath, prefix)
	}
	return u
}

// narrowed confines a list or watch across all namespaces to [Options.Namespace], if its resource is in Within, and one of namespaces.
func (x *exchange) narrowed(u *url.URL) *url.URL {
	r := &x.record
	if x.proxy.namespace != "" && r.Group == "" && r.Resource == "namespaces" && (r.Verb == "list" || r.Verb == "watch") {
		query := u.Query()
		if query.Get("fieldSelector") == "" {
			query.Set("fieldSelector", "metadata.name="+x.proxy.namespace)
			u.RawQuery = query.Encode()
		}
		return u
	}
	// One for objects of a certain name (fieldSelector) has a name, too.
	isWide := (r.Verb == "list" || r.Verb == "watch") && r.Namespace == "" && strings.HasSuffix(u.Path, "/"+r.Resource)
	if !isWide || !slices.Contains(x.proxy.within, schema.GroupResource{Group: r.Group, Resource: r.Resource}) {
		return u
	}
	path := strings.TrimSuffix(u.Path, "/"+r.Resource)
	u.Path, u.RawPath = path+"/namespaces/"+x.proxy.namespace+"/"+r.Resource, ""
	return u
}
