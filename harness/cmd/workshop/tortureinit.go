package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/torture"
	"example.com/controllers/harness/torture/draft"
)

func tortureInitCommand() *cobra.Command {
	var guarded bool
	o := draft.Options{}
	search := true
	cmd := &cobra.Command{
		Use:   "init [--scenario FILE] [--manifest FILE]... [--sample FILE]... -- CONTROLLER [ARGUMENT]...",
		Short: "Watch a controller for a minute, and write a scenario for it",
		Long: `Watch a controller on a control plane of its own, and write a scenario for torture: which
resources count, what happens while it runs, and when it has done its job. Nothing else is
touched; the current context of kubectl is not read.

The controller is started, the samples are created, and then one thing after the other is
changed: what the controller has made is deleted, fields that it has set get another value, and
so do fields that it reads; it is restarted, and the samples are deleted and created again.
What it came to each time becomes the scenario's rules. In the end, runs without faults show
what differs from run to run.

  workshop torture init --sample example.yaml -- ./my-controller --kubeconfig={kubeconfig}

In samples, {namespace} is replaced by the namespace of the run.

Files with CustomResourceDefinitions, with the rights of one ServiceAccount, and with samples are
looked for below the current directory, unless --search=false.

What you change in the file stays when this command runs again. It writes the parts anew that are
as it left them.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !guarded {
				return rerunUnderGuard(cmd.Context())
			}
			guard.AwaitInterrupt()
			if o.Meanwhile < 0 {
				return errors.New("--meanwhile must not be negative")
			}
			o.Command, o.Progress = args, os.Stdout // in the order of what it says in the end
			if search {
				o.Search = "."
			}
			return runTortureInit(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.File, "scenario", "torture.yaml", "file of the scenario to write")
	flags.StringArrayVar(&o.Manifests, "manifest", nil, "`file`, or directory with a kustomization.yaml, that is applied before the controller starts; may be repeated")
	flags.StringArrayVar(&o.Samples, "sample", nil, "`file` with objects that are created while the controller runs; may be repeated")
	flags.StringVar(&o.Account, "account", "", "ServiceAccount of the manifests with whose rights the controller runs; none: an administrator's rights; default: the only one that there is")
	flags.DurationVar(&o.Meanwhile, "meanwhile", 0, "for how long what you do with kubectl meanwhile becomes steps, such as 2m; the command prints a kubeconfig")
	flags.BoolVar(&search, "search", true, "look for CustomResourceDefinitions, RBAC and samples below the current directory")
	flags.BoolVar(&guarded, "guarded", false, "")
	_ = flags.MarkHidden("guarded")
	return cmd
}

func runTortureInit(ctx context.Context, o draft.Options) (err error) {
	begin := time.Now()
	if err := checkReplaceable(o.File); err != nil { // rather now than in the end
		return err
	}
	lab, err := torture.Open(ctx, defaultNodes, os.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	result, err := draft.Write(ctx, lab, o)
	if err != nil {
		return err
	}
	describeDraft(os.Stdout, result, o.Command, invocation(), time.Since(begin))
	return nil
}

// describeDraft says what was written, and what to do next.
func describeDraft(w io.Writer, r *draft.Result, command []string, how invoked, took time.Duration) {
	fmt.Fprintf(w, "%s: %d steps; %d runs without faults came to the same, after %s.\n", r.File, r.Steps, r.Runs, took.Round(time.Second))
	if len(r.Kept) > 0 {
		fmt.Fprintf(w, "Kept, because they were edited by hand: %s.\n", strings.Join(r.Kept, ", "))
	}
	if len(r.Notes) > 0 {
		fmt.Fprintln(w, "\nNoticed:")
		for _, note := range r.Notes {
			fmt.Fprintf(w, "- %s\n", note)
		}
	}
	flags := []string{"--scenario", r.File, "--budget", "3m"}
	if len(r.Ports) > 0 {
		flags = append(flags, "--parallel", "1")
		fmt.Fprintf(w, "\nThe controller listens on port %s, so only one run at a time is possible. Put {port} in place of it in the\narguments, and leave out --parallel 1: that is faster.\n", strings.Join(r.Ports, " and "))
	}
	fmt.Fprintf(w, "\nRead what %s says about \"converged\". Then run:\n\n  %s\n", r.File, how.line(flags, command))
}
