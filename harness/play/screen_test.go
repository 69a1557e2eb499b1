package play

import (
	"bytes"
	"errors"
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
	if err != nil {
'''
`

func show(t *testing.T, terminal terminal, markdown string) string {
	t.Helper()
	here, err := os.Getwd()
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, newScreen(&out, terminal).prose(filepath.Join(here, "01-lesson"), strings.ReplaceAll(markdown, "'''", "```"), nil))
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
		text := show(t, terminal, prosePage)
		require.NotContains(t, text, "\t", "nobody knows how wide a tab is")
		for line := range strings.SplitSeq(text, "\n") {
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

// The lines of an item begin where its text begins, and no text is lost between two lists.
func TestLists(t *testing.T) {
	const lists = "Text:\n\n- an item that goes on and on, until it does not fit\n  into one line of the screen\n" +
		"- another with `code`\n\n  - one that belongs to it, and that is also too long for a line\n\n" +
		"1. numbered, and too long for one line of this narrow screen\n10. two digits, and too long for one line of this narrow screen\n\n" +
		"Done.\n\n```yaml\n- code\n```\n"
	for _, color := range []bool{false, true} {
		text := ansi.Strip(show(t, terminal{columns: 40, rows: 100, color: color, dark: color}, lists))
		text = trailingSpace.ReplaceAllString(text, "")
		require.Contains(t, text, "\n  • an item that goes on and on, until\n    it does not fit into one line of the\n    screen\n  • another with ")
		require.Contains(t, text, "\n    • one that belongs to it, and that\n      is also too long for a line\n")
		require.Contains(t, text, "\n\n  1. numbered, and too long for one line\n     of this narrow screen\n  10. two digits, and too long for one\n      line of this narrow screen\n\n  Done.\n")
		require.Contains(t, text, "    - code\n")
		for line := range strings.Lines(text) {
			require.LessOrEqual(t, lipgloss.Width(strings.TrimSuffix(line, "\n")), 40)
		}
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

// Prose stops before what has not been read scrolls off the screen.
func TestProseIsPaged(t *testing.T) {
	prose := strings.TrimSpace(strings.Repeat("A paragraph.\n\n", 20)) // 41 lines, with those around it
	for name, test := range map[string]struct {
		rows   int
		output int // lines before the prose, of one and a half times the terminal's width
		want   []int
	}{
		"a file":                  {0, 0, nil},
		"a tall screen":           {60, 0, nil},
		"a small screen":          {20, 0, []int{19, 38}},
		"after some output":       {20, 5, []int{9, 28}},
		"a screen full of output": {20, 30, []int{0, 19, 38}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			s := newScreen(&out, terminal{columns: 80, rows: test.rows})
			for range test.output {
				s.output(strings.Repeat("x", 120))
			}
			out.Reset()
			var pauses []int // the lines of prose before each
			require.NoError(t, s.prose(".", prose, func() error {
				pauses = append(pauses, strings.Count(out.String(), "\n"))
				s.clearPrompt()
				return nil
			}))
			require.Equal(t, test.want, pauses)
		})
	}
	quit := errors.New("quit")
	require.ErrorIs(t, newScreen(&bytes.Buffer{}, terminal{columns: 80, rows: 20}).prose(".", prose, func() error { return quit }), quit)
}

// Half of each line of a controller's log is klog's header, which tells a reader of the page nothing.
func TestLogsAreShownWithoutHeaders(t *testing.T) {
	for line, want := range map[string]string{
		`I1122 01:40:05.573404   30370 controller.go:112] "Pod" pod="shop/x"`: `loop | "Pod" pod="shop/x"`,
		`W1122 01:40:05.573404 30370 reflector.go:9] "Watch"`:                 `loop | warning: "Watch"`,
		`E1122 01:40:05.573404       7 controller.go:9] "Failed" err="x"`:     `loop | error: "Failed" err="x"`,
		`Installed 2 things`: `loop | Installed 2 things`,
		``:                   `loop | `,
	} {
		var out bytes.Buffer
		newScreen(&out, terminal{}).log("loop", line)
		require.Equal(t, want+"\n", out.String())
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
	require.Equal(t, "$\n    "+long+" y", wrapWords("$ "+long+" y", 60), "a word that the terminal breaks")
}
