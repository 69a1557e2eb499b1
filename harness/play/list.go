package play

import (
	"regexp"
	"strings"

	"charm.land/lipgloss/v2"
)

// itemParts are the indentation, the marker and the text of a list's item that is one line, as [joinLines] makes it.
var itemParts = regexp.MustCompile(`^(\s*)([-*]|\d+\.) +(.*)$`)

// renderPage renders Markdown of which each paragraph and each item is one line. The renderer does not indent the lines of an item
// after the first, so lists are not left to it.
func (s *screen) renderPage(markdown string) (string, error) {
	var out strings.Builder
	var others []string
	flush := func() error {
		rendered, err := s.renderer.Render(strings.Join(others, "\n"))
		if text := strings.Trim(trailingSpace.ReplaceAllString(rendered, ""), "\n"); text != "" {
			out.WriteString("\n" + text + "\n")
		}
		others = nil
		return err
	}
	inFence, inList, numbered := false, false, false
	lines := strings.Split(markdown, "\n")
	for i, line := range lines {
		inFence = inFence != isFence(line)
		parts := itemParts.FindStringSubmatch(line)
		if inFence || parts == nil {
			// Between items, an empty line separates nothing that a reader would miss.
			if isBetween := inList && line == "" && i+1 < len(lines) && itemParts.MatchString(lines[i+1]); !isBetween {
				inList = false
				others = append(others, line)
			}
			continue
		}
		isNumbered := parts[2] != "-" && parts[2] != "*"
		if !inList || parts[1] == "" && isNumbered != numbered { // another list
			if err := flush(); err != nil {
				return "", err
			}
			out.WriteString("\n")
			inList, numbered = true, isNumbered
		}
		item, err := s.renderItem(parts[1], parts[2], parts[3])
		if err != nil {
			return "", err
		}
		out.WriteString(item)
	}
	err := flush()
	return out.String(), err
}

// renderItem renders an item of a list.
func (s *screen) renderItem(indent, marker, text string) (string, error) {
	const margin = "  " // the renderer's
	if marker == "-" || marker == "*" {
		marker = "•"
	}
	rendered, err := s.oneLine.Render(text)
	if err != nil {
		return "", err
	}
	begin := margin + indent + marker + " "
	rest := strings.Repeat(" ", lipgloss.Width(begin))
	wrapped := lipgloss.Wrap(strings.Trim(rendered, " \n"), max(20, s.width-len(rest)), "")
	return begin + strings.ReplaceAll(wrapped, "\n", "\n"+rest) + "\n", nil
}
