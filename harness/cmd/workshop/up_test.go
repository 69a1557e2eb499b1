package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/offline"
)

// A terminal in which "make env" was evaluated uses the Go of the bundle.
func TestPrintBundle(t *testing.T) {
	var text strings.Builder
	require.NoError(t, printBundle(&text))
	require.Empty(t, text.String(), "without a bundle")

	t.Setenv(offline.Variable, "/somebody's laptop/.bundle")
	t.Setenv("GOFLAGS", "-trimpath -modcacherw")
	require.NoError(t, printBundle(&text))
	out, err := exec.CommandContext(t.Context(), "env", "-i", "GOROOT=/elsewhere", "PATH=/bin:/usr/bin", "sh", "-c", text.String()+`echo "$WORKSHOP_BUNDLE|$GOFLAGS|${GOROOT-no root}|$PATH"`).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "/somebody's laptop/.bundle|-trimpath -modcacherw|no root|/somebody's laptop/.bundle/go/bin:/bin:/usr/bin\n", string(out))
}
