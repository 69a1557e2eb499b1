package guess

import (
	"fmt"
	"strings"
)

// TablePath is the path of the table of all answers, in the repository.
const TablePath = "docs/what-really-happens.md"

// tableHead is what the table says of itself. It has one verb: the version.
const tableHead = `# What really happens

What Kubernetes and its libraries do where good engineers guess wrong. Each line is a question of ` + "`make guess`" + `, which
plays the answer in front of you. Our tests play them on Kubernetes %s, so a line that a release makes untrue fails
them; "since" is the release that made it so, where we know it. Guess first: the answers are on this page.

This page is generated from [the questions](../guesses/README.md); ` + "`workshop guess table --write`" + ` writes it anew.
`

// Table returns the table of all answers, as Markdown. version is that of the Kubernetes on which our tests play the questions.
func Table(questions []Question, version string) string {
	var text strings.Builder
	fmt.Fprintf(&text, tableHead, version)
	cell := strings.NewReplacer("|", `\|`, "\n", " ").Replace
	for _, topic := range topics(questions) {
		fmt.Fprintf(&text, "\n## %s\n\n| question | what happens | where it is decided | since | lesson |\n|---|---|---|---|---|\n", topic)
		for _, q := range questions {
			if q.Topic != topic {
				continue
			}
			module, file, _ := strings.Cut(q.Source, " ")
			source := cell(module)
			if file != "" {
				source += " `" + cell(file) + "`"
			}
			needs := ""
			if q.Needs != "" {
				needs = " (played where " + q.Needs + " is installed)"
			}
			fmt.Fprintf(&text, "| [%s](../%s/%s.md) | %s%s | %s | %s | %d |\n", cell(q.Title), Dir, q.Name, cell(q.Result), needs, source, q.Since, q.Lesson)
		}
	}
	return text.String()
}

// topics returns the topics, in the order in which the questions first have them.
func topics(questions []Question) (all []string) {
	seen := map[string]bool{}
	for _, q := range questions {
		if !seen[q.Topic] {
			seen[q.Topic] = true
			all = append(all, q.Topic)
		}
	}
	return all
}
