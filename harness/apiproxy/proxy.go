// Package apiproxy is a proxy between a controller and its API server that records every request and injects faults.
// It works on the wire, for any client in any language, and guarantees:
//
//   - Transparent: without a fault, bodies are forwarded byte for byte as they arrive, JSON or protobuf, compressed or
//     not, watches event by event. So are headers, except tokens that the proxy has issued. When the client goes away,
//     its request is cancelled; when the API server goes away, the client's connection or stream breaks. The proxy
//     never makes up a response.
//   - No privilege of its own: the configurations that it hands out hold a random token that stands for an identity of
//     the API server. The identity's own credentials never leave the proxy. A request with other credentials is
//     forwarded with those, and one without any is forwarded without: the API server decides.
//   - Discreet: a recording names objects. It never holds their content, nor credentials. See package
//     [example.com/controllers/harness/history].
//   - Deliberate: requests are disturbed only as a [Fault] says, and every disturbance is recorded with its request.
//
// A client can tell one difference: an API server that is down refuses connections, while the proxy accepts the request
// and then breaks the connection.
//
// The proxy can also stand in front of another HTTP API: see [Options.Outside].
package apiproxy

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/history"
)

// Options configure a proxy.
type Options struct {
	// Upstream is the API server, and the identity that clients of [Proxy.Config] act as. It is required.
	Upstream *rest.Config
	// Listen is the address to listen on, host:port. The default is "127.0.0.1:0": any free port.
	Listen string
	// Record is called with each record, never concurrently, and with an event before the client gets it. Requests and
	// events wait for it, so it must be quick. It may be nil.
	Record func(history.Record)
	// Faults are the faults to inject, until [Proxy.SetFaults] replaces them.
	Faults []Fault
	// Armed are further faults to inject until then, which other proxies may have too.
	Armed []*Armed
	// Kill and Crash are called by faults with [Effect.Kill] and [Effect.Crash]. They kill the controller or the
	// control plane, and return when it has exited. A fault whose function is nil is an error, here and below.
	Kill, Crash func()
	// Stop is called by faults with [Effect.Stop], and asks the controller to shut down. Here and below, done is false if
	// there was nothing to do it to, and the proxy then records the fault as skipped.
	Stop func() (done bool)
	// Freeze is called by faults with [Effect.Freeze]. It stops the controller's process, lets it continue after that
	// time, or when ctx ends or the process is to end, and returns then.
	Freeze func(ctx context.Context, long time.Duration) (done bool)
	// FailMachine is called by faults with [Effect.Reboot] (kind MachineRebooted) and [Effect.PowerCut] (PowerCut), with
	// [Effect.OffFor] and the request that they are for. It returns when the machine is off, or when ctx ends; own reports
	// whether the controller ran on it.
	FailMachine func(ctx context.Context, kind history.InjectionKind, offFor time.Duration, request history.Request) (own, done bool)
	// Hold is called when a fault begins to keep the client waiting: for the answer to a request (kinds Delayed,
	// AnsweredLate, NoAnswer and ControllerFrozen), for events (EventsLate), or because it cannot connect
	// (Disconnected). The proxy calls the function that it returns when that is over. Hold may be nil. The proxy may
	// call it concurrently.
	Hold func(history.InjectionKind) (over func())
	// Namespace and Within confine a controller that works in all namespaces to one: a list or watch of a resource
	// Within across all namespaces is sent on as one of Namespace, and one of namespaces has only that one.
	Namespace string
	Within    []schema.GroupResource
	// Keys hold the proxy's certificate and the token of [Proxy.Config]. With the keys of an earlier proxy at the same
	// address, that proxy's clients go on without a new configuration. If nil, the proxy makes new keys.
	Keys *Keys
	// Outside, if not "", makes this the proxy of an HTTP API that is not a Kubernetes API server, with paths such as
	// /VERSION/RESOURCE and /VERSION/RESOURCE/NAME. Clients find them under /Outside/ on the proxy, without TLS or
	// identities. Requests are recorded, and matched by faults, with Outside as their group and the verbs of
	// Kubernetes: a POST is a create, a PUT an update. The proxy does not look into their bodies.
	Outside string
}

