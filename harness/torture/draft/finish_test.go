package draft

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a person has changed, added or written before stays, with its comments; what is as it was written is written anew.
func TestHandEditsStay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "torture.yaml")
	write := func(o outline) []string {
		d := &drafter{Options: Options{File: file}, scenario: o}
		var err error
		d.byHand, err = readOld(file)
		require.NoError(t, err)
		kept, err := d.write()
		require.NoError(t, err)
		return kept
	}
	text := func() string {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		return string(data)
	}
	first := outline{resources: []string{"pods"}, converged: []condition{{rule: "true"}}, account: "a"}
	require.Empty(t, write(first))
	untouched := text()
	require.Empty(t, write(first))
	require.Equal(t, untouched, text(), "a second run changes nothing")

	edit := func(old, new string) {
		require.NoError(t, os.WriteFile(file, []byte(replaceOnce(t, text(), old, new)), 0o600))
	}
	edit("account: a\n", "account: a\n# Mine.\npatience: 5s\n\n# Hold.\ninvariants:\n- rule: 1 == 1\n")
	edit("- rule: >-\n    true\n", "- rule: >-\n    false # mine\n")
	second := outline{resources: []string{"secrets"}, converged: []condition{{rule: "1 == 2"}}, account: "b", stopsWith: -1}
	require.Equal(t, []string{"converged", "patience", "invariants"}, write(second))
	require.Contains(t, text(), "resources: [secrets]\n")
	require.Contains(t, text(), "account: b\n")
	require.Contains(t, text(), "stopsWith: -1\n")
	require.Contains(t, text(), "- rule: >-\n    false # mine\n")
	require.NotContains(t, text(), "1 == 2")
	require.Contains(t, text(), "# Mine.\npatience: 5s\n")
	require.Contains(t, text(), "# Hold.\ninvariants:\n- rule: 1 == 1\n")
	require.Equal(t, []string{"converged", "patience", "invariants"}, write(second), "they are still the person's")

	require.NoError(t, os.WriteFile(file, []byte("resources: [jobs]\n"), 0o600)) // without our last line, all is the person's
	require.Equal(t, []string{"resources"}, write(first))
	require.Contains(t, text(), "resources: [jobs]\n")
}

func replaceOnce(t *testing.T, text, old, new string) string {
	require.Contains(t, text, old)
	return strings.Replace(text, old, new, 1)
}
