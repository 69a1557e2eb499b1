package apiproxy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"example.com/controllers/harness/history"
)

// exchange is a request in flight, from its arrival until its response has been forwarded.
type exchange struct {
	proxy     *Proxy
	writer    http.ResponseWriter
	in        *http.Request
	ctx       context.Context // cancelled when the client goes away or the proxy stops; its cause says which
	as        *identity
	injection injection

	record history.Request // filled in on the way, recorded at the end
	shuts  int             // how often the gate had been shut when it began
	latest string          // highest resourceVersion of the resource that the proxy had seen when it sent the request on
	answer metadata        // of the object in the response; zero until read
}

var (
	errClientGone = errors.New("the client went away")
	errOnPurpose  = errors.New("broken off on purpose by the workshop's proxy")
)

// serve is the life of an exchange.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	if !p.enter() {
		panic(http.ErrAbortHandler)
	}
	defer p.requests.Done()
	start := time.Now()
	x := &exchange{proxy: p, writer: w, in: r}
	x.shuts, _ = p.gate.count()
	x.describe()
	x.record.ID = p.lastID.Add(1)
	x.record.Start = start
	if r.ProtoMajor == 2 {
		x.record.Connection, _ = r.Context().Value(connectionKey{}).(int64)
	}
	if faults := p.currentFaults(); len(faults) > 0 {
		x.inject(faults)
	}

	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	defer context.AfterFunc(p.ctx, func() { cancel(errStopped) })()
	defer context.AfterFunc(r.Context(), func() { cancel(errClientGone) })()
	defer cancel(nil)
	x.ctx = ctx

	if x.injection.Lost == LostLate {
		x.sendLater()
		panic(http.ErrAbortHandler)
	}
	if err := x.end(x.run()); err != nil {
		panic(http.ErrAbortHandler) // the client sees its stream or connection break
	}
}

// inject decides what the faults do to the exchange, and records that.
func (x *exchange) inject(faults []*Armed) {
	x.injection = inject(faults, x.record)
	x.record.Injected = x.injection.recorded("")
}

// end records an exchange that has ended with err. It returns the cause: err itself, or why the exchange was cancelled.
func (x *exchange) end(err error) error {
	if err != nil && x.ctx.Err() != nil {
		err = context.Cause(x.ctx)
	}
	if errors.Is(err, errClientGone) {
		switch shuts, shut := x.proxy.gate.count(); { // the proxy closed the connection
		case x.proxy.ctx.Err() != nil:
			err = context.Cause(x.proxy.ctx)
		case shut, shuts != x.shuts:
			err = errOnPurpose
		}
	}
	if err != nil && !(x.isStream() && errors.Is(err, errClientGone)) { // a client ends a stream by going away
		x.record.Error, x.record.GaveUp = err.Error(), errors.Is(err, errClientGone)
	}
	x.record.Duration = time.Since(x.record.Start)
	x.proxy.recordRequest(&x.record)
	return err
}

// sendLater sends the request on in the background, after its caller has broken the client's connection.
func (x *exchange) sendLater() {
	isLater := func(i history.Injection) bool { return i.Kind == history.DoneLate }
	x.injection.Refuse, x.injection.AnswerLate = 0, 0
	x.skip(func(i history.Injection) bool {
		return i.Kind == history.Refused || i.Kind == history.AnsweredLate || i.IsOnEvents()
	}, "the client had gone")
	if x.upgrades() {
		x.skip(isLater, "it would have upgraded the connection")
		_ = x.end(errOnPurpose)
		return
	}
	body, err := io.ReadAll(x.in.Body)
	if err != nil || !x.proxy.enter() {
		x.skip(isLater, "the request did not arrive as a whole, or the proxy stopped")
		_ = x.end(cmp.Or(err, errStopped))
		return
	}
	x.ctx = x.proxy.ctx
	x.in = x.in.Clone(x.ctx)
	x.in.Body = io.NopCloser(bytes.NewReader(body))
	go func() {
		defer x.proxy.requests.Done()
		_ = x.end(x.run())
	}()
}

// skip records that some of what was to be done to the request cannot be done, and why.
func (x *exchange) skip(which func(history.Injection) bool, why string) {
	x.record.Injected = slices.Clone(x.record.Injected) // the recorder may have the open watch's
	for i := range x.record.Injected {
		if one := &x.record.Injected[i]; one.Skipped == "" && which(*one) {
			one.Skipped = why
		}
	}
}

