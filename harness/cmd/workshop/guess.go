package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/guess"
	"example.com/controllers/harness/play"
)

// guessFlags are the flags of "workshop guess".
type guessFlags struct {
	lesson           int
	topic            string
	step, room, keep bool
}

func guessCommand() *cobra.Command {
	var f guessFlags
	cmd := &cobra.Command{
		Use:   "guess [NAME...]",
		Short: "Guess what Kubernetes really does, and watch it",
		Long: `Ask what Kubernetes and its libraries do, one question at a time, and let a real control plane play the
answer in front of you. What you have guessed wrong comes back later. NAMEs are those of the questions to ask;
"workshop guess list" lists them.`,
		RunE: func(cmd *cobra.Command, names []string) error { return playGuesses(cmd.Context(), names, f) },
	}
	flags := cmd.Flags()
	flags.IntVar(&f.lesson, "lesson", 0, "ask only the questions of this lesson; 0 for all")
	flags.StringVar(&f.topic, "topic", "", "ask only the questions whose topic has this in its name, such as leases")
	flags.BoolVar(&f.step, "step", false, "wait for Enter before each command")
	flags.BoolVar(&f.room, "room", false, "ask a room: type how many hands are up for each answer; implies --step")
	flags.BoolVar(&f.keep, "keep", false, "leave the cluster up at the end, as make up does")
	cmd.AddCommand(guessCheckCommand(), guessListCommand(), guessTallyCommand(), guessTableCommand())
	return cmd
}

// readQuestions returns the root of the repository, and its questions.
func readQuestions(ctx context.Context) (root string, all []guess.Question, err error) {
	if root, err = cluster.Root(ctx); err != nil {
		return "", nil, err
	}
	all, err = guess.All(root)
	return root, all, err
}

// chooseQuestions returns the questions that were asked for, and that can be played here.
func chooseQuestions(all []guess.Question, names []string, f guessFlags) ([]guess.Question, error) {
	for _, name := range names {
		if !slices.ContainsFunc(all, func(q guess.Question) bool { return q.Name == name }) {
			return nil, fmt.Errorf("there is no question %q; make guess list (workshop guess list) lists them", name)
		}
	}
	var chosen []guess.Question
	for _, q := range all {
		isNamed := len(names) == 0 || slices.Contains(names, q.Name)
		isOfLesson := f.lesson == 0 || q.Lesson == f.lesson
		isOfTopic := strings.Contains(strings.ToLower(q.Topic), strings.ToLower(f.topic))
		if !isNamed || !isOfLesson || !isOfTopic {
			continue
		}
		if variable := guess.NeedVariable(q.Needs); q.Needs != "" && os.Getenv(variable) == "" {
			if len(names) > 0 {
				return nil, fmt.Errorf("question %q needs %s; once that is installed, set %s=real", q.Name, q.Needs, variable)
			}
			continue
		}
		chosen = append(chosen, q)
	}
	if len(chosen) == 0 {
		return nil, errors.New("there is no such question; make guess list (workshop guess list) lists all, with their lessons and topics")
	}
	return chosen, nil
}