// Proxy is a running proxy. All methods may be called concurrently.
type Proxy struct {
	record         func(history.Record)
	recordM        sync.Mutex // held during each call of record
	keys           *Keys
	info           *apirequest.RequestInfoFactory
	seen           *seen
	lastID         atomic.Int64
	lastConnection atomic.Int64 // number of the last connection

	upstream  *identity
	anonymous *identity // adds no credentials; for requests that have credentials of their own, or none

	outside     string
	namespace   string
	within      []schema.GroupResource
	gate        *gate
	kill, crash func()
	stop        func() (done bool)
	freeze      func(context.Context, time.Duration) (done bool)
	failMachine func(context.Context, history.InjectionKind, time.Duration, history.Request) (own, done bool)
	hold        func(history.InjectionKind) (over func())

	url        string // base URL for clients
	isLoopback bool   // url is reachable from this machine only
	server     *http.Server
	ctx        context.Context // cancelled when the proxy is to stop
	cancel     context.CancelCauseFunc
	done       chan struct{} // closed when all goroutines of the proxy have ended
	err        error         // why the listener failed, or nil; set before done is closed

	mu         sync.Mutex
	identities map[[sha256.Size]byte]*identity // by the SHA-256 of the token that the proxy issued for it
	faults     []*Armed
	release    chan struct{}  // closed, and replaced, when held events are released
	stopped    bool           // true once the proxy accepts no more requests
	requests   sync.WaitGroup // requests in flight
}

var errStopped = errors.New("the proxy was stopped")

// Start starts a proxy, which runs until ctx ends or [Proxy.Stop] is called.
func Start(ctx context.Context, o Options) (*Proxy, error) {
	switch {
	case o.Upstream == nil:
		return nil, errors.New("start a proxy: Options.Upstream is nil; it must be the API server's configuration")
	case strings.Trim(o.Outside, "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
		return nil, fmt.Errorf("start a proxy: Options.Outside is %q; it becomes part of paths, so it may contain only a-z, 0-9 and -", o.Outside)
	}
	p := &Proxy{
		record: o.Record,
		keys:   o.Keys,
		info: &apirequest.RequestInfoFactory{
			APIPrefixes:          sets.NewString("api", "apis"),
			GrouplessAPIPrefixes: sets.NewString("api"),
		},
		seen:       newSeen(),
		identities: map[[sha256.Size]byte]*identity{},
		done:       make(chan struct{}),
		release:    make(chan struct{}),
		kill:       o.Kill,
		crash:      o.Crash,
		stop:       o.Stop,
		freeze:     o.Freeze,

		failMachine: o.FailMachine,

		hold:      o.Hold,
		outside:   o.Outside,
		namespace: o.Namespace,
		within:    o.Within,
	}
	if p.outside != "" {
		p.info = &apirequest.RequestInfoFactory{
			APIPrefixes: sets.NewString(p.outside), GrouplessAPIPrefixes: sets.NewString(p.outside),
		}
	}
	if p.record == nil {
		p.record = func(history.Record) {}
	}
	if p.hold == nil {
		p.hold = func(history.InjectionKind) (over func()) { return func() {} }
	}
	armed := slices.Clone(o.Armed)
	for _, fault := range o.Faults {
		armed = append(armed, Arm(fault))
	}
	if err := p.arm(armed); err != nil {
		return nil, err
	}
	var err error
	if p.keys == nil {
		if p.keys, err = NewKeys(); err != nil {
			return nil, err
		}
	}
	certificate, err := tls.X509KeyPair(p.keys.Certificate, p.keys.Key)
	if err != nil {
		return nil, fmt.Errorf("use the proxy's certificate: %w", err)
	}
	if p.upstream, err = newIdentity(o.Upstream); err != nil {
		return nil, err
	}
	if p.anonymous, err = newIdentity(rest.AnonymousClientConfig(o.Upstream)); err != nil {
		return nil, err
	}
	p.identities[sha256.Sum256([]byte(p.keys.Token))] = p.upstream

	address := o.Listen
	if address == "" {
		address = "127.0.0.1:0"
	}
	if p.gate, err = newGate(ctx, address); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	at := p.gate.Addr().(*net.TCPAddr)
	if at.IP.IsUnspecified() {
		at = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: at.Port} // an unspecified address includes the loopback address
	}
	p.url = (&url.URL{Scheme: "https", Host: at.String()}).String()
	if p.outside != "" {
		p.url = (&url.URL{Scheme: "http", Host: at.String(), Path: p.outside}).String()
	}
	p.isLoopback = at.IP.IsLoopback()
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	p.server = &http.Server{
		Handler:   http.HandlerFunc(p.serve),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, connectionKey{}, p.lastConnection.Add(1))
		},
		ErrorLog: log.New(io.Discard, "", 0), // it would log TLS handshakes that clients broke off, and aborted requests
	}
	go p.run()
	return p, nil
}

