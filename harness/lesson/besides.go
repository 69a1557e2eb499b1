package lesson

import (
	"regexp"
	"strings"
	"time"

	"example.com/controllers/harness/history"
)

// typed returns what [play.Player.Typed] records: the commands that do something, as steps.
func typed(record func(history.Record)) func(command string) {
	return func(command string) {
		if name := stepName(command); name != "" {
			record(history.Record{Step: &history.Step{Time: time.Now(), Name: name}})
		}
	}
}

// ran returns what [play.Player.Ran] records: the processes of the controllers. The names of these commands are those of the programs.
func ran(record func(history.Record)) func(name string, running bool) {
	return func(name string, running bool) {
		if name == "proxy" || name == "node" || name == "kubectl" { // the workshop's, or one of many
			return
		}
		state := history.Ended
		if running {
			state = history.Running
		}
		record(history.Record{Process: &history.Process{Time: time.Now(), Program: strings.Trim(name, `"'`), State: state}})
	}
}

// plain is a word of a command that holds nothing but names.
var plain = regexp.MustCompile(`^[A-Za-z0-9_%?][A-Za-z0-9_./:%?,-]*$`)

// stepName returns the beginning of a command, up to its flags: what comes after them may be content, which no recording has. It returns ""
// for a command that only looks at something.
func stepName(command string) string {
	words := strings.Fields(command)
	if len(words) == 0 {
		return ""
	}
	switch words[0] {
	case "kill":
		if strings.Contains(command, "proxy") { // of the workshop
			return ""
		}
	case "kubectl", "workshop":
		if len(words) < 2 || isLook[words[1]] {
			return ""
		}
	default:
		return ""
	}
	const most = 5
	end := 0
	for end < min(most, len(words)) && plain.MatchString(words[end]) {
		end++
	}
	return strings.Join(words[:end], " ")
}

// isLook has the commands of kubectl and workshop that change nothing.
var isLook = map[string]bool{
	"get": true, "describe": true, "logs": true, "wait": true, "diff": true, "events": true, "explain": true, "auth": true, "api-resources": true, "config": true,
	"bill": true, "requests": true, "view": true, "proxy": true,
}
