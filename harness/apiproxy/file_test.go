package apiproxy_test

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
)

func TestFileRecorder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "recording")
	require.NoError(t, os.WriteFile(path, []byte("an older one\n"), 0o644))
	recorder, err := apiproxy.NewFileRecorder(path)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	for id := range int64(3) {
		recorder.Record(history.Record{Request: &history.Request{ID: id + 1}})
		h, err := history.ReadFile(path)
		require.NoError(t, err)
		require.Len(t, h.Requests, int(id)+1, "each line is there at once")
	}
	select {
	case <-recorder.Failed():
		t.Fatal("it has not")
	default:
	}
	require.NoError(t, recorder.Close())
}

func TestFileRecorderOnAFullDisk(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /dev/full")
	}
	recorder, err := apiproxy.NewFileRecorder("/dev/full")
	require.NoError(t, err)
	recorder.Record(history.Record{Request: &history.Request{ID: 1}})
	recorder.Record(history.Record{Request: &history.Request{ID: 2}})
	<-recorder.Failed()
	require.ErrorIs(t, recorder.Close(), syscall.ENOSPC)
	_, err = apiproxy.NewFileRecorder(filepath.Join(t.TempDir(), "nowhere", "recording"))
	require.ErrorContains(t, err, "create the recording: ")
}
