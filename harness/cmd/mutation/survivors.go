package main

import (
	"fmt"
	"slices"
	"strings"
)

// key identifies a mutant, and stays the same when the code around it changes. Two mutants have the same key if the same
// line is in a function twice.
type key struct {
	file     string // relative to the module
	function string // that contains the mutant
	mutator  string // Gremlins' name for the kind of change
	line     string // trimmed, with the changed operator in brackets
}

const separator = " | "

func (k key) String() string {
	return strings.Join([]string{k.file, k.function, k.mutator, k.line}, separator)
}

// status is what Gremlins says about a mutant.
type status string

const (
	killed    status = "KILLED"
	timedOut  status = "TIMED OUT"
	lived     status = "LIVED"
	notViable status = "NOT VIABLE"
	unchanged status = "NOT COVERED" // by the profile that goCommand writes
)

// mutant is one changed operator.
type mutant struct {
	key
	number int // of its line
	status status
}

// everything in place of an explanation's function, mutator and line stands for all survivors of a file.
const everything = "*"

// explanation says why no test needs to catch a mutant, or, for drawings and programs that must fail, those of a whole file.
type explanation struct {
	mutant key
	number int // of its line in the file of explanations
	// equivalent reports whether the explanation begins with that word: the mutant behaves as the code does, so no test can
	// catch it.
	equivalent bool
}

// parseExplanations reads lines of the form "file | function | mutator | line | why" or "file | * | * | * | why". Empty lines, and those that start
// with "#", are comments.
func parseExplanations(text string) ([]explanation, error) {
	var explanations []explanation
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, separator)
		last := len(fields) - 1
		if last < 4 || strings.TrimSpace(fields[last]) == "" {
			return nil, fmt.Errorf("line %d is not of the form FILE | FUNCTION | MUTATOR | LINE | WHY: %s", number, line)
		}
		explanations = append(explanations, explanation{key{fields[0], fields[1], fields[2], strings.Join(fields[3:last], separator)}, number,
			strings.HasPrefix(strings.TrimSpace(fields[last]), "equivalent")})
	}
	return explanations, nil
}

// explainsOneOf reports whether the explanation is for one of the mutants that survived.
func (e explanation) explainsOneOf(mutants []mutant) bool {
	return slices.ContainsFunc(mutants, func(m mutant) bool {
		return m.status == lived && (m.key == e.mutant || e.mutant == wholeFile(m.file))
	})
}

func wholeFile(file string) key { return key{file, everything, everything, everything} }

// match returns the survivors that are not explained, and the explanations that have no survivor. Each explanation is
// for one survivor, unless it is for those of a whole file.
func match(mutants []mutant, explanations []explanation) (unexplained []mutant, stale []explanation) {
	files := map[string]int{} // survivors of files that are explained as a whole
	for _, e := range explanations {
		if e.mutant == wholeFile(e.mutant.file) {
			files[e.mutant.file] = 0
		}
	}
	survivors := map[key][]mutant{}
	for _, m := range mutants {
		if m.status != lived {
			continue
		}
		if _, ok := files[m.file]; ok {
			files[m.file]++
		} else {
			survivors[m.key] = append(survivors[m.key], m)
		}
	}
	for _, e := range explanations {
		if e.mutant == wholeFile(e.mutant.file) && files[e.mutant.file] > 0 {
			continue
		}
		same := survivors[e.mutant]
		if len(same) == 0 {
			stale = append(stale, e)
			continue
		}
		survivors[e.mutant] = same[1:]
	}
	for _, m := range mutants {
		if left := survivors[m.key]; len(left) > 0 && left[0] == m {
			unexplained = append(unexplained, m)
			survivors[m.key] = left[1:]
		}
	}
	return unexplained, stale
}
