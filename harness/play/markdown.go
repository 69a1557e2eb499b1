package play

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// trailingSpace is what the Markdown renderer pads lines to its width with.
var trailingSpace = regexp.MustCompile(`(?m)[ \t]+$`)

// simplify rewrites the Markdown of a page in dir to what the renderer shows well: lines that belong together joined,
// links as text, tabs in code as spaces (it takes a tab for one column, and pads lines accordingly), and without colour,
// emphasis as the characters that mark it.
func (s *screen) simplify(dir, markdown string) string {
	lines := strings.Split(joinLines(markdown), "\n")
	inFence := false
	for i, line := range lines {
		if isFence(line) {
			inFence = !inFence
			continue
		}
		if inFence {
			lines[i] = strings.ReplaceAll(line, "\t", "    ")
		} else {
			lines[i] = s.simplifyInline(dir, line)
		}
	}
	return strings.Join(lines, "\n")
}

func isFence(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "```") }

var (
	item = regexp.MustCompile(`^\s*([-*]|\d+\.) `)
	// A line that the next one does not continue: a heading or its underline, a row of a table, a quotation, HTML.
	closedLine = regexp.MustCompile(`^\s*(#|\||>|<|=+$|-+$)`)
)

// joinLines makes one line of each paragraph and list item. The renderer would keep the line breaks in items, and
// show emphasis that goes over a line break as two.
func joinLines(markdown string) string {
	var out []string
	inFence, open := false, false // open: the last line may be continued
	for line := range strings.SplitSeq(markdown, "\n") {
		text := strings.TrimSpace(line)
		switch {
		case isFence(line):
			inFence, open = !inFence, false
		case inFence, text == "", closedLine.MatchString(line):
			open = false
		case item.MatchString(line):
			open = true
		case open:
			out[len(out)-1] += " " + text
			continue
		default:
			open = !strings.HasPrefix(line, "    ") // an indented code block
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

var (
	// Code comes first, so that nothing in it is taken for a link or emphasis.
	inline   = regexp.MustCompile("`[^`]+`" + `|!?\[[^\]]*\]\([^)\s]*\)|\*\*[^*\s][^*]*\*\*|\*[^*\s][^*]*\*`)
	link     = regexp.MustCompile(`^(!?)\[([^\]]*)\]\(([^)\s]*)\)$`)
	emphasis = regexp.MustCompile(`^(\*+)(.*?)\*+$`)
)

func (s *screen) simplifyInline(dir, text string) string {
	return inline.ReplaceAllStringFunc(text, func(found string) string {
		if parts := link.FindStringSubmatch(found); parts != nil {
			return s.linkText(dir, parts[1] == "!", s.simplifyInline(dir, parts[2]), parts[3])
		}
		if parts := emphasis.FindStringSubmatch(found); parts != nil {
			marks, text := parts[1], s.simplifyInline(dir, parts[2])
			if !s.color {
				marks = strings.ReplaceAll(marks, "*", `\*`)
			}
			return marks + text + marks
		}
		return found
	})
}

// linkText returns what a terminal shows for a link: its text, and the first time, where it leads. Files are named as seen from
// the working directory. A page in the terminal has no anchors, so a link to one is text only.
func (s *screen) linkText(dir string, isImage bool, text, target string) string {
	place := target
	if address, err := url.Parse(target); err == nil && address.Scheme == "" {
		if place = address.Path; place != "" {
			place = fromHere(filepath.Join(dir, filepath.FromSlash(place)))
		}
	}
	known := s.linked[place] || place == "" || text == place || text == target
	s.linked[place] = true
	switch {
	case isImage:
		return "Picture: " + text + " (" + place + ")"
	case known:
		return text
	default:
		return text + " (" + place + ")"
	}
}

// fromHere returns a path as seen from the working directory, or the path as it is if there is no way there.
func fromHere(path string) string {
	if here, err := os.Getwd(); err == nil {
		if relative, err := filepath.Rel(here, path); err == nil {
			return relative
		}
	}
	return path
}
