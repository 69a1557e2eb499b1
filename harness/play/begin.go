package play

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// heading is a line of Markdown that begins a section of a page; its first level is the page's title.
var heading = regexp.MustCompile(`^##+ (.+)$`)

// BeginAt makes the page begin somewhere else than at its top: at the section whose heading begins with a text, whatever the case,
// or after so many commands, if it is a number. The commands before are run all the same, because the later ones need what they
// have done, but nothing of them is shown.
func (p *Page) BeginAt(where string) error {
	if commands, err := strconv.Atoi(where); err == nil {
		return p.beginAfter(commands)
	}
	var sections []string
	for i, part := range p.Parts {
		offset, inFence := 0, false
		for line := range strings.Lines(part.Prose) {
			begin := offset
			offset += len(line)
			inFence = inFence != isFence(line)
			match := heading.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
			if inFence || match == nil {
				continue
			}
			sections = append(sections, match[1])
			if where == "" || !strings.HasPrefix(strings.ToLower(match[1]), strings.ToLower(where)) {
				continue
			}
			p.begin = i
			if before := strings.TrimSpace(part.Prose[:begin]); before != "" {
				p.Parts = slices.Insert(p.Parts, i, Part{Prose: before})
				p.begin++
			}
			p.Parts[p.begin].Prose = part.Prose[begin:]
			return nil
		}
	}
	return fmt.Errorf("the page has no section %q. It has:\n  %s", where, strings.Join(sections, "\n  "))
}

// beginAfter is BeginAt with a number of commands.
func (p *Page) beginAfter(commands int) error {
	if commands < 0 || commands >= p.Commands() {
		return fmt.Errorf("the page has %d commands, so it cannot begin after %d of them", p.Commands(), commands)
	}
	for i, part := range p.Parts {
		if commands > 0 && commands >= len(part.Steps) {
			commands -= len(part.Steps)
			continue
		}
		p.begin = i
		if commands > 0 {
			p.Parts = slices.Insert(p.Parts, i, Part{Steps: part.Steps[:commands]})
			p.begin++
			p.Parts[p.begin].Steps = part.Steps[commands:]
		}
		return nil
	}
	return nil
}

// commandsBefore returns how many commands are run before the page begins.
func (p *Page) commandsBefore() (count int) {
	for _, part := range p.Parts[:p.begin] {
		count += len(part.Steps)
	}
	return count
}
