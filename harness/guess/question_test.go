package guess

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const letters = `---
topic: Arithmetic
lesson: 2
choices:
- three
- four
- "five: or so"
answer: b
result: four
shows: "4"
source: bash expr.c
since: "1.37"
---
# What is two and two?

In bash.

## What happens

'''console
$ echo $((2 + 2))
4
'''

## Why

Because it *is*.
`

const numbers = `---
topic: Counting
lesson: 1
number: {from: 2.5, to: 4, unit: lines}
result: three lines
shows: "3"
source: coreutils
---
# How many lines does seq 3 print?

## What happens

'''console
$ seq 3 | wc -l
3
'''

## Why

It begins at 1.
`

func question(t *testing.T, name, text string) (Question, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".md")
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(text, "'''", "```")), 0o600))
	return Read(path)
}

func mustRead(t *testing.T, name, text string) Question {
	t.Helper()
	q, err := question(t, name, text)
	require.NoError(t, err)
	return q
}

func TestRead(t *testing.T) {
	q := mustRead(t, "sum", letters)
	require.Equal(t, "sum", q.Name)
	require.Equal(t, "What is two and two?", q.Title)
	require.Equal(t, "In bash.", q.Setup)
	require.Equal(t, "Because it *is*.", q.Why)
	require.Equal(t, About{Topic: "Arithmetic", Lesson: 2, Choices: []string{"three", "four", "five: or so"}, Answer: "b", Result: "four", Shows: "4",
		Source: "bash expr.c", Since: "1.37"}, q.About)
	require.Equal(t, "b) four", q.RightAnswer())
	require.Len(t, q.Page.Parts, 1)
	require.Equal(t, 21, q.Page.Parts[0].Steps[0].Line, "as an editor counts")

	q = mustRead(t, "lines", numbers)
	require.Empty(t, q.Setup)
	require.Equal(t, "three lines", q.RightAnswer())
}

// What a question's file must not be.
func TestReadRefuses(t *testing.T) {
	change := func(text, old, with string) string {
		require.Contains(t, text, old)
		return strings.Replace(text, old, with, 1)
	}
	for name, test := range map[string]struct{ text, want string }{
		"nothing at the top":        {change(letters, "---\n", ""), `must begin with what the question is about, between two lines "---"`},
		"a top without an end":      {change(letters, "1.37\"\n---\n", "1.37\"\n"), "between two lines"},
		"an unknown field":          {change(letters, "since:", "sense:"), `unknown field "sense"`},
		"no topic":                  {change(letters, "topic: Arithmetic", "topic: ''"), "topic is missing"},
		"no lesson":                 {change(letters, "lesson: 2", "lesson: 0"), "lesson must be the number of a lesson"},
		"no source":                 {change(letters, "source: bash expr.c\n", ""), "source is missing"},
		"no result":                 {change(letters, "result: four\n", ""), "result is missing"},
		"an answer beyond":          {change(letters, "answer: b", "answer: d"), `answer is "d"; it must be the letter of a choice, from a to c`},
		"an answer that is a word":  {change(letters, "answer: b", "answer: four"), `answer is "four"`},
		"no answer":                 {change(letters, "answer: b\n", ""), `answer is ""`},
		"one choice":                {change(letters, "- three\n- four\n", ""), "there are 1 choices; there must be 2 to 5"},
		"neither":                   {change(numbers, "number: {from: 2.5, to: 4, unit: lines}\n", ""), "there are 0 choices"},
		"both":                      {change(numbers, "number:", "answer: a\nnumber:"), "choices and an answer, or a number"},
		"a number without a unit":   {change(numbers, ", unit: lines", ""), "number must have a unit"},
		"a number backwards":        {change(numbers, "from: 2.5", "from: 25"), "from must not be more than to"},
		"a title that is no answer": {change(letters, "two?", "two."), "the title must be the question"},
		"no title":                  {change(letters, "# What", "What"), "the title must be the question"},
		"nothing played":            {change(letters, "## What happens", "## What"), `there is no section "## What happens"`},
		"no reason":                 {change(letters, "## Why", "## Because"), `there is no section "## Why" after "## What happens"`},
		"an empty reason":           {change(letters, "Because it *is*.\n", ""), "## Why is missing"},
		"sections in the wrong order": {change(change(change(letters, "## Why", "## X"), "## What happens", "## Why"), "## X", "## What happens"),
			`there is no section "## Why" after`},
		"nothing decides":                    {change(letters, "shows: \"4\"\n", ""), "shows is missing"},
		"what decides is in a command only":  {change(letters, "shows: \"4\"", "shows: echo"), `no output on the page has "echo"`},
		"what decides is in the reason only": {change(letters, "shows: \"4\"", "shows: Because"), `no output on the page has "Because"`},
		"a quote of code that is not there":  {change(letters, "'''console", "'''go main.go\nx\n'''\n\n'''console"), "main.go"},
		"output without a command":           {change(letters, "$ echo $((2 + 2))\n", ""), "must begin with a command"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := question(t, "q", test.text)
			require.ErrorContains(t, err, test.want)
			require.ErrorContains(t, err, "q.md", "it names the file")
		})
	}
}

