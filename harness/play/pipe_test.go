package play

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestUnblocksAReaderThatComesLate(t *testing.T) {
	p := pipe{filepath.Join(t.TempDir(), "log"), make(chan struct{})}
	require.NoError(t, syscall.Mkfifo(p.path, 0o600))
	read := make(chan error)
	go func() {
		time.Sleep(100 * time.Millisecond)
		reader, err := os.Open(p.path)
		close(p.opened)
		if err == nil {
			_, err = io.ReadAll(reader)
			reader.Close()
		}
		read <- err
	}()
	p.unblock()
	select {
	case err := <-read:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("the reader is blocked")
	}
}
