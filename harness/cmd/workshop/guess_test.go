package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

const sum = `---
topic: Arithmetic
lesson: 1
choices: [three, four, five]
answer: b
result: four
shows: "4"
source: bash expr.c
---
# What is two and two?

## What happens

'''console
$ echo $((2 + 2)) for $(kubectl config view --minify --output jsonpath='{..namespace}')
4 for guess-...
'''

## Why

It is even.
`

// newGuesses makes a repository with one question.
func newGuesses(t *testing.T) *repository {
	r := newRepository(t, "$ true")
	r.write("guesses/go.mod", "module guesses\n\ngo 1.26.0\n")
	r.write("guesses/main.go", "package main\n\nfunc main() {}\n")
	r.write("guesses/sum.md", strings.ReplaceAll(sum, "'''", "```"))
	return r
}

func TestGuess(t *testing.T) {
	r := newGuesses(t)
	out, status := r.workshop("x\nc 80\n\nb\n\n", "guess")
	require.Zero(t, status, "%s", out)
	for _, want := range []string{
		"What is two and two?", "  b)  four\n", "type a letter from a to c, or ? if you don't know\n", "\n4 for guess-", "Wrong. The answer: b) four\n", "It is even.",
		"once more, because you missed it", "Right. The answer: b) four\n", "That was the last question.", "  all         0 of 1\n",
	} {
		_, rest, ok := strings.Cut(out, want)
		require.True(t, ok, "%q is not in the rest of it: %s", want, out)
		out = rest
	}
	r.requireNothingLeft()
	out, status = r.workshop("", "guess")
	require.Zero(t, status, "%s", out)
	require.Contains(t, out, "Nothing is left to ask.", "what was guessed is remembered")
	out, status = r.workshop("", "guess", "list")
	require.Zero(t, status)
	require.Equal(t, "LESSON  TOPIC       NAME  LAST GUESS\n1       Arithmetic  sum   right\n", out)

	out, status = r.workshop("", "guess", "tally")
	require.Equal(t, 1, status)
	require.Contains(t, out, "nobody has guessed yet; make guess ROOM=1 counts hands")
	out, status = r.workshop("3 4 5\n\n\nq\n", "guess", "--room")
	require.Zero(t, status, "%s", out)
	require.Contains(t, out, "4 of 12 were right.")
	out, status = r.workshop("", "guess", "tally")
	require.Zero(t, status)
	require.Equal(t, "RIGHT    MOST OF THE OTHERS  QUESTION\n4 of 12  c (5)               sum\n", out)
	out, status = r.workshop("", "guess", "tally", "guesses/my/progress.yaml", "guesses/my/room.yaml")
	require.Zero(t, status)
	require.Contains(t, out, "\n4 of 13  c (6) ")
}

// A question whose answer is no longer true fails the check, and a session.
func TestGuessThatIsNotTrue(t *testing.T) {
	r := newGuesses(t)
	out, status := r.workshop("", "guess", "check", "sum")
	require.Zero(t, status, "%s", out)
	require.Contains(t, out, "ok     sum (")
	r.write("guesses/sum.md", strings.ReplaceAll(strings.Replace(sum, "$((2 + 2))", "$((2 + 3))", 1), "'''", "```"))
	out, status = r.workshop("", "guess", "check")
	require.Equal(t, 1, status)
	require.Contains(t, out, "FAILED sum\n")
	require.Contains(t, out, "+ 5 for guess-")
	require.Contains(t, out, "workshop: 1 of 1 questions failed\n")
	out, status = r.workshop("b\n\n", "guess")
	require.Equal(t, 1, status)
	require.Contains(t, out, "this is not what the question says; try it again, and if it stays so, the question has to be rewritten: ")
	out, status = r.workshop("", "guess", "list")
	require.Zero(t, status)
	require.NotContains(t, out, "right", "it does not count")
	r.requireNothingLeft()
}

// Whoever leaves at the first question does not wait for what is compiled meanwhile.
func TestLeaveBeforeEverythingIsReady(t *testing.T) {
	for name, stdin := range map[string]string{"q": "q\n", "no more input": ""} {
		t.Run(name, func(t *testing.T) {
			r := newGuesses(t)
			bin, asked := t.TempDir(), filepath.Join(t.TempDir(), "asked")
			require.NoError(t, os.WriteFile(filepath.Join(bin, "go"), []byte("#!/bin/sh\necho > "+asked+"\nexec sleep 1000\n"), 0o700))
			require.NoError(t, syscall.Mkfifo(asked, 0o600))
			r.env = append(r.env, "PATH="+bin+":"+os.Getenv("PATH"))
			typed, typist := io.Pipe()
			cmd := r.command("guess")
			cmd.Stdin = typed
			go func() {
				_, _ = os.ReadFile(asked) // until something is being compiled, or the command has ended
				_, _ = io.WriteString(typist, stdin)
				typist.Close()
			}()
			var screen bytes.Buffer
			cmd.Stdout, cmd.Stderr = &screen, &screen
			require.NoError(t, cmd.Start())
			state, err := cmd.Process.Wait()
			require.NoError(t, err)
			// If nothing was compiled, the goroutine still reads.
			fifo, err := os.OpenFile(asked, os.O_RDWR, 0)
			require.NoError(t, err)
			fifo.Close()
			_ = cmd.Wait() // what copies its output
			out := screen.String()
			require.Equal(t, map[string]int{"q": 0, "no more input": 1}[name], state.ExitCode(), "%s", out)
			require.Contains(t, string(out), "What is two and two?")
			require.NotContains(t, string(out), "context canceled")
			r.requireNothingLeft()
		})
	}
}

// A control plane that dies in the middle is what went wrong, and not a question that is no longer true.
func TestGuessWithoutAControlPlane(t *testing.T) {
	r := newGuesses(t)
	r.write("guesses/sum.md", strings.ReplaceAll(strings.Replace(sum, "$ echo $((2", "$ kill -9 $(cat $TMPDIR/workshop-cluster-*/pid); sleep 300; echo $((2", 1), "'''", "```"))
	out, status := r.workshop("b\n", "guess")
	require.Equal(t, 1, status, "%s", out)
	require.Contains(t, out, "the control plane ended: signal: killed")
	require.NotContains(t, out, "the question has to be rewritten")
	r.requireNothingLeft()
}

func TestGuessWrongInput(t *testing.T) {
	r := newGuesses(t)
	for _, test := range []struct{ args, stdin, want string }{
		{"guess", "", "make guess waits for your guess, but standard input has ended"},
		{"guess nothing", "", `there is no question "nothing"; make guess list (workshop guess list) lists them`},
		{"guess --topic nothing", "", "there is no such question; make guess list (workshop guess list) lists all"},
		{"guess --lesson 2", "", "there is no such question"},
		{"guess --lesson two", "", `--lesson is "two"; it must be a whole number`},
		{"guess tally nowhere.yaml", "", "nowhere.yaml: no such file"},
		{"guess check nothing", "", `there is no question "nothing"`},
		{"guess list sum", "", `unknown command "sum"`},
	} {
		out, status := r.workshop(test.stdin, strings.Fields(test.args)...)
		require.Equal(t, 1, status, "%s: %s", test.args, out)
		require.Contains(t, out, test.want, test.args)
	}
	r.write("guesses/sum.md", "no question")
	out, status := r.workshop("", "guess")
	require.Equal(t, 1, status)
	require.Contains(t, out, "guesses/sum.md: the file must begin with what the question is about")
	r.requireNothingLeft()
}
