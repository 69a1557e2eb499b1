package verdict_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/exercise/verdict"
	"example.com/controllers/harness/history"
)

// Each scene has its recording, without what has changed in objects.
func TestRecordings(t *testing.T) {
	dir := t.TempDir()
	record := func(scenes ...string) {
		w, err := verdict.NewWriter(func(string) {})
		require.NoError(t, err)
		w.Record(history.Record{Step: &history.Step{Name: "before any scene"}})
		for _, scene := range scenes {
			w.Scene(scene)
			w.Record(history.Record{Step: &history.Step{Name: scene}})
			w.Record(history.Record{Request: &history.Request{ID: 1, Verb: "watch", Who: "agent", Open: true}})
			w.Record(history.Record{Request: &history.Request{ID: 2, Verb: "get", Who: "system:serviceaccount:a:b"}})
			w.Record(history.Record{Event: &history.Event{Request: 1, Type: "MODIFIED", Changed: "data.password: hunter2"}})
		}
	}
	record("nowhere")
	t.Setenv(verdict.RecordingsVariable, dir)
	record("a/b", "100 %")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2)
	for _, scene := range []string{"a/b", "100 %"} {
		h, err := history.ReadFile(verdict.RecordingOf(dir, scene))
		require.NoError(t, err)
		require.Equal(t, []history.Step{{Name: scene}}, h.Steps)
		require.Len(t, h.Requests, 2)
		require.Equal(t, "agent", h.Requests[0].Program)
		require.Equal(t, "controller", h.Requests[1].Program)
		require.Equal(t, []history.Event{{Request: 1, Type: "MODIFIED"}}, h.Events)
	}
	t.Setenv(verdict.RecordingsVariable, filepath.Join(dir, "gone"))
	record("it goes on without one")
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "verdict")
	found, err := verdict.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, verdict.Found{}, found, "the check has not begun")

	t.Setenv(verdict.FileVariable, path)
	w, err := verdict.NewWriter(func(string) { t.Error("it prints although there is a file") })
	require.NoError(t, err)
	w.Scene("first")
	w.Line(verdict.Line{What: "a"})
	w.Scene("second")
	w.Line(verdict.Line{At: time.Second, Who: "user", What: "b"})
	found, err = verdict.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, verdict.Found{Scene: "second", Timeline: []verdict.Line{{At: time.Second, Who: "user", What: "b"}}, Earlier: map[string][]verdict.Line{"first": {{What: "a"}}}}, found)
	w.Fail("It is wrong.")
	w.Fail("It is worse.")
	w.Line(verdict.Line{What: "too late"})
	w.Pass()
	found, err = verdict.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "It is wrong.", found.Failure)
	require.False(t, found.Passed)
	require.Len(t, found.Timeline, 1)
}

func TestReadSkipsWhatIsIncomplete(t *testing.T) {
	found, err := verdict.Read(strings.NewReader("x\n{\"scene\":\"a\"}\n{\"line\":{\"what\":\"b\"}}\n{\"passed\":true}\n{\"line\":{\"wh"))
	require.NoError(t, err)
	require.True(t, found.Passed)
	require.Len(t, found.Timeline, 1)
}

// Of a timeline that is much too long, the beginning and the end are kept.
func TestReadLeavesOutLines(t *testing.T) {
	var text strings.Builder
	text.WriteString("{\"scene\":\"a\"}\n")
	for i := range 100_000 {
		fmt.Fprintf(&text, "{\"line\":{\"at\":%d,\"what\":\"b\"}}\n", i)
	}
	text.WriteString("{\"failure\":\"It is wrong.\"}\n")
	found, err := verdict.Read(strings.NewReader(text.String()))
	require.NoError(t, err)
	require.Equal(t, "It is wrong.", found.Failure)
	require.Less(t, len(found.Timeline), 20_000)
	require.EqualValues(t, 0, found.Timeline[0].At)
	require.EqualValues(t, 99_999, found.Timeline[len(found.Timeline)-1].At)
	require.Equal(t, "90000 lines are left out here", found.Timeline[5000].What)
}

