package inmemory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
)

// Client is a program's connection to the server.
type Client struct {
	server *Server
	name   string
	number int64 // see [history.Request.Connection]
	// Privileged clients are not subject to faults.
	privileged bool
	// killed is called by a fault that kills the program.
	killed func()

	mu   sync.Mutex
	dead bool
	all  context.CancelFunc // ends all requests
	ctx  context.Context
}

// NewClient returns a connection of the program with this name, which is recorded as the user of its requests. Each process
// has one, with a number of its own. Requests of a privileged client are not subject to faults. kill is called by a fault that kills the program, before the request returns;
// it may be nil.
func (s *Server) NewClient(name string, privileged bool, kill func()) *Client {
	c := &Client{server: s, name: name, number: s.clients.Add(1), privileged: privileged, killed: kill}
	c.ctx, c.all = context.WithCancel(context.Background())
	return c
}

// Config returns the configuration of a clientset. It has no client-side rate limit.
func (c *Client) Config() *rest.Config {
	return &rest.Config{
		Host: "http://in-memory.invalid", Transport: c, QPS: -1, UserAgent: c.name,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON},
	}
}

// Disconnect ends all requests in flight, and lets all later ones fail, as if the program had been killed.
func (c *Client) Disconnect() {
	c.mu.Lock()
	c.dead = true
	c.mu.Unlock()
	c.all()
}

var errDead = errors.New("the program has been killed")

// errLost is what a client sees of a connection that breaks.
func errLost(what string) error { return fmt.Errorf("read: connection reset by peer (%s)", what) }

