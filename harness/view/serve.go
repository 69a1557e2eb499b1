package view

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"example.com/controllers/harness/history"
)

const (
	lookEvery  = 200 * time.Millisecond // at the file
	tellEvery  = 500 * time.Millisecond // browsers, at most
	readLimit  = 10 * time.Second       // of the head of a request
	grownEvent = "event: grown\ndata: \n\n"
)

// Server serves the page of a recording that may still grow.
type Server struct {
	token string
	title string
	path  string

	mu      sync.Mutex
	tail    *history.Tail
	memory  *history.Memory
	problem string // why the page no longer grows, or ""
	model   *Model // of the first modelOf records
	modelOf int
	changed chan struct{} // closed when there is something new
}

// Open reads a recording.
func Open(path string) (*Server, error) {
	s := &Server{token: rand.Text(), title: filepath.Base(path), path: path, memory: &history.Memory{}, changed: make(chan struct{}), modelOf: -1}
	var err error
	if s.tail, err = history.OpenTail(path); err != nil {
		return nil, err
	}
	if err := s.read(); err != nil {
		return nil, errors.Join(err, s.tail.Close())
	}
	return s, nil
}

// Close closes the recording.
func (s *Server) Close() error { return s.tail.Close() }

// read reads what is new.
func (s *Server) read() error {
	records, err := s.tail.Read()
	for _, r := range records {
		s.memory.Record(r)
	}
	return err
}

// Len returns how many records there are so far.
func (s *Server) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory.Len()
}

// Model returns the model of the records so far.
func (s *Server) Model() *Model {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.memory.Len(); s.modelOf != n {
		s.model, s.modelOf = Of(s.memory.History(), s.title), n
	}
	return s.model
}

// Path is the path of the page's URL. It has a token that nobody else can guess.
func (s *Server) Path() string { return "/" + s.token + "/" }

// Serve serves the page on a listener of the loopback interface, until ctx is cancelled.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+s.Path()+"{$}", s.servePage)
	mux.HandleFunc("GET "+s.Path()+"model", s.serveModel)
	mux.HandleFunc("GET "+s.Path()+"changes", func(w http.ResponseWriter, r *http.Request) { s.serveChanges(ctx, w, r) })
	server := &http.Server{Handler: guarded(mux), ReadHeaderTimeout: readLimit}
	var following sync.WaitGroup
	following.Go(func() { s.follow(ctx) })
	defer following.Wait()
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) || ctx.Err() == nil {
		return fmt.Errorf("serve the page: %w", err)
	}
	return nil
}

// guarded refuses requests that name another host than this machine, as those of a page do whose name was made to resolve to it.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if ip := net.ParseIP(strings.Trim(host, "[]")); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "this page is only served to this machine", http.StatusForbidden)
			return
		}
		for name, value := range map[string]string{
			"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Resource-Policy": "same-origin", "X-Frame-Options": "DENY",
		} {
			w.Header().Set(name, value)
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) servePage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = page(w, s.Model(), "'self'", ` data-live="yes"`) // fails if the browser has gone
}

func (s *Server) serveModel(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.Model())
}

// recorded is how much has been read, of which recording.
type recorded struct {
	memory *history.Memory
	length int
}

// serveChanges tells a browser whenever there is something new, as server-sent events.
func (s *Server) serveChanges(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	controller := http.NewResponseController(w)
	var seen recorded
	told := ""
	for {
		s.mu.Lock()
		changed, problem, records := s.changed, s.problem, recorded{s.memory, s.memory.Len()}
		s.mu.Unlock()
		text := ""
		if records != seen {
			text, seen = grownEvent, records
		}
		if problem != told {
			text += "event: problem\ndata: " + strings.ReplaceAll(problem, "\n", " ") + "\n\n"
			told = problem
		}
		if _, err := w.Write([]byte(text)); err != nil || controller.Flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		case <-r.Context().Done():
			return
		}
		select {
		case <-time.After(tellEvery):
		case <-ctx.Done():
			return
		}
	}
}

// follow looks at the file again and again.
func (s *Server) follow(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		before := s.Len()
		err := s.read()
		if errors.Is(err, history.ErrReplaced) && s.reopen() {
			before, err = -1, s.read()
		}
		problem := ""
		switch {
		case errors.Is(err, history.ErrReplaced):
			problem = "The recording is gone; the page shows what was in it."
		case err != nil:
			problem = "The page no longer grows: " + err.Error()
		}
		s.mu.Lock()
		if s.memory.Len() != before || problem != s.problem {
			s.problem = problem
			close(s.changed)
			s.changed = make(chan struct{})
		}
		s.mu.Unlock()
	}
}

// reopen opens the file that has the recording's name by now, and says whether there is one.
func (s *Server) reopen() bool {
	tail, err := history.OpenTail(s.path)
	if err != nil {
		return false
	}
	_ = s.tail.Close() // it was only read
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tail, s.memory, s.modelOf = tail, &history.Memory{}, -1
	return true
}
