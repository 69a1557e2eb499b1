package play

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ellipsis stands for any text in a line of a page; a line of its own, for any lines.
const ellipsis = "..."

// approximate matches a number that is a little different each time, or the least or most that a number may be, with its
// unit.
var approximate = regexp.MustCompile(`^([~≥≤])(\d+(?:\.\d+)?)(\D*)$`)

// matchLine reports whether a line of output matches a line of a page.
func matchLine(pattern, line string) bool {
	line = strings.TrimRight(line, " \t\r")
	if strings.ContainsAny(pattern, "~≥≤") {
		return matchWords(strings.Fields(pattern), strings.Fields(line))
	}
	return matchText(pattern, line)
}

// matchWords compares word by word, because the length of a number moves the columns after it.
func matchWords(patterns, words []string) bool {
	if len(patterns) != len(words) {
		return false
	}
	for i, pattern := range patterns {
		number := approximate.FindStringSubmatch(pattern)
		if number == nil {
			if !matchText(pattern, words[i]) {
				return false
			}
			continue
		}
		wanted, err := strconv.ParseFloat(number[2], 64)
		if err != nil {
			return false
		}
		least, most := wanted/2, wanted*2
		switch number[1] {
		case "≥":
			least, most = wanted, math.Inf(1)
		case "≤":
			least, most = 0, wanted
		}
		got, err := strconv.ParseFloat(strings.TrimSuffix(words[i], number[3]), 64)
		if err != nil || !(least <= got && got <= most) { // NaN is no number
			return false
		}
	}
	return true
}

func matchText(pattern, line string) bool {
	pieces := strings.Split(pattern, ellipsis)
	if len(pieces) == 1 {
		return pattern == line
	}
	rest, ok := strings.CutPrefix(line, pieces[0])
	if !ok {
		return false
	}
	last := len(pieces) - 1
	for _, piece := range pieces[1:last] {
		at := strings.Index(rest, piece)
		if at < 0 {
			return false
		}
		rest = rest[at+len(piece):]
	}
	return strings.HasSuffix(rest, pieces[last])
}

// statusLine is how a page says that a command fails: the last line of its output, which is never printed by the command.
func statusLine(status int) string { return fmt.Sprintf("(exit status %d)", status) }

var statusPattern = regexp.MustCompile(`^\(exit status ([1-9]\d{0,2})\)$`)

// expectedStatus splits what a page expects of a command into the lines of its output and its exit status.
func expectedStatus(expect []string) (output []string, status int) {
	if count := len(expect); count > 0 {
		if match := statusPattern.FindStringSubmatch(expect[count-1]); match != nil {
			status, _ = strconv.Atoi(match[1]) // at most three digits
			return expect[:count-1], status
		}
	}
	return expect, 0
}

// compareRun compares the output and the exit status of a command with what the page expects. The exit status is no line of
// output: no ellipsis stands for it, and a command cannot print it. The result is a diff as that of compare.
func compareRun(expect, lines []string, status int) string {
	output, wanted := expectedStatus(expect)
	diff := compare(output, lines)
	if status == wanted {
		return diff
	}
	if diff == "" && len(lines) > 0 {
		diff = "  " + strings.Join(last(lines), "\n  ")
	}
	var statuses []string
	if diff != "" {
		statuses = append(statuses, diff)
	}
	if wanted != 0 {
		statuses = append(statuses, "- "+statusLine(wanted))
	}
	if status != 0 {
		statuses = append(statuses, "+ "+statusLine(status))
	}
	return strings.Join(statuses, "\n")
}

// compare compares the lines of an output with those that a page expects. It returns "" if they match, else a diff:
// expected lines start with "  ", missing ones with "- ", unexpected ones with "+ ".
func compare(expect, lines []string) string {
	// cost[i][j] is the least number of differences between expect[i:] and lines[j:].
	cost := make([][]int, len(expect)+1)
	for i := range cost {
		cost[i] = make([]int, len(lines)+1)
	}
	for i := len(expect); i >= 0; i-- {
		for j := len(lines); j >= 0; j-- {
			switch {
			case i == len(expect):
				cost[i][j] = len(lines) - j
			case expect[i] == ellipsis:
				cost[i][j] = cost[i+1][j]
				if j < len(lines) {
					cost[i][j] = min(cost[i][j], cost[i][j+1])
				}
			case j == len(lines):
				cost[i][j] = 1 + cost[i+1][j]
			default:
				cost[i][j] = 1 + min(cost[i+1][j], cost[i][j+1])
				if matchLine(expect[i], lines[j]) {
					cost[i][j] = min(cost[i][j], cost[i+1][j+1])
				}
			}
		}
	}
	if cost[0][0] == 0 {
		return ""
	}
	var diff []string
	for i, j := 0, 0; i < len(expect) || j < len(lines); {
		switch here := cost[i][j]; {
		case i < len(expect) && expect[i] == ellipsis && cost[i+1][j] == here:
			i++
		case i < len(expect) && expect[i] == ellipsis:
			diff = append(diff, "  "+lines[j])
			j++
		case i < len(expect) && j < len(lines) && cost[i+1][j+1] == here && matchLine(expect[i], lines[j]):
			diff = append(diff, "  "+lines[j])
			i, j = i+1, j+1
		case i < len(expect) && cost[i+1][j]+1 == here:
			diff = append(diff, "- "+expect[i])
			i++
		default:
			diff = append(diff, "+ "+lines[j])
			j++
		}
	}
	return strings.Join(shorten(diff), "\n")
}

// shorten replaces lines that are far from any difference by an ellipsis.
func shorten(diff []string) []string {
	const context = 3
	var out []string
	for i, line := range diff {
		around := diff[max(0, i-context):min(len(diff), i+context+1)]
		switch {
		case slices.ContainsFunc(around, func(line string) bool { return !strings.HasPrefix(line, "  ") }):
			out = append(out, line)
		case len(out) == 0 || out[len(out)-1] != "  "+ellipsis:
			out = append(out, "  "+ellipsis)
		}
	}
	return out
}
