package guard

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// A process that is missing from one list of the session's processes is in the next.
func TestEndStopsOnlyAfterTwoEmptyLists(t *testing.T) {
	missed := exec.Command("sleep", "1000")
	require.NoError(t, missed.Start())
	t.Cleanup(func() { _ = missed.Process.Kill() }) // in case the test fails
	lists := [][]int{{}, {missed.Process.Pid}, {}, {}}
	require.NoError(t, end(func() ([]int, error) {
		next := lists[0]
		lists = lists[1:]
		return next, nil
	}))
	require.Empty(t, lists)
	require.ErrorContains(t, missed.Wait(), "signal: terminated")
}