func playGuesses(ctx context.Context, names []string, f guessFlags) (err error) {
	root, all, err := readQuestions(ctx)
	if err != nil {
		return err
	}
	questions, err := chooseQuestions(all, names, f)
	if err != nil {
		return err
	}
	progress, err := guess.ReadProgress(guess.ProgressPath(root, f.room))
	if err != nil {
		return err
	}
	if f.keep && cluster.IsUp(upDir(root)) { // before somebody has guessed for nothing
		return fmt.Errorf("%w; stop it first (make down), or leave out KEEP=1", cluster.ErrAlreadyUp)
	}
	backstage := startBackstage(ctx, root, f.keep)
	defer func() { err = errors.Join(err, backstage.end(err)) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go backstage.watch(ctx, cancel)
	keys := newKeyboard()
	session := guess.Session{
		Questions: questions, Progress: progress, Out: os.Stdout, Columns: columns(), Room: f.room, Once: len(names) > 0, Version: cluster.KubernetesVersion,
		Stage: backstage.stage,
		Ask: func(ctx context.Context, prompt string) (string, error) {
			keys.forgetTyped()
			fmt.Print(prompt, "\n> ")
			answer, err := keys.line(ctx)
			if err != nil { // what follows must not stand behind the prompt
				fmt.Println()
			}
			return answer, err
		},
	}
	if f.step || f.room {
		session.Keys = " · a: run the rest · q: stop"
		session.Pause = func(ctx context.Context) error {
			err := keys.pause(ctx)
			if errors.Is(err, errInputEnded) {
				return play.ErrQuit
			}
			return err
		}
	}
	if isTerminal() {
		session.Shell = func(ctx context.Context, env []string) error {
			stage, err := backstage.stage(ctx)
			if err != nil {
				return err
			}
			return openShell(ctx, filepath.Join(root, guess.Dir), stage.Scratch, "guess", env)
		}
	}
	if err := session.Run(ctx); err != nil {
		return err
	}
	if f.room {
		fmt.Println("\nThe room's tally:  make guess tally")
	}
	if f.keep {
		if _, err := backstage.stage(ctx); err != nil { // it may not be up yet
			return err
		}
		fmt.Println("\nThe cluster is still up. To use it from this terminal:  eval \"$(make -s env)\"   To stop it:  make down")
	}
	return nil
}

func guessCheckCommand() *cobra.Command {
	var show bool
	cmd := &cobra.Command{
		Use:   "check [NAME...]",
		Short: "Play questions without asking them, and exit with status 1 if one's answer is no longer true",
		RunE: func(cmd *cobra.Command, names []string) (err error) {
			ctx := cmd.Context()
			root, all, err := readQuestions(ctx)
			if err != nil {
				return err
			}
			questions, err := chooseQuestions(all, names, guessFlags{})
			if err != nil {
				return err
			}
			backstage := startBackstage(ctx, root, false)
			defer func() { err = errors.Join(err, backstage.end(err)) }()
			stage, err := backstage.stage(ctx)
			if err != nil {
				return err
			}
			failed := 0
			for _, q := range questions {
				err := checkQuestion(ctx, stage, q, show)
				if ctx.Err() != nil {
					return err
				}
				if err != nil {
					failed++
					fmt.Println(err)
				}
			}
			if failed > 0 {
				return fmt.Errorf("%d of %d questions failed", failed, len(questions))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&show, "show", false, "show the pages as they are played")
	return cmd
}

// checkQuestion plays a question without asking it.
func checkQuestion(ctx context.Context, stage *guess.Stage, q guess.Question, show bool) error {
	var screen bytes.Buffer
	player := play.Player{Out: &screen}
	if show {
		player.Out = os.Stdout
	}
	start := time.Now()
	played, err := stage.Play(ctx, q, player)
	if err != nil {
		return fmt.Errorf("FAILED %s\n%s\n%w", q.Name, screen.String(), err)
	}
	if err := played.Close(ctx); err != nil {
		return fmt.Errorf("FAILED %s\n%w", q.Name, err)
	}
	fmt.Printf("ok     %s (%.1f s)\n", q.Name, time.Since(start).Seconds())
	return nil
}

func guessListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the questions, and which ones you have guessed",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			root, all, err := readQuestions(cmd.Context())
			if err != nil {
				return err
			}
			progress, err := guess.ReadProgress(guess.ProgressPath(root, false))
			if err != nil {
				return err
			}
			return guess.WriteList(os.Stdout, all, progress)
		},
	}
}

func guessTallyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "tally [FILE...]",
		Short: "Sum up what a room has guessed",
		Long: `Sum up what a room has guessed, for each question: how many were right, and what most of the others thought.
Without FILEs, that is what was typed with --room. FILEs are the files guesses/my/progress.yaml of people who have
guessed on machines of their own.`,
		RunE: func(cmd *cobra.Command, files []string) error {
			root, questions, err := readQuestions(cmd.Context())
			if err != nil {
				return err
			}
			if len(files) == 0 {
				files = []string{guess.ProgressPath(root, true)}
			}
			var all [][]guess.Attempt
			count := 0
			for _, file := range files {
				if _, err := os.Stat(file); err != nil && cmd.Flags().NArg() > 0 {
					return err
				}
				progress, err := guess.ReadProgress(file)
				if err != nil {
					return err
				}
				all = append(all, progress.Attempts)
				count += len(progress.Attempts)
			}
			if count == 0 {
				return errors.New("nobody has guessed yet; make guess ROOM=1 counts hands, and FILEs are other people's guesses/my/progress.yaml")
			}
			return guess.WriteTally(os.Stdout, questions, all...)
		},
	}
}

func guessTableCommand() *cobra.Command {
	var write bool
	cmd := &cobra.Command{
		Use:   "table",
		Short: "Print the table of all answers",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			root, all, err := readQuestions(cmd.Context())
			if err != nil {
				return err
			}
			table := guess.Table(all, cluster.KubernetesVersion)
			if !write {
				_, err = fmt.Print(table)
				return err
			}
			return replaceFile(filepath.Join(root, guess.TablePath), func(w io.Writer) error {
				_, err := io.WriteString(w, table)
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&write, "write", false, "write it to "+guess.TablePath+" instead")
	return cmd
}
