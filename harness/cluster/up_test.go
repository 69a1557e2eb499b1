package cluster_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/cluster"
)

// If a container has mounted the directory, the lock of its control plane is seen from outside, but the process ID is one
// of the container. Outside of it, that may be anybody's.
func TestDownLeavesOtherProcessesAlone(t *testing.T) {
	for name, args := range map[string][]string{
		"another program":       {"something", "else"},
		"another control plane": {"serve", "--dir", t.TempDir(), "--nodes", "3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			lock := flock.New(filepath.Join(dir, "lock"))
			require.NoError(t, lock.Lock())
			defer lock.Close()
			other := exec.Command("sh", append([]string{"-c", "read line", "sh"}, args...)...)
			_, err := other.StdinPipe() // it waits for a line
			require.NoError(t, err)
			require.NoError(t, other.Start())
			require.NoError(t, os.WriteFile(filepath.Join(dir, "pid"), []byte(strconv.Itoa(other.Process.Pid)), 0o600))

			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err = cluster.Reset(ctx, dir)
			_ = other.Process.Kill()
			require.EqualError(t, other.Wait(), "signal: killed", "it ran until the test killed it")
			require.EqualError(t, err, "the control plane of "+dir+" runs in another container or on another machine; stop it there")
			require.DirExists(t, dir)
		})
	}
}
