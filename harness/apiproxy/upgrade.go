package apiproxy

import (
	"cmp"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"strings"
)

func isUpgrade(r *http.Request) bool {
	if r.Header.Get("Upgrade") == "" {
		return false
	}
	for _, line := range r.Header["Connection"] {
		for word := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(word), "Upgrade") {
				return true
			}
		}
	}
	return false
}

// upgrades reports whether the request may switch protocols. A watch may not: its events must be seen. Some clients ask for it
// over WebSocket first; they get the ordinary response instead, which a server may always give, and read that.
func (x *exchange) upgrades() bool { return isUpgrade(x.in) && x.record.Verb != "watch" }

// upgrade forwards a request that switches protocols, such as an exec. The bytes that follow are not counted.
func (x *exchange) upgrade() (err error) {
	defer func() {
		if v := recover(); v != nil {
			if v != http.ErrAbortHandler {
				panic(v)
			}
			err = cmp.Or(err, errors.New("the connection broke"))
		}
	}()
	through := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL = x.as.url(x.path())
			r.Out.Host = ""
		},
		Transport: x.as.upgrading,
		ModifyResponse: func(r *http.Response) error {
			x.record.Status = r.StatusCode
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, failed error) { err = failed },
		ErrorLog:     log.New(io.Discard, "", 0),
	}
	through.ServeHTTP(x.writer, x.in.WithContext(x.ctx))
	return err
}
