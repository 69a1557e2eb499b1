package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"example.com/controllers/harness/exercise"
	"example.com/controllers/harness/exercise/screen"
	"example.com/controllers/harness/guard"
)

func exercisesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exercises [NAME]",
		Short: "Do the exercises: find the bug in a controller, and fix it",
		Long: `Show the current exercise, or the one of this name or number, and check your copy of it at every save. The
keys are at the bottom of the screen. Without a terminal, show the exercise and check it once, as
"workshop exercises check" does.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return doExercises(cmd.Context(), args) },
	}
	cmd.AddCommand(exercisesCheckCommand(), exercisesRunCommand(), exercisesListCommand(), exercisesHintCommand(),
		exercisesResetCommand(), exercisesSolutionCommand())
	return cmd
}

// doExercises shows the screen, or the current exercise as text if there is no terminal.
func doExercises(ctx context.Context, chosen []string) (err error) {
	c, err := enterClassroom(ctx)
	if err != nil {
		return err
	}
	if len(chosen) > 0 {
		e, err := c.catalogue.Find(chosen[0])
		if err != nil {
			return err
		}
		if err := c.progress.Update(func(p *exercise.Progress) { p.Current = e.Name }); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, c.clusters.stop()) }()
	if isTerminal() {
		return c.showScreen(ctx)
	}
	e, done := c.progress.CurrentOf(c.catalogue)
	if done {
		fmt.Println("You have solved all exercises.")
		return nil
	}
	if _, err := e.Copy(); err != nil {
		return err
	}
	page, err := e.Page()
	if err != nil {
		return err
	}
	fmt.Printf("%s\nYour copy: %s\n\n", page, relativePath(e.Mine))
	v, err := c.checkMine(ctx, e)
	if err != nil {
		return err
	}
	return errors.Join(printVerdict(e, v), exitOf(v))
}

// showScreen shows the screen until the participant quits.
func (c *classroom) showScreen(ctx context.Context) (err error) {
	dir, remove, err := guard.TempDir("workshop-exercises-")
	if err != nil {
		return fmt.Errorf("make a directory for the recording of the last check: %w", err)
	}
	defer func() { err = errors.Join(err, remove()) }()
	d := &drawing{path: filepath.Join(dir, "the last check")} // which is the page's title
	defer func() { err = errors.Join(err, d.end()) }()
	c.grader.Recording = d.path
	return screen.Run(ctx, screen.Options{
		Catalogue: c.catalogue, Progress: c.progress, Check: c.grader.Check, Path: relativePath,
		Drawing: func() (string, error) { return d.show(ctx) },
		Color:   os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
	}, func(status func(string)) { c.clusters.progress = statusWriter(status) })
}

// drawing is the page that draws the last check.
type drawing struct {
	path string // of the recording, which is there once a check has made a request
	url  string // of the page, while it is served
	stop func() error
}

// show serves the page, and returns its URL.
func (d *drawing) show(ctx context.Context) (url string, err error) {
	if d.url != "" {
		return d.url, nil
	}
	empty, err := os.OpenFile(d.path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return "", fmt.Errorf("draw the last check: %w", err)
	}
	empty.Close()
	d.url, d.stop, err = serveWhile(ctx, d.path)
	return d.url, err
}

// end ends the page, if it is served.
func (d *drawing) end() error {
	if d.stop == nil {
		return nil
	}
	return d.stop()
}

// printVerdict prints the verdict on an exercise, and why a solution is right if it has passed.
func printVerdict(e exercise.Exercise, v exercise.Result) error {
	fmt.Print(v.Text(columns(), shownLines))
	if !v.Passed() {
		return nil
	}
	why, err := e.Why()
	for paragraph := range strings.SplitSeq(why, "\n\n") {
		if paragraph != "" {
			fmt.Printf("\n%s\n", exercise.Wrap(strings.ReplaceAll(paragraph, "\n", " "), columns()))
		}
	}
	return err
}

// shownLines is how many lines of a timeline are shown at most. The JSON form has all that are kept.
const shownLines = 40

// statusWriter calls a function with each line that is written to it.
type statusWriter func(string)

// Write implements io.Writer.
func (w statusWriter) Write(text []byte) (int, error) {
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" {
			w(line)
		}
	}
	return len(text), nil
}

// checkMine checks the participant's copy of an exercise, and records it if it passes.
func (c *classroom) checkMine(ctx context.Context, e exercise.Exercise) (exercise.Result, error) {
	v, err := c.grader.Check(ctx, e)
	if err != nil || !v.Passed() {
		return v, err
	}
	return v, c.progress.Update(func(p *exercise.Progress) { p.Pass(e, time.Now()) })
}

// exitOf returns the exit status for a verdict.
func exitOf(v exercise.Result) error {
	if v.Passed() {
		return nil
	}
	return exitStatus(1)
}

func printJSON(value any) error {
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

func exercisesCheckCommand() *cobra.Command {
	var asJSON, shipped, solution, golden bool
	var attempt string
	cmd := &cobra.Command{
		Use:   "check [NAME]",
		Short: "Check an exercise, and exit with status 1 if it has not passed",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			ctx := cmd.Context()
			c, err := enterClassroom(ctx)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, c.clusters.stop()) }()
			e, err := c.exercise(args)
			if err != nil {
				return err
			}
			check := c.checkMine
			switch {
			case shipped || golden:
				check = c.grader.CheckShipped
			case solution:
				check = c.grader.CheckSolution
			case attempt != "":
				check = func(ctx context.Context, e exercise.Exercise) (exercise.Result, error) {
					return c.grader.CheckAttempt(ctx, e, attempt)
				}
			}
			v, err := check(ctx, e)
			if err != nil {
				return err
			}
			if golden {
				if v.Passed() {
					return fmt.Errorf("%s passes as shipped", e.Name)
				}
				if err := e.UpdateGolden(v); err != nil {
					return err
				}
			}
			if asJSON {
				err = printJSON(v)
			} else {
				err = printVerdict(e, v)
			}
			return errors.Join(err, exitOf(v))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the verdict as JSON")
	cmd.Flags().BoolVar(&shipped, "shipped", false, "check the exercise as shipped instead of your copy")
	cmd.Flags().BoolVar(&golden, "golden", false, "check the exercise as shipped, and write the verdict to its failure.golden")
	cmd.Flags().BoolVar(&solution, "solution", false, "check the solution instead of your copy")
	cmd.Flags().StringVar(&attempt, "attempt", "", "check the attempt of this `NAME` instead of your copy")
	cmd.MarkFlagsMutuallyExclusive("shipped", "solution", "attempt")
	cmd.MarkFlagsMutuallyExclusive("golden", "solution", "attempt")
	return cmd
}

// columns returns the width of the terminal, or 100 without one.
func columns() int {
	if width, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil && width > 0 {
		return width
	}
	return 100
}

func exercisesRunCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Check all exercises that you have started, and exit with status 1 unless all pass",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			ctx := cmd.Context()
			c, err := enterClassroom(ctx)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, c.clusters.stop()) }()
			verdicts := []exercise.Result{}
			failed := false
			for _, e := range c.catalogue.Exercises {
				if !e.HasCopy() {
					continue
				}
				v, err := c.checkMine(ctx, e)
				if err != nil {
					return err
				}
				verdicts = append(verdicts, v)
				failed = failed || !v.Passed()
				if !asJSON {
					fmt.Printf("%-28s  %-16s  %s\n", e.Name, v.Verdict, v.Message)
				}
			}
			if asJSON {
				err = printJSON(verdicts)
			} else if len(verdicts) == 0 {
				fmt.Println("You have not started any exercise.")
			}
			if failed {
				err = errors.Join(err, exitStatus(1))
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the verdicts as JSON")
	return cmd
}

// standing is what the list says about an exercise.
type standing struct {
	Name    string     `json:"name"`
	Number  int        `json:"number"`
	Title   string     `json:"title"`
	Lesson  int        `json:"lesson"`
	Cluster bool       `json:"cluster"` // needs a control plane
	Write   bool       `json:"write"`   // a part is missing, instead of wrong
	Started bool       `json:"started"` // has a copy that was changed
	Hints   int        `json:"hints"`   // shown so far
	Helped  int        `json:"helped"`  // hints that had been shown when it has passed for the first time
	Passed  *time.Time `json:"passed"`  // for the first time; null if it has not
}

func exercisesListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the exercises, and which you have solved",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := enterClassroom(cmd.Context())
			if err != nil {
				return err
			}
			list := []standing{}
			for _, e := range c.catalogue.Exercises {
				s := standing{Name: e.Name, Number: e.Number, Title: e.Title, Lesson: e.Lesson, Cluster: e.Cluster, Started: e.IsChanged(), Hints: c.progress.Hints[e.Name],
					Write: e.Write, Helped: c.progress.Helped[e.Name]}
				if at := c.progress.Passed[e.Name]; !at.IsZero() {
					s.Passed = &at
				}
				list = append(list, s)
			}
			if asJSON {
				return printJSON(list)
			}
			current, done := c.progress.CurrentOf(c.catalogue)
			lesson := 0
			for i, e := range c.catalogue.Exercises {
				if e.Lesson != lesson {
					lesson = e.Lesson
					fmt.Printf("Lesson %d\n", lesson)
				}
				mark, pointer := " ", " "
				solved, about := c.progress.Marks(e)
				if solved {
					mark = "✓"
				}
				if e.Name == current.Name && !done {
					pointer = ">"
				}
				fmt.Println(strings.TrimRight(fmt.Sprintf("%s %s %2d  %-40s  %s", pointer, mark, list[i].Number, e.Title, strings.Join(about, ", ")), " "))
			}
			fmt.Printf("%d of %d solved\n", c.progress.Count(c.catalogue), len(list))
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the list as JSON")
	return cmd
}

func exercisesHintCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "hint [NAME]",
		Short: "Print the next hint, and those before it",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := enterClassroom(cmd.Context())
			if err != nil {
				return err
			}
			e, err := c.exercise(args)
			if err != nil {
				return err
			}
			hints, err := e.Hints()
			if err != nil {
				return err
			}
			err = c.progress.Update(func(p *exercise.Progress) { p.Hints[e.Name] = min(p.Hints[e.Name]+1, len(hints)) })
			for number, hint := range hints[:c.progress.Hints[e.Name]] {
				fmt.Printf("Hint %d of %d\n\n%s\n\n", number+1, len(hints), hint)
			}
			return err
		},
	}
}

func exercisesResetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "reset NAME",
		Short: "Replace your copy of an exercise with the exercise as shipped; your changes are lost",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := enterClassroom(cmd.Context())
			if err != nil {
				return err
			}
			e, err := c.exercise(args)
			if err != nil {
				return err
			}
			if err := e.Reset(); err != nil {
				return err
			}
			fmt.Printf("%s is as shipped again: %s\n", e.Name, relativePath(e.Mine))
			return c.progress.Update(func(p *exercise.Progress) { p.Again(e) })
		},
	}
}

func exercisesSolutionCommand() *cobra.Command {
	var diff bool
	cmd := &cobra.Command{
		Use:   "solution NAME",
		Short: "Write the solution of an exercise next to your copy",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := enterClassroom(cmd.Context())
			if err != nil {
				return err
			}
			e, err := c.exercise(args)
			if err != nil {
				return err
			}
			if _, err := e.Copy(); err != nil {
				return err
			}
			dir, err := e.ShowSolution()
			if err != nil {
				return err
			}
			if !diff {
				fmt.Println(relativePath(dir))
				return nil
			}
			text, err := e.Difference()
			if text == "" && err == nil {
				text = "The solution is the same as your code."
			}
			fmt.Println(text)
			return err
		},
	}
	cmd.Flags().BoolVar(&diff, "diff", false, "print it as a diff to your code")
	return cmd
}

// relativePath returns a path relative to the working directory, if that is shorter.
func relativePath(path string) string {
	wd, err := os.Getwd()
	if err != nil {
		return path
	}
	if short, err := filepath.Rel(wd, path); err == nil && len(short) < len(path) {
		return short
	}
	return path
}