func TestAll(t *testing.T) {
	root := t.TempDir()
	_, err := All(root)
	require.ErrorContains(t, err, "there are no questions in ")
	require.NoError(t, os.Mkdir(filepath.Join(root, Dir), 0o700))
	for name, text := range map[string]string{
		"b": letters, "a": letters, "c": strings.Replace(letters, "topic: Arithmetic", "topic: Abc", 1), "z": numbers, "README": "# Not a question",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(root, Dir, name+".md"), []byte(strings.ReplaceAll(text, "'''", "```")), 0o600))
	}
	all, err := All(root)
	require.NoError(t, err)
	var names []string
	for _, q := range all {
		names = append(names, q.Name)
	}
	require.Equal(t, []string{"z", "c", "a", "b"}, names, "by lesson, topic and name")
}

func TestParseGuess(t *testing.T) {
	letters, numbers := mustRead(t, "sum", letters), mustRead(t, "lines", numbers)
	for text, want := range map[string]Guess{
		"b": {"b", -1}, " B ": {"b", -1}, "c)": {"c", -1}, "?": {"?", -1}, "a 80": {"a", 80}, "b) 0%": {"b", 0}, "? 100": {"?", 100},
	} {
		got, err := letters.ParseGuess(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for text, want := range map[string]Guess{"3": {"3", -1}, "2.5 60%": {"2.5", 60}, "-1": {"-1", -1}, "1e3": {"1e3", -1}, "?": {"?", -1}} {
		got, err := numbers.ParseGuess(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	const letter, number = "type a letter from a to c, or ? if you don't know", "type a number, in lines, such as 10, or ? if you don't know"
	for text, want := range map[string]string{
		"": letter, "d": letter, "ab": letter, "3": letter, "four": letter, "`": letter, "b 80 %": letter, "??": letter,
		"b 101": `"101" does not say how sure you are; type a number from 0 to 100`, "b -1": "how sure", "b sure": "how sure",
	} {
		_, err := letters.ParseGuess(text)
		require.ErrorContains(t, err, want, text)
	}
	for text, want := range map[string]string{"": number, "b": number, "3s": number, "NaN": number, "inf": number, "3 4 5": number} {
		_, err := numbers.ParseGuess(text)
		require.ErrorContains(t, err, want, text)
	}
}

func TestIsRight(t *testing.T) {
	letters, numbers := mustRead(t, "sum", letters), mustRead(t, "lines", numbers)
	for guess, want := range map[string]bool{"b": true, "a": false, "c": false, "?": false} {
		require.Equal(t, want, letters.IsRight(guess), guess)
	}
	for guess, want := range map[string]bool{"2.5": true, "3": true, "4": true, "2.4": false, "4.1": false, "-3": false, "?": false} {
		require.Equal(t, want, numbers.IsRight(guess), guess)
	}
}
