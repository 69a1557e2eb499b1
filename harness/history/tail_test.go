package history_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/history"
)

const (
	firstLine  = `{"request":{"id":1,"start":"2026-01-02T15:04:05Z","verb":"get","resource":"pods","uri":"/api/v1/pods"}}` + "\n"
	secondLine = `{"event":{"watch":1,"time":"2026-01-02T15:04:05Z","type":"ADDED","resource":"pods","bytes":1}}` + "\n"
)

func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "recording")
	write := func(text string) {
		t.Helper()
		file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		_, err = file.WriteString(text)
		require.NoError(t, err)
		require.NoError(t, file.Close())
	}
	write("")
	tail, err := history.OpenTail(path)
	require.NoError(t, err)
	defer tail.Close()
	read := func() int {
		t.Helper()
		records, err := tail.Read()
		require.NoError(t, err)
		return len(records)
	}
	require.Zero(t, read())
	write(firstLine + secondLine[:20])
	require.Equal(t, 1, read())
	require.True(t, tail.Incomplete())
	require.Zero(t, read())
	write(secondLine[20:])
	require.Equal(t, 1, read(), "a line that came in two parts")
	require.False(t, tail.Incomplete())
	write("\n" + firstLine + secondLine)
	require.Equal(t, 2, read())

	require.NoError(t, os.Truncate(path, 10))
	_, err = tail.Read()
	require.ErrorIs(t, err, history.ErrReplaced)
	require.NoError(t, os.Remove(path))
	_, err = tail.Read()
	require.ErrorIs(t, err, history.ErrReplaced)
	require.ErrorContains(t, err, path+" is gone")
	write(firstLine + secondLine + firstLine + secondLine + firstLine + secondLine)
	_, err = tail.Read()
	require.ErrorIs(t, err, history.ErrReplaced, "another file, and no shorter")
}

func TestTailRejects(t *testing.T) {
	for text, want := range map[string]string{
		firstLine + "<html>\n":                    "line 2: not a record",
		`{"request":{}, "event":{}}` + "\n":       "line 1: not a record: it must have one of request, event, seen, step, process and sample",
		`{"kind":"Pod","apiVersion":"v1"}` + "\n": "line 1: not a record: it must have one of request, event, seen, step, process and sample",
		`{"dream":{"name":"loop"}}` + "\n":        `line 1: a record of the kind "dream", which this version does not know: use the version that made the recording, or a later one`,
	} {
		path := filepath.Join(t.TempDir(), "recording")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		tail, err := history.OpenTail(path)
		require.NoError(t, err)
		defer tail.Close()
		for range 2 {
			_, err = tail.Read()
			require.ErrorContains(t, err, want)
		}
	}
	_, err := history.OpenTail(filepath.Join(t.TempDir(), "none"))
	require.ErrorContains(t, err, "read the recording: open ")
}
