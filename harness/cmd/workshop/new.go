package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/skeleton"
)

func newCommand() *cobra.Command {
	o := skeleton.Options{}
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Write the skeleton of a controller of your own",
		Long: `Write a Go module with a controller that works: the code of a lesson under a name of its own,
a unit test in virtual time, manifests, a scenario for "workshop torture", a file for CI, and a
page that says what to change. It needs nothing from the workshop to compile and to run.

NAME is the name of the program, of the image, and of the namespace and the objects in the
manifests.`,
		Example: `  workshop new my-controller
  workshop new my-controller --module github.com/me/my-controller --dir ~/src/my-controller`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("give one name for the new controller, as in: make new my-controller (workshop new my-controller)")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			o.Name = args[0]
			if o.Root, err = cluster.Root(cmd.Context()); err != nil {
				return err
			}
			written, err := skeleton.Write(cmd.Context(), o)
			if err != nil {
				return err
			}
			describeSkeleton(os.Stdout, written, o.Root, os.Getenv(cluster.RootVariable) != "")
			return nil
		},
	}
	cmd.Flags().StringVar(&o.From, "from", "", "`number` of the lesson whose controller it starts from; default: the first that has a skeleton")
	cmd.Flags().StringVar(&o.Dir, "dir", "", "`directory` to write, which must be empty or not exist; default: NAME, in this one")
	cmd.Flags().StringVar(&o.Module, "module", "", "`path` of the Go module; default: example.com/NAME")
	return cmd
}

// describeSkeleton says what was written, and what to do next. A terminal that "make env" has not set up finds neither kubectl
// nor this command in other directories.
func describeSkeleton(w io.Writer, written *skeleton.Result, root string, isSetUp bool) {
	dir := written.Dir
	if here, err := os.Getwd(); err == nil {
		if inside, err := filepath.Rel(here, dir); err == nil && filepath.IsLocal(inside) {
			dir = inside
		}
	}
	if dir == "." {
		fmt.Fprintln(w, "A controller that works is in this directory; its README.md says what to change. Next:")
	} else {
		fmt.Fprintf(w, "A controller that works is in %s; its README.md says what to change. Next:\n\n  cd %s\n", dir, shellWord(dir))
	}
	if !isSetUp {
		there := "make -C " + shellWord(root)
		fmt.Fprintf(w, "\n  # Start a cluster, and set up this terminal for it. The first time takes minutes.\n  %s up; eval \"$(%s -s env)\"\n", there, there)
	}
	for _, next := range written.Next {
		fmt.Fprintf(w, "\n  # %s.\n  %s\n", next.Does, next.Command)
	}
}
