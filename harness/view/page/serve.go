package page

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
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
	recording *Recording
	token     string

	mu      sync.Mutex
	problem string        // why the page no longer grows, or ""
	changed chan struct{} // closed when there is something new
}

// NewServer returns a server of the page of a recording.
func NewServer(recording *Recording) *Server {
	return &Server{recording: recording, token: rand.Text(), changed: make(chan struct{})}
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
	_ = write(w, s.recording.Model(), "'self'", ` data-live="yes"`) // fails if the browser has gone
}

func (s *Server) serveModel(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.recording.Model())
}

// serveChanges tells a browser whenever there is something new, as server-sent events.
func (s *Server) serveChanges(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	controller := http.NewResponseController(w)
	seen, told := -1, ""
	for {
		s.mu.Lock()
		changed, problem := s.changed, s.problem
		s.mu.Unlock()
		text := ""
		if version := s.recording.Version(); version != seen {
			text, seen = grownEvent, version
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

// follow looks at the files again and again.
func (s *Server) follow(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	version := s.recording.Version()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		problem := ""
		switch err := s.recording.Read(); {
		case errors.Is(err, history.ErrReplaced):
			problem = "The recording is gone; the page shows what was in it."
		case err != nil:
			problem = "The page no longer grows: " + err.Error()
		}
		s.mu.Lock()
		if now := s.recording.Version(); now != version || problem != s.problem {
			version, s.problem = now, problem
			close(s.changed)
			s.changed = make(chan struct{})
		}
		s.mu.Unlock()
	}
}