// connectionKey is the key of a connection's number in the context of its requests.
type connectionKey struct{}

func (p *Proxy) run() {
	served := make(chan error, 1)
	go func() {
		if p.outside != "" {
			served <- p.server.Serve(p.gate)
			return
		}
		served <- p.server.ServeTLS(p.gate, "", "")
	}()
	var err error
	ended := false
	select {
	case <-p.ctx.Done():
	case err = <-served:
		ended = true
		p.cancel(err)
	}
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	p.server.Close() // its only error is that the listener is closed already
	if !ended {
		<-served
	}
	p.requests.Wait()
	p.mu.Lock()
	for _, identity := range p.identities {
		identity.close()
	}
	p.mu.Unlock()
	p.anonymous.close()
	p.err = err
	close(p.done)
}

// Stop ends the proxy. When it returns, the last request has been recorded. It returns why the proxy had failed
// before, or nil.
func (p *Proxy) Stop() error {
	p.cancel(errStopped)
	<-p.done
	return p.err
}

// Done returns a channel that is closed when the proxy has ended, for whatever reason.
func (p *Proxy) Done() <-chan struct{} { return p.done }

// Wait waits until the proxy has ended. It returns nil if the proxy was stopped, or why it failed.
func (p *Proxy) Wait() error {
	<-p.done
	return p.err
}

// URL returns the base URL of the proxy.
func (p *Proxy) URL() string { return p.url }

// Arrived returns how many requests have arrived so far, including those in flight.
func (p *Proxy) Arrived() int64 { return p.lastID.Load() }

// Config returns a client configuration that goes through the proxy and acts as the identity of
// [Options.Upstream]. It has the same rate limits and content types.
func (p *Proxy) Config() *rest.Config { return p.config(p.upstream.config, p.keys.Token) }

// ConfigFor is like [Proxy.Config], for another identity of the same API server.
func (p *Proxy) ConfigFor(config *rest.Config) (*rest.Config, error) {
	identity, err := newIdentity(config)
	if err != nil {
		return nil, err
	}
	if identity.base.String() != p.upstream.base.String() {
		return nil, fmt.Errorf("the identity is for the API server %s, but this is a proxy of %s", identity.base, p.upstream.base)
	}
	token := newToken()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.identities[sha256.Sum256([]byte(token))] = identity
	return p.config(config, token), nil
}

func (p *Proxy) config(of *rest.Config, token string) *rest.Config {
	config := rest.AnonymousClientConfig(of)
	config.Host = p.url
	config.BearerToken = token
	config.TLSClientConfig = rest.TLSClientConfig{CAData: p.keys.CA}
	if !p.isLoopback {
		config.ServerName = "localhost" // the certificate is valid for loopback addresses only
	}
	config.Proxy, config.Dial = nil, nil
	return config
}

// enter counts a request as in flight, or returns false if the proxy has been stopped. If it returns true, the caller
// must call p.requests.Done when the request has ended.
func (p *Proxy) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return false
	}
	p.requests.Add(1)
	return true
}

// identify returns the identity to send a request on as, and its user, "" if unknown. It removes a token that the proxy
// has issued from the request, and leaves other credentials alone.
func (p *Proxy) identify(r *http.Request) (as *identity, who string) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		token = strings.TrimSpace(token)
		p.mu.Lock()
		as = p.identities[sha256.Sum256([]byte(token))]
		p.mu.Unlock()
		who = subject(token)
	}
	if as == nil {
		as = p.anonymous
	} else {
		r.Header.Del("Authorization")
		who = as.who
	}
	if user := r.Header.Get("Impersonate-User"); user != "" {
		who = user
	}
	return as, who
}

// recordRequest records a request as it is now.
func (p *Proxy) recordRequest(r *history.Request) {
	now := new(history.Request)
	*now = *r
	p.recordM.Lock()
	defer p.recordM.Unlock()
	p.record(history.Record{Request: now})
}

func (p *Proxy) recordEvent(e history.Event) {
	p.recordM.Lock()
	defer p.recordM.Unlock()
	p.record(history.Record{Event: &e})
}
