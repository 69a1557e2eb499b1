package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/exercise"
)

// classroom is what the commands for exercises work with.
type classroom struct {
	catalogue *exercise.Catalogue
	progress  *exercise.Progress
	grader    *exercise.Grader
	clusters  *warmCluster
}

func enterClassroom(ctx context.Context) (*classroom, error) {
	root, err := cluster.Root(ctx)
	if err != nil {
		return nil, err
	}
	catalogue, err := exercise.Open(root)
	if err != nil {
		return nil, err
	}
	progress, err := catalogue.ReadProgress()
	if err != nil {
		return nil, err
	}
	clusters := &warmCluster{root: root}
	return &classroom{catalogue, progress, &exercise.Grader{Catalogue: catalogue, Kubeconfig: clusters.kubeconfig}, clusters}, nil
}

// exercise returns the exercise that the arguments of a command name, or the current one.
func (c *classroom) exercise(args []string) (exercise.Exercise, error) {
	if len(args) == 0 {
		e, _ := c.progress.CurrentOf(c.catalogue)
		return e, nil
	}
	return c.catalogue.Find(args[0])
}

// warmCluster is a control plane that is started when it is needed for the first time, and then kept.
type warmCluster struct {
	root string

	mu      sync.Mutex
	cluster *cluster.Cluster
}

func (w *warmCluster) kubeconfig(ctx context.Context) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cluster != nil {
		select {
		case <-w.cluster.Done(): // it has crashed
		default:
			return w.cluster.Kubeconfig, nil
		}
	}
	c, err := cluster.Find(ctx, upDir(w.root), os.Stderr)
	if errors.Is(err, cluster.ErrNotUp) {
		c, err = cluster.Start(ctx, cluster.Options{Nodes: 3, Progress: os.Stderr})
	}
	if err != nil {
		return "", err
	}
	w.cluster = c
	return c.Kubeconfig, nil
}

func (w *warmCluster) stop() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cluster == nil {
		return nil
	}
	return w.cluster.Stop()
}

func exercisesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exercises",
		Short: "Do the exercises: find the bug in a controller, and repair it",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(exercisesCheckCommand(), exercisesListCommand(), exercisesHintCommand(), exercisesResetCommand(), exercisesSolutionCommand())
	return cmd
}

func exercisesCheckCommand() *cobra.Command {
	var asJSON, shipped, solution, golden bool
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
			check := c.grader.Check
			switch {
			case shipped || golden:
				check = c.grader.CheckShipped
			case solution:
				check = c.grader.CheckSolution
			}
			v, err := check(ctx, e)
			if err != nil {
				return err
			}
			if v.Passed() && !shipped && !solution && !golden {
				c.progress.Pass(e, time.Now())
				if err := c.progress.Save(); err != nil {
					return err
				}
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
				encoder := json.NewEncoder(os.Stdout)
				encoder.SetIndent("", "  ")
				if err := encoder.Encode(v); err != nil {
					return err
				}
			} else {
				fmt.Print(v.Text(columns(), 0))
			}
			if !v.Passed() {
				return exitStatus(1)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the verdict as JSON")
	cmd.Flags().BoolVar(&shipped, "shipped", false, "check the exercise as shipped instead of your copy")
	cmd.Flags().BoolVar(&golden, "golden", false, "check the exercise as shipped, and write the verdict to its failure.golden")
	cmd.Flags().BoolVar(&solution, "solution", false, "check the solution instead of your copy")
	return cmd
}

// columns returns the width of the terminal, or 100 without one.
func columns() int {
	if width, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil && width > 0 {
		return width
	}
	return 100
}

func exercisesListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the exercises",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := enterClassroom(cmd.Context())
			if err != nil {
				return err
			}
			for _, e := range c.catalogue.Exercises {
				mark := " "
				if !c.progress.Passed[e.Name].IsZero() {
					mark = "✓"
				}
				fmt.Printf("%s %-28s  %s\n", mark, e.Name, e.Title)
			}
			return nil
		},
	}
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
			c.progress.Hints[e.Name] = min(c.progress.Hints[e.Name]+1, len(hints))
			for number, hint := range hints[:c.progress.Hints[e.Name]] {
				fmt.Printf("Hint %d of %d\n\n%s\n\n", number+1, len(hints), hint)
			}
			return c.progress.Save()
		},
	}
}

func exercisesResetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "reset NAME",
		Short: "Replace your copy of an exercise by a new one; your changes are lost",
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
			c.progress.Forget(e)
			fmt.Printf("%s is as shipped again: %s\n", e.Name, relativePath(e.Mine))
			return c.progress.Save()
		},
	}
}

func exercisesSolutionCommand() *cobra.Command {
	return &cobra.Command{
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
			fmt.Println(relativePath(dir))
			return nil
		},
	}
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
