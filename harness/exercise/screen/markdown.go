package screen

import (
	"regexp"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"example.com/controllers/harness/exercise"
)

var (
	inlineLink    = regexp.MustCompile(`\[([^\]]+)\]\(([^)\s]+)\)`)
	referenceLink = regexp.MustCompile(`\[([^\]]+)\]\[([^\]]*)\]`)
	definition    = regexp.MustCompile(`(?m)^\[([^\]]+)\]: *(\S+)\n?`)
	heading       = regexp.MustCompile(`^#+ +`)
	item          = regexp.MustCompile(`^([-*]|\d+\.) +`)
)

// render returns Markdown as lines of text that fit on the screen, each block followed by an empty line. It knows what the
// pages of exercises use: headings, paragraphs, quotations, lists, fenced code and links.
func (m *Model) render(markdown string) []string {
	return m.renderText(linksAsText(strings.TrimSpace(markdown)), m.columns())
}

// renderText is render for lines of at most this many columns, without links.
func (m *Model) renderText(markdown string, columns int) []string {
	var lines []string
	indented := func(first, rest string, text []string) {
		for i, line := range text {
			lines = append(lines, strings.TrimRight(map[bool]string{true: first, false: rest}[i == 0]+line, " "))
		}
	}
	for _, block := range blocks(markdown) {
		switch text := strings.Join(block, " "); {
		case strings.HasPrefix(block[0], "```"):
			const indent = "    "
			for _, line := range block[1:] {
				if !strings.HasPrefix(line, "```") {
					indented(indent, indent, wrapped(ansi.Hardwrap(strings.ReplaceAll(line, "\t", "    "), columns-len(indent), true)))
				}
			}
		case heading.MatchString(block[0]):
			lines = append(lines, m.style(bold, heading.ReplaceAllString(text, "")))
		case strings.HasPrefix(block[0], ">"):
			var quoted []string
			for _, line := range block {
				quoted = append(quoted, strings.TrimPrefix(strings.TrimPrefix(line, ">"), " "))
			}
			inner := m.renderText(strings.Join(quoted, "\n"), columns-2)
			indented("> ", "> ", inner[:max(0, len(inner)-1)])
		case item.MatchString(block[0]):
			for _, text := range items(block) {
				indented("- ", "  ", wrap(text, columns-2))
			}
		default:
			indented("", "", wrap(text, columns))
		}
		lines = append(lines, "")
	}
	return lines
}

// wrap breaks text into lines of at most this many columns.
func wrap(text string, columns int) []string { return wrapped(exercise.Wrap(text, columns)) }

// linksAsText writes links out: those to the web with their address, those to a file with its path in the repository.
func linksAsText(markdown string) string {
	addresses := map[string]string{}
	for _, found := range definition.FindAllStringSubmatch(markdown, -1) {
		addresses[strings.ToLower(found[1])] = found[2]
	}
	written := func(text, address string) string {
		if strings.HasPrefix(address, "http") {
			return text + " <" + address + ">"
		}
		address, _, _ = strings.Cut(strings.TrimLeft(address, "./"), "#")
		return text + " (" + address + ")"
	}
	markdown = definition.ReplaceAllString(markdown, "")
	markdown = inlineLink.ReplaceAllStringFunc(markdown, func(link string) string {
		found := inlineLink.FindStringSubmatch(link)
		return written(found[1], found[2])
	})
	return referenceLink.ReplaceAllStringFunc(markdown, func(link string) string {
		found := referenceLink.FindStringSubmatch(link)
		name := found[2]
		if name == "" {
			name = found[1]
		}
		if address := addresses[strings.ToLower(name)]; address != "" {
			return written(found[1], address)
		}
		return link
	})
}

// blocks splits Markdown into blocks of lines: at empty lines outside of fenced code, and after headings.
func blocks(markdown string) [][]string {
	var all [][]string
	var block []string
	end := func() {
		if len(block) > 0 {
			all = append(all, block)
		}
		block = nil
	}
	fenced := false
	for line := range strings.Lines(markdown) {
		line = strings.TrimRight(line, " \n")
		fence := strings.HasPrefix(line, "```")
		switch {
		case fence && !fenced:
			end()
			fenced, block = true, []string{line}
		case fence:
			fenced, block = false, append(block, line)
			end()
		case fenced:
			block = append(block, line)
		case line == "":
			end()
		case heading.MatchString(line):
			end()
			block = []string{line}
			end()
		default:
			block = append(block, strings.TrimSpace(line))
		}
	}
	end()
	return all
}

// items returns the texts of the items of a list.
func items(block []string) []string {
	var all []string
	for _, line := range block {
		if item.MatchString(line) {
			all = append(all, item.ReplaceAllString(line, ""))
			continue
		}
		all[len(all)-1] += " " + line
	}
	return all
}