// skipKind is skip for one kind of injection.
func (x *exchange) skipKind(kind history.InjectionKind, why string) {
	x.skip(func(i history.Injection) bool { return i.Kind == kind }, why)
}

// only records that what takes the place of the request, or of its answer, is this: of several faults, the first wins.
func (x *exchange) only(kind history.InjectionKind) {
	x.skip(func(i history.Injection) bool {
		return i.Kind != kind && (i.IsInstead() || i.IsOnAnswer() || i.IsOnEvents())
	}, "another fault came first")
}

// describe fills in what is known from the request itself.
func (x *exchange) describe() {
	r := x.in
	x.as, x.record.Who = x.proxy.identify(r)
	x.record.Agent = r.UserAgent()
	info, _ := x.proxy.info.NewRequestInfo(r) // after an error, info has as much as could be parsed
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

// uri returns the path and the query, without what may be secret: the command of an exec, the query of a request that is
// proxied to a Service, Pod or Node, and credentials in the query of a request to another API.
func uri(u *url.URL, subresource string) string {
	path, query, has := strings.Cut(u.RequestURI(), "?")
	if !has || subresource == "proxy" {
		return path
	}
	var parts []string
	for part := range strings.SplitSeq(query, "&") {
		key, _, _ := strings.Cut(part, "=")
		switch name, err := url.QueryUnescape(key); {
		case err != nil || name == "command":
			part = "command="
		case credential.MatchString(name):
			part = key + "="
		}
		parts = append(parts, part)
	}
	return path + "?" + strings.Join(parts, "&")
}

// credential matches the names of parameters whose values may be secret.
var credential = regexp.MustCompile(`(?i)key|token|secret|signature|\bsig\b|passw|credential|auth`)

// object returns the object that the request names.
func (x *exchange) object() object {
	o := object{x.resource(), x.record.Namespace, x.record.Name}
	if o.resource == (resource{"", "namespaces"}) {
		o.namespace = "" // requests for a Namespace have it as their namespace, its events do not
	}
	return o
}

func (x *exchange) resource() resource { return resource{x.record.Group, x.record.Resource} }

// isStream says whether the response has no end of its own, so that the client ends it by going away.
func (x *exchange) isStream() bool {
	return x.record.Status != 0 && (x.record.Verb == "watch" || x.record.Subresource == "log") ||
		x.record.Status == http.StatusSwitchingProtocols
}

// run carries out the injection and forwards the request and its response. If it returns an error, the client's
// connection must break.
func (x *exchange) run() error {
	if x.injection.Stop == Before {
		x.stop()
	}
	if err := x.wait(history.Delayed, x.injection.Delay); err != nil {
		return err
	}
	if x.injection.Freeze == Before {
		if err := x.freeze(); err != nil {
			return err
		}
	}
	if x.injection.failsMachine(Before) {
		if err := x.failMachine(Before); err != nil {
			return err
		}
	}
	switch {
	case x.injection.Down != 0:
		x.only(history.Disconnected)
		x.proxy.gate.close(x.injection.Down, x.proxy.hold(history.Disconnected))
		return errOnPurpose
	case x.injection.Kill == Before:
		x.only(history.ControllerKilled)
		x.proxy.kill()
		return errOnPurpose
	case x.injection.Crash == Before:
		x.only(history.ControlPlaneKilled)
		x.proxy.crash()
		return errOnPurpose
	case x.injection.Hang != 0:
		x.only(history.NoAnswer)
		return x.hang()
	case x.injection.Lost == LostRequest:
		x.only(history.RequestLost)
		return errOnPurpose
	case x.injection.Refuse != 0 && !x.injection.losesReply():
		x.skip(history.Injection.IsOnEvents, "the watch was refused")
		if err := x.holdReply(); err != nil {
			return err
		}
		return x.refuse()
	}
	if x.upgrades() {
		x.skip(history.Injection.IsOnAnswer, "the connection was to be upgraded")
		return x.upgrade()
	}
	body, err := x.learn()
	if err != nil {
		return err
	}
	defer func() { x.record.Sent = body.count.Load() }()
	response, err := x.forward(body)
	if err != nil {
		x.skip(func(i history.Injection) bool { return i.IsOnAnswer() || i.IsOnEvents() || i.Kind == history.Refused }, "no answer came")
		return err
	}
	defer response.Body.Close()
	x.record.Status = response.StatusCode
	switch {
	case x.injection.losesReply():
		return x.lose(response)
	case x.injection.holdsReply():
		return x.replyLate(response)
	}
	return x.reply(response)
}
