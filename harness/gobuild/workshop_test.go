package gobuild

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// If a package of the workshop's command is not among the sources, a change of it does not cause a new build.
func TestWorkshopSourcesAreComplete(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "../cmd/workshop").CombinedOutput()
	require.NoError(t, err, "%s", out)
	sources := Workshop("").Sources
	for _, name := range strings.Fields(string(out)) {
		if local, ok := strings.CutPrefix(name, "example.com/controllers/harness/"); ok {
			require.True(t, slices.ContainsFunc(sources, func(source string) bool {
				return local == source || strings.HasPrefix(local, source+"/")
			}), "add %s to the sources in gobuild.Workshop", local)
		}
	}
}
