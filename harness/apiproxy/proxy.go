// Package apiproxy is a proxy between a controller and its API server that records what passes, and
// breaks it on request. It sits on the wire, so it works for any client in any language.
//
//   - What passes is passed byte for byte, as it comes: JSON and protobuf, compressed or not, watches
//     event by event. Headers too, but for the client's credentials where they were made here.
//   - It is no open door. The configurations it hands out hold a random token that stands for an
//     identity of the API server; the identity itself never leaves the proxy. A request with any other
//     credentials goes on with those, and one with none goes on with none: the API server decides.
//   - It is nothing that a client could notice. When the client goes away, its request does; when the
//     API server does, the client's connection or stream breaks, and no answer is made up.
//   - What is recorded names objects and never holds what is in them, nor credentials. See package
//     [example.com/controllers/harness/history].
//
// It can also stand before something that is no API server: see [Options.Outside].
//
// What a client can tell: an API server that is down refuses connections, while the proxy takes the
// request and breaks its stream.
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
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/history"
)

// Options say what a proxy does.
type Options struct {
	// Upstream is the API server, and the identity that clients of [Proxy.Config] act as.
	Upstream *rest.Config
	// Listen is the address to listen on, host:port; "127.0.0.1:0" if it is empty.
	Listen string
	// Record is told what has passed, one record at a time. It is called before the client can know, so
	// it has to be quick. It may be nil.
	Record func(history.Record)
	// Faults are what goes wrong on purpose.
	Faults []Fault
	// Kill and Crash are what faults with Kill and Crash call; each kills something and returns when it is
	// dead. Stop is called by faults with Stop, and asks for an end. Without them, there can be no such faults.
	Kill, Crash, Stop func()
	// Namespace and Within narrow what a client sees: who lists or watches one of the resources Within in all
	// namespaces, is told of Namespace alone. So a controller that works everywhere works in one place.
	Namespace string
	Within    []schema.GroupResource
	// Keys are what the proxy proves itself with, and the token of [Proxy.Config]. With those of an
	// earlier proxy at the same address, its clients go on. If it is nil, new ones are made.
	Keys *Keys
	// Outside, if it is not "", is the name of something else than an API server, with an API whose paths are
	// /VERSION/RESOURCE and /VERSION/RESOURCE/NAME. There is no TLS then and there are no identities, and what is
	// at such a path is found at /Outside/VERSION/RESOURCE of the proxy. Its requests are those of the group Outside:
	// a POST is a create, a PUT an update. Of what is in them, nothing is known.
	Outside string
}

// Proxy is a proxy that runs.
type Proxy struct {
	record  func(history.Record)
	recordM sync.Mutex // held for each call of record
	keys    *Keys
	info    *apirequest.RequestInfoFactory
	seen    *seen
	lastID  atomic.Int64

	upstream  *identity
	anonymous *identity // of requests that have credentials of their own, or none

	outside           string
	namespace         string
	within            []schema.GroupResource
	gate              *gate
	kill, crash, stop func()

	url        string // where clients find us
	isLoopback bool   // only those on this machine
	server     *http.Server
	ctx        context.Context // ends when the proxy is to stop
	cancel     context.CancelCauseFunc
	done       chan struct{} // closed when nothing of the proxy is left
	err        error         // of the listener, once done

	mu         sync.Mutex
	identities map[[sha256.Size]byte]*identity // by the hash of the token that stands for it
	faults     []*armed
	release    chan struct{}  // closed when what is held may go
	stopped    bool           // no request is taken any more
	requests   sync.WaitGroup // those that were
}

var errStopped = errors.New("the proxy was stopped")

// Start starts a proxy, which runs until ctx ends or [Proxy.Stop] is called.
func Start(ctx context.Context, o Options) (*Proxy, error) {
	switch {
	case o.Upstream == nil:
		return nil, errors.New("there is no API server to be a proxy of")
	case strings.Trim(o.Outside, "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
		return nil, fmt.Errorf("outside is %q; it is a part of paths, so it must have only a-z, 0-9 and -", o.Outside)
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
		outside:    o.Outside,
		namespace:  o.Namespace,
		within:     o.Within,
	}
	if p.outside != "" {
		p.info = &apirequest.RequestInfoFactory{
			APIPrefixes: sets.NewString(p.outside), GrouplessAPIPrefixes: sets.NewString(p.outside),
		}
	}
	if p.record == nil {
		p.record = func(history.Record) {}
	}
	if err := p.SetFaults(o.Faults...); err != nil {
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
		at = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: at.Port} // it is there, too
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
		ErrorLog:  log.New(io.Discard, "", 0), // of clients that do not trust us, and aborted requests
	}
	go p.run()
	return p, nil
}

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
	p.server.Close() // says no more than that connections were closed already
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

// Stop ends the proxy. When it returns, the last request has been recorded.
func (p *Proxy) Stop() error {
	p.cancel(errStopped)
	<-p.done
	return p.err
}

// Done returns a channel that is closed when the proxy has ended.
func (p *Proxy) Done() <-chan struct{} { return p.done }

// Wait waits until the proxy has ended, and returns why, if it was not meant to.
func (p *Proxy) Wait() error {
	<-p.done
	return p.err
}

// URL is where clients find the proxy.
func (p *Proxy) URL() string { return p.url }

// Arrived is how many requests have come so far, those included that have not been answered yet.
func (p *Proxy) Arrived() int64 { return p.lastID.Load() }

// Config returns a client configuration that goes through the proxy and acts as the identity of
// Options.Upstream. It keeps that one's rate limits and content types.
func (p *Proxy) Config() *rest.Config { return p.config(p.upstream.config, p.keys.Token) }

// ConfigFor is Config for another identity of the same API server.
func (p *Proxy) ConfigFor(config *rest.Config) (*rest.Config, error) {
	identity, err := newIdentity(config)
	if err != nil {
		return nil, err
	}
	if identity.base.String() != p.upstream.base.String() {
		return nil, fmt.Errorf("the identity is for %s, but this is a proxy of %s", identity.base, p.upstream.base)
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
		config.ServerName = "localhost" // the certificate is for this machine only
	}
	config.Proxy, config.Dial = nil, nil
	return config
}

// enter says whether a request may still be served. Then leave has to be called when it has been.
func (p *Proxy) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return false
	}
	p.requests.Add(1)
	return true
}

// identify returns the identity that a request is sent on as, and who that is. A token that was made
// here is taken off the request; other credentials stay.
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

func (p *Proxy) recordRequest(r history.Request) {
	p.recordM.Lock()
	defer p.recordM.Unlock()
	p.record(history.Record{Request: &r})
}

func (p *Proxy) recordEvent(e history.Event) {
	p.recordM.Lock()
	defer p.recordM.Unlock()
	p.record(history.Record{Event: &e})
}
