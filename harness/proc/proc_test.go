package proc_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/proc"
)

// After Ctrl-C, the program that reads our output may have ended before we have cleaned up.
func TestWritesToAClosedPipe(t *testing.T) {
	const variable = "PROC_TEST_FILE"
	if path := os.Getenv(variable); path != "" { // the program
		proc.Context()
		fmt.Fprintln(os.Stderr, "cleaning up")
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		return
	}
	path := filepath.Join(t.TempDir(), "cleaned")
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, reader.Close())
	defer writer.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^TestWritesToAClosedPipe$")
	cmd.Env = append(os.Environ(), variable+"="+path)
	cmd.Stderr = writer
	require.NoError(t, cmd.Run())
	require.FileExists(t, path)
}