// RoundTrip implements http.RoundTripper.
func (c *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	dead := c.dead
	c.mu.Unlock()
	if dead {
		return nil, errDead
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(c.ctx, cancel)
	t := parse(r)
	response, err := c.server.answer(ctx, c, t, r, body)
	if err != nil || t.verb != "watch" {
		stop()
		cancel()
	}
	return response, err
}

// answer carries out a request, subject to faults, and records it.
func (s *Server) answer(ctx context.Context, c *Client, t target, r *http.Request, body []byte) (*http.Response, error) {
	request := history.Request{
		Start: time.Now(), Who: c.name, Agent: c.name, Verb: t.verb, Group: t.Group, Version: t.Version, Resource: t.Resource,
		Subresource: t.subresource, Namespace: t.namespace, Name: t.name, URI: r.URL.RequestURI(), Sent: int64(len(body)),
		DryRun: r.URL.Query().Get("dryRun") != "", Connection: c.number,
	}
	if t.verb == "create" && t.name == "" {
		if object, err := decode(body); err == nil {
			request.Name = metadata(object, "name")
		}
	}
	effects := s.begin(c, &request)
	finish := func(err error) error {
		request.Duration = time.Since(request.Start)
		if err != nil {
			request.Error = err.Error()
		}
		s.put(history.Record{Request: &request})
		return err
	}
	inject := func(i history.Injection) { request.Injected = append(request.Injected, i) }
	kill := func(after bool) (*http.Response, error) {
		inject(history.Injection{Kind: history.ControllerKilled, After: after})
		c.Disconnect()
		if c.killed != nil {
			c.killed()
		}
		return nil, finish(errDead)
	}

	var answerLate time.Duration
	var lost string
	var killAfter bool
	for _, effect := range effects {
		if effect.Delay > 0 && effect.Lost != apiproxy.LostLate {
			inject(history.Injection{Kind: history.Delayed, Duration: effect.Delay})
			sleep(ctx, effect.Delay)
		}
		if effect.Kill == apiproxy.Before {
			return kill(false)
		}
		killAfter = killAfter || effect.Kill == apiproxy.After
		if effect.Hang > 0 {
			inject(history.Injection{Kind: history.NoAnswer, Duration: effect.Hang})
			sleep(ctx, effect.Hang)
			return nil, finish(errLost("no answer"))
		}
		if effect.Lost == apiproxy.LostRequest {
			inject(history.Injection{Kind: history.RequestLost})
			return nil, finish(errLost("request lost"))
		}
		if effect.Lost != "" {
			lost = effect.Lost
		}
		if effect.Refuse != 0 && effect.Lost == "" {
			inject(history.Injection{Kind: history.Refused, Status: effect.Refuse})
			request.Status = effect.Refuse
			_ = finish(nil)
			return refuse(r, t, effect), nil
		}
		answerLate += effect.AnswerLate
	}
	if err := ctx.Err(); err != nil {
		return nil, finish(err)
	}
	if t.verb == "watch" {
		request.Status, request.Open = http.StatusOK, true
		s.put(history.Record{Request: copyOf(request)})
		events, err := s.watch(ctx, c, t, r, request, effects)
		if err != nil {
			return nil, finish(err)
		}
		return response(r, http.StatusOK, events), nil
	}

	if do := s.takeBefore(c, request); do != nil {
		do()
	}
	if killAfter {
		c.Disconnect() // by now: a program that is dead is not told what its last request has changed
	}
	status, answer, before, after := s.serve(t, r, body)
	request.Status = status
	if before != nil {
		request.RVBefore, request.UID = metadata(before, "resourceVersion"), metadata(before, "uid")
	}
	if after != nil {
		request.RVAfter, request.UID = metadata(after, "resourceVersion"), metadata(after, "uid")
		request.Name = metadata(after, "name")
	}
	request.NoOp = request.IsWrite() && status < 300 && before != nil && request.RVBefore == request.RVAfter
	if before != nil && status < 300 && !c.privileged && s.onBlindWrite != nil && isBlind(t, r, body) {
		s.onBlindWrite(request)
	}
	text := encode(answer)
	request.Received = int64(len(text))
	if lost == apiproxy.LostReply {
		inject(history.Injection{Kind: history.ReplyLost})
		return nil, finish(errLost("reply lost"))
	}
	if killAfter {
		return kill(true)
	}
	if answerLate > 0 {
		inject(history.Injection{Kind: history.AnsweredLate, Duration: answerLate})
		sleep(ctx, answerLate)
		if err := ctx.Err(); err != nil {
			return nil, finish(err)
		}
	}
	_ = finish(nil)
	return response(r, status, io.NopCloser(bytes.NewReader(text))), nil
}

func copyOf(r history.Request) *history.Request { return &r }

// is reports whether a request has what a fault asks for, if it asks for anything.
func is(want, got string) bool { return want == "" || want == got }

// begin numbers a request, and returns the effects of the faults that apply to it.
func (s *Server) begin(c *Client, request *history.Request) []apiproxy.Effect {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	request.ID = s.requests
	if c.privileged {
		return nil
	}
	var effects []apiproxy.Effect
	for _, f := range s.faults {
		if !f.Matches(*request) || !is(f.Program, request.Who) || f.For > 0 && !f.first.IsZero() && time.Since(f.first) > f.For {
			continue
		}
		f.matched++
		if f.matched < f.From || f.To > 0 && f.matched > f.To {
			continue
		}
		if f.first.IsZero() {
			f.first = time.Now()
		}
		effects = append(effects, f.Effect)
	}
	return effects
}

// refuse returns the answer of a server that refuses a request.
func refuse(r *http.Request, t target, effect apiproxy.Effect) *http.Response {
	seconds := int(effect.RetryAfter / time.Second)
	status := apierrors.NewGenericServerResponse(effect.Refuse, t.verb, t.GroupResource(), t.name, "injected fault", seconds, false).Status()
	status.Kind, status.APIVersion = "Status", "v1"
	answer := response(r, effect.Refuse, io.NopCloser(bytes.NewReader(encode(status))))
	if seconds > 0 {
		answer.Header.Set("Retry-After", strconv.Itoa(seconds))
	}
	return answer
}

func response(r *http.Request, status int, body io.ReadCloser) *http.Response {
	return &http.Response{
		Status: fmt.Sprint(status, " ", http.StatusText(status)), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: body, ContentLength: -1, Request: r,
	}
}
