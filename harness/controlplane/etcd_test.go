package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// tickerOf finds the clock of etcd's server by name.
func TestEtcdHasATicker(t *testing.T) {
	t.Chdir(t.TempDir())
	e, err := startEtcd(t.Context(), ".", false)
	require.NoError(t, err)
	t.Cleanup(e.Close)
	require.NotNil(t, tickerOf(e), "etcd has changed, so its clock ticks forty times a second again")
}
