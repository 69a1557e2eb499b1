package play

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMatchLine(t *testing.T) {
	tests := []struct {
		pattern, line string
		want          bool
	}{
		{"", "", true},
		{"", "x", false},
		{"pod/a created", "pod/a created", true},
		{"pod/a created", "pod/a created  ", true},
		{"pod/a created", "pod/a  created", false},
		{"pod/... created", "pod/frontend-x created", true},
		{"pod/... created", "pod/frontend-x deleted", false},
		{"...", "anything at all", true},
		{"...", "", true},
		{"a...b...c", "a 1 b 2 c", true},
		{"a...b...c", "a 1 c 2 b", false},
		{"a...a", "a", false},
		{"...b", "a b", true},
		{"a...", "a", true},
		{"~60 requests", "60 requests", true},
		{"~60 requests", "31 requests", true},
		{"~60 requests", "119 requests", true},
		{"~60 requests", "29 requests", false},
		{"~60 requests", "121 requests", false},
		{"~60 requests", "many requests", false},
		{"~60 requests", "60 answers", false},
		{"~1.5s", "1.1s", true},
		{"~1.5s", "1.1", true},
		{"~1.5s", "1.1m", false},
		{"≥1.5s", "1.5s", true},
		{"≥1.5s", "1.499s", false},
		{"≥1.5s  delete", "100.001s delete", true},
		{"≥1.5s  delete", "2s create", false},
		{"≥1.5s", "NaNs", false},
		{"≥1.5s", "2m", false},
		{"a ≥ b", "a ≥ b", true},
		{"≤40", "40", true},
		{"≤40 KB", "0.1  KB", true},
		{"≤40", "40.1", false},
		{"≤40", "-1", false},
		{"≤40", "NaN", false},
		{"LIST  pods  ~59  ~2384", "LIST    pods   61   2411", true},
		{"LIST  pods  ~59", "LIST  pods  59  1", false},
		{"in ~20 ... or so", "in 21 seconds or so", true},
		{"~/.kube/config", "~/.kube/config", true},
	}
	for _, test := range tests {
		require.Equal(t, test.want, matchLine(test.pattern, test.line), "page: %q, real: %q", test.pattern, test.line)
	}
}

// split returns the lines of a text in which they are separated by "|".
func split(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, "|")
}

func TestCompare(t *testing.T) {
	tests := map[string]struct{ expect, lines, want string }{
		"nothing":                       {"", "", ""},
		"the same":                      {"a|b", "a|b", ""},
		"any lines, and there are none": {"a|...|b", "a|b", ""},
		"any lines, and there are some": {"a|...|b", "a|1|2|b", ""},
		"any lines at the end":          {"a|...", "a|1|2", ""},
		"any lines twice":               {"...|b|...", "a|b|c", ""},
		"the last of several":           {"...|b", "b|b|b", ""},
		"unexpected output":             {"", "a", "+ a"},
		"missing output":                {"a", "", "- a"},
		"another line":                  {"a|b|c", "a|x|c", "  a|- b|+ x|  c"},
		"any lines around another":      {"...|b|...", "a|x|c", "- b|  a|  x|  c"},
		"a difference far away is found and the rest left out": {
			"1|2|3|4|5|6|7|8|9", "1|2|3|4|5|6|7|8|x", "  ...|  6|  7|  8|- 9|+ x"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := strings.ReplaceAll(compare(split(test.expect), split(test.lines)), "\n", "|")
			require.Equal(t, test.want, got)
		})
	}
}

// An exit status is not output: only a line that names it, at the end, expects one.
func TestCompareRun(t *testing.T) {
	tests := map[string]struct {
		expect, lines string
		status        int
		want          string
	}{
		"success":                      {"a", "a", 0, ""},
		"a failure that is expected":   {"a|(exit status 1)", "a", 1, ""},
		"any output, then a failure":   {"...|(exit status 1)", "a|b", 1, ""},
		"no output but a failure":      {"(exit status 130)", "", 130, ""},
		"an ellipsis at the end":       {"...", "a|b", 1, "  a|  b|+ (exit status 1)"},
		"an ellipsis and no output":    {"...", "", 1, "+ (exit status 1)"},
		"a line, then an ellipsis":     {"a|...", "a|b", 2, "  a|  b|+ (exit status 2)"},
		"an ellipsis in the status":    {"a|(exit status ...)", "a", 1, "  a|- (exit status ...)|+ (exit status 1)"},
		"an ellipsis after the status": {"(exit status 1)|...", "a", 1, "- (exit status 1)|  a|+ (exit status 1)"},
		"any status":                   {"(exit status ~1)", "", 1, "- (exit status ~1)|+ (exit status 1)"},
		"another status":               {"a|(exit status 1)", "a", 2, "  a|- (exit status 1)|+ (exit status 2)"},
		"success that is not expected": {"a|(exit status 1)", "a", 0, "  a|- (exit status 1)"},
		"output that looks like one":   {"a|(exit status 1)", "a|(exit status 1)", 0, "  a|+ (exit status 1)|- (exit status 1)"},
		"other output and a status":    {"a|...", "b", 1, "- a|  b|+ (exit status 1)"},
		"status 0":                     {"a|(exit status 0)", "a", 0, "  a|- (exit status 0)"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := strings.ReplaceAll(compareRun(split(test.expect), split(test.lines), test.status), "\n", "|")
			require.Equal(t, test.want, got)
		})
	}
}

// The diff is empty if and only if the page matches.
func FuzzCompare(f *testing.F) {
	f.Add("a\n...\nb", "a\nb")
	f.Add("...\n...", "")
	f.Add("a\n~5", "a\n7")
	f.Fuzz(func(t *testing.T, page, real string) {
		expect, lines := strings.Split(page, "\n"), strings.Split(real, "\n")
		if len(expect)*len(lines) > 10_000 {
			return
		}
		matches := matchAll(expect, lines)
		if diff := compare(expect, lines); (diff == "") != matches {
			t.Errorf("page %q, real %q: matches %v, diff %q", page, real, matches, diff)
		}
	})
}

// matchAll reports what compare should find, in the simplest way.
func matchAll(expect, lines []string) bool {
	switch {
	case len(expect) == 0:
		return len(lines) == 0
	case expect[0] == ellipsis:
		for i := range len(lines) + 1 {
			if matchAll(expect[1:], lines[i:]) {
				return true
			}
		}
		return false
	default:
		return len(lines) > 0 && matchLine(expect[0], lines[0]) && matchAll(expect[1:], lines[1:])
	}
}