func TestOfRecord(t *testing.T) {
	tests := []struct {
		request history.Request
		want    string // "" for no line
		bad     bool
	}{
		{history.Request{Who: "controller", Verb: "delete", Resource: "pods", Namespace: "shop", Name: "web-0", Status: 200}, "delete pod shop/web-0: 200", false},
		{history.Request{Who: "controller", Verb: "update", Group: "apps", Resource: "deployments", Subresource: "status", Namespace: "shop", Name: "web", Status: 409}, "update deployment.apps/status shop/web: 409 conflict", true},
		{history.Request{Who: "controller", Verb: "create", Resource: "services", Namespace: "shop", Name: "web", Status: 409}, "create service shop/web: 409 already exists", true},
		{history.Request{Who: "controller", Verb: "get", Group: "networking.k8s.io", Resource: "networkpolicies", Namespace: "shop", Name: "a", Status: 404}, "get networkpolicy.networking.k8s.io shop/a: 404 not found", false},
		{history.Request{Who: "controller", Verb: "update", Group: "networking.k8s.io", Resource: "ingresses", Name: "a", Status: 200, NoOp: true}, "update ingress.networking.k8s.io a: 200, nothing changed", false},
		{history.Request{Who: "user", Verb: "delete", Resource: "nodes", Name: "a", Status: 404}, "delete node a: 404 not found", false},
		{history.Request{Who: "user", Verb: "get", Resource: "nodes", Name: "a", Status: 200}, "", false},
		{history.Request{Who: "controller", Verb: "list", Resource: "pods", Namespace: "shop", Status: 200}, "list pods shop: 200", false},
		{history.Request{Who: "controller", Verb: "watch", Resource: "pods", Status: 200, Open: true}, "watch pods: 200", false},
		{history.Request{Who: "controller", Verb: "watch", Resource: "pods", Status: 200}, "", false},
		{history.Request{Who: "controller", Verb: "get", Resource: "pods", Name: "a", Error: "EOF", Injected: []history.Injection{{Kind: history.ReplyLost}}}, "get pod a: reply lost", true},
	}
	for _, test := range tests {
		line, ok := verdict.OfRecord(history.Record{Request: &test.request})
		require.Equal(t, test.want != "", ok)
		if ok {
			require.Equal(t, test.want, line.What+": "+line.Note)
			require.Equal(t, test.bad, line.Bad, test.want)
		}
	}
	line, _ := verdict.OfRecord(history.Record{Event: &history.Event{Type: "MODIFIED", Resource: "nodes", Name: "a", Changed: "Ready: Unknown"}})
	require.Equal(t, "     0.0s  event       MODIFIED node a: Ready: Unknown", "  "+line.String())
	line, _ = verdict.OfRecord(history.Record{Event: &history.Event{Type: "DELETED", Resource: "endpointslices", Namespace: "shop", Name: "a"}})
	require.Equal(t, "DELETED endpointslice shop/a", line.What)
	_, ok := verdict.OfRecord(history.Record{Event: &history.Event{Type: "BOOKMARK"}})
	require.False(t, ok)
}

func TestFormatTime(t *testing.T) {
	for want, at := range map[string]time.Duration{
		"0.0s": 0, "999.9s": 999900 * time.Millisecond, "16m40s": 1000 * time.Second, "61m10s": time.Hour + 70*time.Second + 900*time.Millisecond,
		"999m59s": 1000*time.Minute - time.Second, "16h40m": 1000 * time.Minute, "23h44m": 85469700 * time.Millisecond, "719h59m": 30*24*time.Hour - time.Second,
	} {
		require.Equal(t, want, verdict.FormatTime(at))
		require.LessOrEqual(t, len(want), 7)
	}
}
