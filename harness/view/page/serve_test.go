package page_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/view"
	"example.com/controllers/harness/view/internal/recorded"
	"example.com/controllers/harness/view/page"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is a page that is served in a test.
type site struct {
	t    *testing.T
	path string // of the recording
	url  string
}

// serve serves the page of a recording, with these records at first.
func serve(t *testing.T, records ...history.Record) site {
	s := site{t: t, path: filepath.Join(t.TempDir(), "recording.jsonl")}
	require.NoError(t, os.WriteFile(s.path, nil, 0o600))
	s.add(records...)
	recording, err := page.Open(s.path)
	require.NoError(t, err)
	server := page.NewServer(recording)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.url = "http://" + l.Addr().String() + server.Path()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- server.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, recording.Close())
		http.DefaultClient.CloseIdleConnections()
	})
	return s
}

// add appends records to the recording.
func (s site) add(records ...history.Record) {
	file, err := os.OpenFile(s.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(s.t, err)
	for _, r := range records {
		require.NoError(s.t, history.Write(file, r))
	}
	require.NoError(s.t, file.Close())
}

func (s site) get(url, host string) (*http.Response, string) {
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, url, nil)
	require.NoError(s.t, err)
	if host != "" {
		request.Host = host
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(s.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	return response, string(body)
}

func (s site) model() (m view.Model) {
	response, body := s.get(s.url+"model", "")
	require.Equal(s.t, "application/json", response.Header.Get("Content-Type"))
	require.NoError(s.t, json.Unmarshal([]byte(body), &m))
	return m
}

func TestServe(t *testing.T) {
	var r recorded.Recorder
	r.Request(0, 1, "loop", "patch", "<script>alert(1)</script>", recorded.After("10"))
	s := serve(t, r.Records...)
	response, body := s.get(s.url, "")
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.NotContains(t, body, "<script>alert")
	require.Contains(t, body, `connect-src 'self'`)
	require.NotRegexp(t, `\{\{[a-z]+\}\}`, body)
	require.Equal(t, "no-store", response.Header.Get("Cache-Control"))

	for _, host := range []string{"evil.example:80", "10.0.0.1", "localhost.example"} {
		response, _ := s.get(s.url, host)
		require.Equal(t, http.StatusForbidden, response.StatusCode, host)
	}
	for _, host := range []string{"localhost", "localhost:1", "[::1]:1", "127.0.0.2:1"} {
		response, _ := s.get(s.url, host)
		require.Equal(t, http.StatusOK, response.StatusCode, host)
	}
	without := strings.TrimSuffix(s.url, "/")
	for _, url := range []string{without[:strings.LastIndex(without, "/")+1], s.url + "other", without + "x/model"} {
		response, _ := s.get(url, "")
		require.Equal(t, http.StatusNotFound, response.StatusCode, url)
	}
}

// The browser is told what has changed: a recording that grows, is replaced, has a line that is no record, and is gone.
func TestFollows(t *testing.T) {
	var r recorded.Recorder
	s := serve(t)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"changes", nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	changes := bufio.NewReader(response.Body)
	next := func() string {
		t.Helper()
		text := ""
		for !strings.HasSuffix(text, "\n\n") {
			line, err := changes.ReadString('\n')
			require.NoError(t, err)
			text += line
		}
		return text
	}
	require.Equal(t, "event: grown\ndata: \n\n", next(), "at first")
	require.Empty(t, s.model().Marks)
	r.Request(0, 1, "loop", "patch", "a", recorded.After("10"))
	s.add(r.Records...)
	require.Equal(t, "event: grown\ndata: \n\n", next())
	require.Len(t, s.model().Marks, 1)

	require.NoError(t, os.Remove(s.path))
	require.Equal(t, "event: problem\ndata: The recording is gone; the page shows what was in it.\n\n", next())
	require.Len(t, s.model().Marks, 1)
	r.Request(2, 3, "loop", "patch", "b", recorded.After("20"))
	r.Request(4, 5, "loop", "patch", "c", recorded.After("30"))
	s.add(r.Records...)
	for text := next(); !strings.Contains(text, "event: problem\ndata: \n\n"); text = next() {
		require.Equal(t, "event: grown\ndata: \n\n", text, "another file with its name")
	}
	for len(s.model().Marks) < 3 {
		require.Equal(t, "event: grown\ndata: \n\n", next())
	}

	file, err := os.OpenFile(s.path, os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	_, err = file.WriteString("not JSON\n")
	require.NoError(t, err)
	require.NoError(t, file.Close())
	require.Contains(t, next(), "event: problem\ndata: The page no longer grows: read the recording "+s.path+": line 4: not a record")
}

// A directory is all recordings in it, also those that come later.
func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	recording, err := page.Open(dir)
	require.NoError(t, err)
	defer recording.Close()
	require.Zero(t, recording.Version())
	add := func(name string) {
		var r recorded.Recorder
		r.Request(0, 1, name, "get", "a", nil)
		site{t: t, path: filepath.Join(dir, name)}.add(r.Records...)
		require.NoError(t, recording.Read())
	}
	add("b.jsonl")
	add("notes.txt")
	require.Equal(t, []string{"b.jsonl"}, recording.Model().Programs)
	add("a.jsonl")
	require.Equal(t, []string{"a.jsonl", "b.jsonl"}, recording.Model().Programs)

	for want, paths := range map[string][]string{
		"no such file or directory":                          {filepath.Join(dir, "c.jsonl")},
		"is a directory; give it alone, or give files":       {filepath.Join(dir, "a.jsonl"), dir},
		"is given twice":                                     {filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "a.jsonl")},
		"notes.txt: line 1: not a record: invalid character": {filepath.Join(dir, "notes.txt")},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("hello\n"), 0o600))
		_, err := page.Open(paths...)
		require.ErrorContains(t, err, want)
	}
}
