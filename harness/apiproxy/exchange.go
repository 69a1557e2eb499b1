package apiproxy

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"mime"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/controllers/harness/history"
)

// exchange is a request on its way.
type exchange struct {
	proxy     *Proxy
	writer    http.ResponseWriter
	in        *http.Request
	ctx       context.Context // ends when the client goes away or the proxy stops; its cause says which
	as        *identity
	injection injection

	record history.Request
	latest string // the highest resourceVersion of the resource that had been seen when it was sent on
	answer metadata
}

var (
	errClientGone = errors.New("the client went away")
	errOnPurpose  = errors.New("broken off on purpose by the workshop's proxy")
)

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	if !p.enter() {
		panic(http.ErrAbortHandler)
	}
	defer p.requests.Done()
	start := time.Now()
	x := &exchange{proxy: p, writer: w, in: r}
	x.describe()
	x.record.ID = p.lastID.Add(1)
	x.record.Start = start
	x.injection = p.inject(x.record)
	x.record.Injected = x.injection.injected("")

	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	defer context.AfterFunc(p.ctx, func() { cancel(errStopped) })()
	defer context.AfterFunc(r.Context(), func() { cancel(errClientGone) })()
	defer cancel(nil)
	x.ctx = ctx

	if x.injection.lost == LostLate {
		x.sendLater()
		panic(http.ErrAbortHandler)
	}
	if err := x.end(x.serve()); err != nil {
		panic(http.ErrAbortHandler) // the client sees its stream or connection break
	}
}

// end records the exchange, which has ended with this error, and returns why it did.
func (x *exchange) end(err error) error {
	if err != nil && x.ctx.Err() != nil {
		err = context.Cause(x.ctx)
	}
	if errors.Is(err, errClientGone) && x.proxy.ctx.Err() != nil { // because of us
		err = context.Cause(x.proxy.ctx)
	}
	if err != nil && !(x.isStream() && errors.Is(err, errClientGone)) { // that is how they end
		x.record.Error = err.Error()
	}
	x.record.Duration = time.Since(x.record.Start)
	x.proxy.recordRequest(x.record)
	return err
}

// sendLater sends the request on when nobody waits for its answer any more.
func (x *exchange) sendLater() {
	if isUpgrade(x.in) {
		_ = x.end(errOnPurpose)
		return
	}
	body, err := io.ReadAll(x.in.Body)
	if err != nil || !x.proxy.enter() {
		_ = x.end(cmp.Or(err, errStopped))
		return
	}
	x.ctx = x.proxy.ctx
	x.in = x.in.Clone(x.ctx)
	x.in.Body = io.NopCloser(bytes.NewReader(body))
	go func() {
		defer x.proxy.requests.Done()
		_ = x.end(x.serve())
	}()
}

// describe fills in what the request itself says.
func (x *exchange) describe() {
	r := x.in
	x.as, x.record.Who = x.proxy.identify(r)
	x.record.Agent = r.UserAgent()
	info, _ := x.proxy.info.NewRequestInfo(r) // with an error, it says what it could find
	x.record.Verb = info.Verb
	if info.IsResourceRequest {
		x.record.Group, x.record.Version, x.record.Resource = info.APIGroup, info.APIVersion, info.Resource
		x.record.Subresource, x.record.Namespace, x.record.Name = info.Subresource, info.Namespace, info.Name
	}
	if info.IsResourceRequest && x.proxy.outside != "" {
		x.record.Group = x.proxy.outside
	}
	x.record.URI = uri(r.URL, info.Subresource)
	x.record.DryRun = len(r.URL.Query()["dryRun"]) > 0
}

// uri is the path and the query, without what may be secret: the command of an exec, and the query of
// what is not for the API server.
func uri(u *url.URL, subresource string) string {
	path, query, has := strings.Cut(u.RequestURI(), "?")
	if !has || subresource == "proxy" {
		return path
	}
	var parts []string
	for part := range strings.SplitSeq(query, "&") {
		key, _, _ := strings.Cut(part, "=")
		if name, err := url.QueryUnescape(key); err != nil || name == "command" {
			part = "command="
		}
		parts = append(parts, part)
	}
	return path + "?" + strings.Join(parts, "&")
}

