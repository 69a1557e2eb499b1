package main

import (
	"net/http"
	"strings"
)

// writeOnce keeps client-go from sending a write of a Secret again. It does that, after a pause and up to ten times, if the
// response says when to try again. By then, the source may have been deleted or the copy changed, so the controller has to decide
// again. It is for [rest.Config.Wrap].
func writeOnce(next http.RoundTripper) http.RoundTripper { return writtenOnce{next} }

type writtenOnce struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t writtenOnce) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	if err == nil && r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/secrets") {
		response.Header.Del("Retry-After")
	}
	return response, err
}
