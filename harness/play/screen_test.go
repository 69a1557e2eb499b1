package play

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"
)

const prosePage = `# A page

The **current
state** and the *desired
state* are in ` + "`*code*`" + ` and in [controller.go](controller.go). See
[the torture](../docs/torture.md#found), [torture](../docs/torture.md) again, [below](#below) and
[an issue](https://example.com/issues/77988), **[as text](../docs/torture.md)**.

- an item that goes on
  on the next line
- another

![The score](../docs/score.svg)

| marker | what comes of it |
|---|---|
| ` + "`+k8s:deepcopy-gen`" + ` | copies: nobody may write to what is in a cache. With interfaces, clients and caches can take it |
| ` + "`+listType`, `+listMapKey`" + ` | conditions are told apart by their type, so that two writers can each have their own **entry** |

'''go
// **not emphasis**, [no link](x)
'''
`

func show(t *testing.T, terminal terminal, markdown string) string {
	t.Helper()
	here, err := os.Getwd()
	require.NoError(t, err)
	var out bytes.Buffer
	newScreen(&out, terminal).prose(filepath.Join(here, "01-lesson"), strings.ReplaceAll(markdown, "'''", "```"))
	return out.String()
}

func TestProseWithoutColor(t *testing.T) {
	for name, terminal := range map[string]terminal{"a file": {}, "a terminal": {columns: 80, rows: 30}} {
		t.Run(name, func(t *testing.T) {
			text := show(t, terminal, prosePage)
			require.NotContains(t, text, "\x1b")
			words := strings.Join(strings.Fields(text), " ")
			require.Contains(t, words, "The **current state** and the *desired state* are in `*code*` and in controller.go. "+
				"See the torture (docs/torture.md), torture again, below and an issue (https://example.com/issues/77988), **as text**.")
			require.Contains(t, words, "• an item that goes on on the next line • another")
			require.Contains(t, words, "Picture: The score (docs/score.svg)")
			require.Contains(t, text, "// **not emphasis**, [no link](x)\n")
		})
	}
}

func TestProseInColor(t *testing.T) {
	for _, dark := range []bool{false, true} {
		text := show(t, terminal{columns: 80, rows: 30, color: true, dark: dark}, prosePage)
		require.Contains(t, text, "\x1b[")
		words := strings.Join(strings.Fields(ansi.Strip(text)), " ")
		require.Contains(t, words, "The current state and the desired state are in *code* and in controller.go. See the torture (docs/torture.md)")
	}
}

func TestProseFits(t *testing.T) {
	for _, terminal := range []terminal{
		{}, {columns: 60}, {columns: 100}, {columns: 200}, {columns: 60, color: true}, {columns: 100, color: true, dark: true},
	} {
		widest := 0
		for line := range strings.SplitSeq(show(t, terminal, prosePage), "\n") {
			widest = max(widest, lipgloss.Width(line))
		}
		limit := defaultProseWidth
		if terminal.columns > 0 {
			limit = min(terminal.columns, maxProseWidth)
		}
		require.LessOrEqual(t, widest, limit, "%+v", terminal)
		require.Greater(t, widest, limit*4/5, "%+v", terminal)
	}
}

func TestNoEscapeSequencesWhereTheyAreNotWanted(t *testing.T) {
	require.Equal(t, terminal{}, terminalOf(&bytes.Buffer{}))
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	defer file.Close()
	require.Equal(t, terminal{}, terminalOf(file))

	for _, test := range []struct {
		term, noColor string
		want          bool
	}{{"xterm-256color", "", true}, {"xterm-256color", "1", false}, {"dumb", "", false}, {"", "", false}} {
		t.Setenv("TERM", test.term)
		t.Setenv("NO_COLOR", test.noColor)
		require.Equal(t, test.want, mayColor(), "%+v", test)
	}
}

func TestCommandsBreakBetweenWords(t *testing.T) {
	step := Step{Command: "kubectl get configmap frontend-config --show-managed-fields --output name |\nsort", Background: true}
	for name, test := range map[string]struct {
		terminal terminal
		want     string
	}{
		"a file":            {terminal{}, "$ kubectl get configmap frontend-config --show-managed-fields --output name |\n> sort &\n"},
		"a wide terminal":   {terminal{columns: 100}, "$ kubectl get configmap frontend-config --show-managed-fields --output name |\n> sort &\n"},
		"a narrow terminal": {terminal{columns: 60}, "$ kubectl get configmap frontend-config\n    --show-managed-fields --output name |\n> sort &\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			newScreen(&out, test.terminal).command(step)
			require.Equal(t, test.want, out.String())
		})
	}
	long := strings.Repeat("x", 70)
	require.Equal(t, "$\n    "+long+"\n    y", wrapWords("$ "+long+" y", 60), "a word that does not fit anywhere")
}