// object is what is known by the request's resource, namespace and name.
func (x *exchange) object() object {
	o := object{x.resource(), x.record.Namespace, x.record.Name}
	if o.resource == (resource{"", "namespaces"}) {
		o.namespace = "" // a request for a Namespace is in it, its events are not
	}
	return o
}

func (x *exchange) resource() resource { return resource{x.record.Group, x.record.Resource} }

// isStream says whether the client may end the request when it has had enough.
func (x *exchange) isStream() bool {
	return x.record.Status != 0 && (x.record.Verb == "watch" || x.record.Subresource == "log") ||
		x.record.Status == http.StatusSwitchingProtocols
}

// serve returns an error if the client is to see its connection break.
func (x *exchange) serve() error {
	if x.injection.stop {
		x.proxy.stop()
	}
	if x.injection.delay > 0 {
		select {
		case <-time.After(x.injection.delay):
		case <-x.ctx.Done():
			return context.Cause(x.ctx)
		}
	}
	switch {
	case x.injection.down != 0:
		x.proxy.gate.close(x.injection.down)
		return errOnPurpose
	case x.injection.kill == Before:
		x.proxy.kill()
		return errOnPurpose
	case x.injection.crash == Before:
		x.proxy.crash()
		return errOnPurpose
	case x.injection.lost == LostRequest:
		return errOnPurpose
	case x.injection.refusal != nil && !x.injection.losesReply():
		return x.refuse(x.injection.refusal)
	}
	if isUpgrade(x.in) {
		return x.upgrade()
	}
	body := &prefix{from: x.in.Body}
	defer func() { x.record.Sent = body.sent() }()
	response, err := x.forward(body)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	x.record.Status = response.StatusCode
	x.learn(body)
	if x.injection.losesReply() {
		return x.lose(response)
	}
	return x.reply(response)
}

// lose takes the answer, and does not pass it on. What is recorded is what the API server answered.
func (x *exchange) lose(response *http.Response) error {
	through := newRelay(response.Body, func(data []byte) error {
		x.record.Received += int64(len(data))
		return nil
	})
	contentType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	x.look(response, contentType, through)
	if err := through.finish(); err != nil {
		return err
	}
	switch {
	case x.injection.kill == After:
		x.proxy.kill()
	case x.injection.crash == After:
		x.proxy.crash()
	case x.injection.refusal != nil:
		status, received := x.record.Status, x.record.Received
		err := x.refuse(x.injection.refusal)
		x.record.Status, x.record.Received = status, received
		x.record.Error = fmt.Sprintf("the client was answered %d", x.injection.refusal.Refuse)
		return err
	}
	return errOnPurpose
}

// refuse answers in the API server's place, as it would.
func (x *exchange) refuse(f *Fault) error {
	retry := int((f.RetryAfter + time.Second - 1) / time.Second)
	status := apierrors.NewGenericServerResponse(f.Refuse, x.in.Method,
		schema.GroupResource{Group: x.record.Group, Resource: x.record.Resource}, x.record.Name, "", retry, false).Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	status.Message = fmt.Sprintf("refused on purpose by the workshop's proxy (%s): %s", f, status.Message)
	body, err := json.Marshal(status)
	if err != nil {
		return err
	}
	x.record.Status = f.Refuse
	x.record.Received = int64(len(body))
	header := x.writer.Header()
	header.Set("Content-Type", "application/json")
	if retry > 0 {
		header.Set("Retry-After", strconv.Itoa(retry))
	}
	x.writer.WriteHeader(f.Refuse)
	_, err = x.writer.Write(body)
	return err
}

// hopByHop are the headers of a connection, not of a request.
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

// forward sends the request on.
func (x *exchange) forward(body *prefix) (*http.Response, error) {
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
		out.Header.Del("Accept-Encoding") // events that are compressed together cannot be taken apart
	}
	if out.Header.Get("User-Agent") == "" {
		out.Header.Set("User-Agent", "") // or else Go would send its own
	}
	switch x.record.Verb {
	case "update", "patch", "delete":
		x.record.RVBefore, x.latest = x.proxy.seen.before(x.object())
	}
	return x.as.transport.RoundTrip(out)
}

