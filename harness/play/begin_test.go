package play_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/play"
)

const sections = `# A page

An introduction.

'''console
$ x=1
'''

## The first section

One.

'''console
$ y=$((x + 1))
$ echo $y | tee "$OUT"
2
'''

The end of one.

'''sh
## not a section
'''

### A part of it

Two.

'''console
$ echo $y
2
$ cat "$OUT"
2
'''
`

// What comes before is run, and not shown.
func TestBeginAt(t *testing.T) {
	for where, test := range map[string]struct {
		before int    // commands that are not shown
		first  string // the first line that is shown
	}{
		"0":                 {0, "# A page"},
		"1":                 {1, "## The first section"},
		"2":                 {2, `$ echo $y | tee "$OUT"`},
		"3":                 {3, "The end of one."},
		"4":                 {4, `$ cat "$OUT"`},
		"The first":         {1, "## The first section"},
		"the FIRST section": {1, "## The first section"},
		"a part":            {3, "### A part of it"},
	} {
		t.Run(where, func(t *testing.T) {
			dir := t.TempDir()
			page, err := play.Parse(dir+"/README.md", []byte(strings.ReplaceAll(sections, "'''", "```")))
			require.NoError(t, err)
			require.NoError(t, page.BeginAt(where))
			pauses := 0
			var out bytes.Buffer
			player := play.Player{
				Out: &out, Scratch: t.TempDir(), Env: []string{"OUT=" + dir + "/out"},
				Pause: func(context.Context) error { pauses++; return nil },
			}
			require.NoError(t, player.Introduce(t.Context(), page))
			result, err := player.Play(t.Context(), page)
			require.NoError(t, err)
			require.Equal(t, 5, result.Commands, "all are run")
			require.Equal(t, 5-test.before, pauses)
			lines := nonEmpty(out.String())
			if test.before > 0 {
				require.Equal(t, fmt.Sprintf("running what comes before, without showing it: %d of 5 commands", test.before), lines[0])
				lines = lines[1:]
			}
			require.Equal(t, test.first, lines[0])
			require.Equal(t, 5-test.before, strings.Count(strings.Join(lines, "\n"), "$ "), "%s", out.String())
		})
	}
}

func nonEmpty(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// A command that is not shown must still do what the page says.
func TestWhatIsNotShownIsChecked(t *testing.T) {
	page, err := play.Parse(t.TempDir()+"/README.md", []byte(strings.ReplaceAll(console("$ echo other", "this")+"\n## Next\n\n"+console("$ true"), "'''", "```")))
	require.NoError(t, err)
	require.NoError(t, page.BeginAt("Next"))
	player := play.Player{Out: &bytes.Buffer{}, Scratch: t.TempDir()}
	_, err = player.Play(t.Context(), page)
	require.ErrorContains(t, err, "+ other")
}

func TestBeginAtRefuses(t *testing.T) {
	for where, want := range map[string]string{
		"not a": "the page has no section \"not a\"",
		"first": "the page has no section \"first\". It has:\n  The first section\n  A part of it",
		"":      "the page has no section \"\"",
		"5":     "the page has 5 commands, so it cannot begin after 5 of them",
		"-1":    "cannot begin after -1 of them",
	} {
		page, err := play.Parse(t.TempDir()+"/README.md", []byte(strings.ReplaceAll(sections, "'''", "```")))
		require.NoError(t, err)
		require.ErrorContains(t, page.BeginAt(where), want)
	}
}
