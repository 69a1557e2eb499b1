package port

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func portOf(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

func stored(t *testing.T, file string) int {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	port, err := strconv.Atoi(string(text))
	require.NoError(t, err)
	return port
}

func TestListen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "port")
	l, err := Listen(file)
	require.NoError(t, err)
	port := portOf(l)
	require.GreaterOrEqual(t, port, first)
	require.Less(t, port, end)
	require.Equal(t, port, stored(t, file))
	require.NoError(t, l.Close())

	again, err := Listen(file)
	require.NoError(t, err)
	defer again.Close()
	require.Equal(t, port, portOf(again), "kubeconfigs stay valid")
}

func TestListenWhereThePortIsTaken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "port")
	theirs, err := Listen(file)
	require.NoError(t, err)
	defer theirs.Close()
	ours, err := Listen(file)
	require.NoError(t, err)
	defer ours.Close()
	require.NotEqual(t, portOf(theirs), portOf(ours))
	require.Equal(t, portOf(ours), stored(t, file))
}

func TestListenWithAnUnreadableFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "port")
	for _, text := range []string{"", "no port", "70000"} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		l, err := Listen(file)
		require.NoError(t, err)
		require.Equal(t, portOf(l), stored(t, file))
		require.NoError(t, l.Close())
	}
	_, err := Listen(filepath.Join(t.TempDir(), "no such directory", "port"))
	require.ErrorContains(t, err, "no such directory")
}