// path is the request's URL, without our own prefix.
func (x *exchange) path() url.URL {
	u := *x.in.URL
	if x.proxy.outside != "" {
		prefix := "/" + x.proxy.outside
		u.Path, u.RawPath = strings.TrimPrefix(u.Path, prefix), strings.TrimPrefix(u.RawPath, prefix)
	}
	return u
}

// narrowed is where a request goes that asks for all namespaces, where it is to be told of one.
func (x *exchange) narrowed(u *url.URL) *url.URL {
	r := x.record
	isWide := (r.Verb == "list" || r.Verb == "watch") && r.Namespace == "" && r.Name == ""
	if !isWide || !slices.Contains(x.proxy.within, schema.GroupResource{Group: r.Group, Resource: r.Resource}) {
		return u
	}
	path := strings.TrimSuffix(u.Path, "/"+r.Resource)
	u.Path, u.RawPath = path+"/namespaces/"+x.proxy.namespace+"/"+r.Resource, ""
	return u
}

// prefix is a body on its way to the API server, of which the beginning is kept for a while.
type prefix struct {
	from io.ReadCloser

	mu    sync.Mutex // the transport may go on reading when the answer is there
	start []byte
	count int64
}

// kept is how much is kept of the body of a request.
const kept = 256 << 10

// Read implements io.Reader.
func (b *prefix) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count += int64(n)
	b.start = append(b.start, p[:min(n, kept-len(b.start))]...)
	return n, err
}

// Close implements io.Closer.
func (b *prefix) Close() error { return b.from.Close() }

// metadata returns what is known of what was sent, and forgets it.
func (b *prefix) metadata() metadata {
	b.mu.Lock()
	defer b.mu.Unlock()
	m, _ := readMetadata(bytes.NewReader(b.start)) // as much as there is
	b.start = nil
	return m
}

func (b *prefix) sent() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count
}

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

// reply passes the answer on.
func (x *exchange) reply(response *http.Response) error {
	header := x.writer.Header()
	for name, values := range response.Header {
		header[name] = values
	}
	dropHopByHop(header)
	contentType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	isWatch := x.record.Verb == "watch" && response.StatusCode == http.StatusOK
	if isWatch {
		open := x.record
		open.Open = true
		open.Duration = time.Since(open.Start)
		x.proxy.recordRequest(open)
	}
	x.writer.WriteHeader(response.StatusCode)
	flush := http.NewResponseController(x.writer).Flush
	if response.ContentLength != 0 { // the client has the headers as soon as we do, and Go guesses no more of them
		if flush() != nil {
			return errClientGone
		}
	}
	write := func(data []byte) error {
		if _, err := x.writer.Write(data); err != nil || flush() != nil {
			return errClientGone
		}
		return nil
	}
	if isWatch && x.injection.editsWatch() {
		return x.edit(response, contentType, write)
	}
	if isWatch {
		return x.watch(response, contentType, write)
	}

	through := newRelay(response.Body, func(data []byte) error {
		x.record.Received += int64(len(data))
		return write(data)
	})
	x.look(response, contentType, through)
	return through.finish()
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

// decompressed returns what is in a body that is read through a relay.
func decompressed(response *http.Response, through *relay) (io.Reader, error) {
	switch encoding := response.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
		return through, nil
	case "gzip":
		return &unzip{from: through}, nil
	default:
		return nil, fmt.Errorf("it is encoded as %s", encoding)
	}
}

// unzip decompresses gzip members, one after the other. Unlike a gzip.Reader, it returns the last of a
// member before it looks for the next one, which may be long in coming.
type unzip struct {
	from   *relay
	member *gzip.Reader // nil before the first
	ended  bool
}

// Read implements io.Reader.
func (u *unzip) Read(p []byte) (n int, err error) {
	for n == 0 && err == nil {
		switch {
		case u.member == nil:
			u.member, err = gzip.NewReader(u.from)
		case u.ended:
			err = u.member.Reset(u.from)
		}
		if err != nil {
			return 0, err
		}
		u.member.Multistream(false)
		n, err = u.member.Read(p)
		if u.ended = errors.Is(err, io.EOF); u.ended {
			err = nil
		}
	}
	return n, err
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

// upgrade passes on a request that becomes something else than HTTP, such as an exec. Its bytes are not
// counted.
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
