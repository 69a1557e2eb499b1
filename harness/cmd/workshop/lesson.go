package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/exercise"
	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/kind"
	"example.com/controllers/harness/lesson"
	"example.com/controllers/harness/play"
)

// lessonFlags are the flags of "workshop lesson".
type lessonFlags struct {
	cluster         string
	nodes           int
	step, keep, yes bool
	view            bool
	from            string
}

func lessonCommand() *cobra.Command {
	var f lessonFlags
	cmd := &cobra.Command{
		Use:   "lesson NUMBER",
		Short: "Play a lesson",
		Long: `Play a lesson: show its page, run its commands, and compare their output with the page.
Every process that the lesson has started is stopped at the end.

Where the page quotes code that you have changed, your code is shown.`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			root, err := cluster.Root(cmd.Context())
			if err != nil {
				return nil, cobra.ShellCompDirectiveError
			}
			lessons, err := lesson.All(root)
			if err != nil {
				return nil, cobra.ShellCompDirectiveError
			}
			var completions []string
			for _, l := range lessons {
				completions = append(completions, fmt.Sprintf("%d\t%s", l.Number, l.Name()))
			}
			return completions, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("step") {
				f.step = isTerminal()
			}
			return playLesson(cmd.Context(), strings.Join(args, ""), f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.cluster, "cluster", "embedded", `where to play: "embedded" for a new control plane, "up" for the cluster of "workshop up", "kind" for a cluster of containers, "context:NAME" for a context of your kubeconfig`)
	flags.IntVar(&f.nodes, "nodes", 0, "number of simulated nodes of an embedded cluster; 0 for as many as the page needs, or 3 if it does not say")
	flags.BoolVar(&f.step, "step", false, "wait for Enter before each command, and when the screen is full (default: on a terminal)")
	flags.StringVar(&f.from, "from", "", `where to begin: a section, such as "A stale cache", or after so many commands, such as 7; what comes before is run, and not shown`)
	flags.BoolVar(&f.keep, "keep", false, "leave the cluster up at the end, with the objects that the lesson created")
	flags.BoolVar(&f.view, "view", false, "draw the requests of the lesson's programs meanwhile, as a page for your browser")
	flags.BoolVar(&f.yes, "yes", false, `do not ask before changing a "context:NAME" cluster`)
	return cmd
}

func playLesson(ctx context.Context, number string, f lessonFlags) (err error) {
	root, err := cluster.Root(ctx)
	if err != nil {
		return err
	}
	l, err := lesson.Find(root, number)
	if err != nil {
		return err
	}
	page, err := play.ReadEdited(l.PagePath())
	if err != nil {
		return err
	}
	if page.OwnCluster {
		if err := requireOwnCluster(root, number, f); err != nil {
			return err
		}
	}
	if f.cluster == "kind" && f.keep && page.Nodes > 0 {
		return fmt.Errorf("lesson %d needs simulated machines, which end with the lesson, so its kind cluster cannot be kept; leave out KEEP=1", l.Number)
	}
	if err := checkCluster(ctx, root, f.cluster); err != nil {
		return err
	}
	if f.from != "" {
		if err := page.BeginAt(f.from); err != nil {
			return fmt.Errorf("FROM (--from): %w", err)
		}
	}
	if f.nodes == 0 {
		f.nodes = cmp.Or(page.Nodes, 3)
	}
	keys := newKeyboard()
	player := play.Player{Out: os.Stdout}
	if f.step {
		player.Pause, player.Keys = keys.pause, pauseKeys
	}
	// The first time, the control plane has to be built, which takes minutes. Meanwhile, people can read the introduction.
	if err := player.Introduce(ctx, page); err != nil {
		return endedEarly(l, play.Result{}, page, err)
	}

	if f.cluster == "embedded" {
		built, err := cluster.IsBuilt(ctx)
		if err != nil {
			return err
		}
		if !built {
			fmt.Print(whileCompiling)
		}
	}
	// Otherwise, the first go command on the page would print what it downloads, which is not on the page.
	if _, err := os.Stat(l.Dir + "/go.mod"); err == nil {
		if err := gobuild.Download(ctx, l.Dir, l.Name(), os.Stderr); err != nil {
			return err
		}
	}
	start := time.Now()
	o, err := openCluster(ctx, root, l, page.Nodes, f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.end(err)) }()
	if page.OwnCluster && f.cluster == "kind" && !o.disposable {
		return fmt.Errorf(changesMore+"a kind cluster that was used before; delete that one with make kind-down", number)
	}
	c, scratch := o.cluster, o.scratch
	fmt.Printf("%s: Kubernetes %s, %s, %s\n", c.Name, c.Version, count(c.Nodes), time.Since(start).Round(100*time.Millisecond))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-c.Done():
			cancel(c.Err())
		case <-ctx.Done():
		}
	}()

	stage, err := lesson.Prepare(ctx, l, c, scratch)
	if err != nil {
		return err
	}
	if err := stage.RequireNodes(ctx, page.Nodes); err != nil {
		switch {
		case f.cluster == "embedded" && f.keep && f.nodes >= page.Nodes: // it continues with the Nodes of an earlier one
			return fmt.Errorf("%w, as before; delete its state with make reset, and play the lesson again", err)
		case f.cluster == "embedded":
			return fmt.Errorf("%w; leave out --nodes", err)
		}
		return fmt.Errorf("%w; play it without CLUSTER, on a cluster of its own", err)
	}
	if strings.HasPrefix(f.cluster, "context:") && !f.yes {
		if err := ask(ctx, keys, stage); err != nil {
			return err
		}
	}
	if err := stage.Open(ctx); err != nil {
		return err
	}
	if !f.keep && !o.disposable {
		defer func() { err = errors.Join(err, clean(ctx, stage)) }()
	}
	if stage.Workshop, err = os.Executable(); err != nil {
		return err
	}
	stage.Page = page
	look := ""
	if f.view {
		stage.Recordings = filepath.Join(root, ".workshop", "view", l.Name())
		stop, viewErr := viewWhile(ctx, stage.Recordings)
		if viewErr != nil {
			return viewErr
		}
		defer func() { err = errors.Join(err, stop()) }()
		look = fmt.Sprintf("\nTo look at the recording again:  make view RECORDING=%s\n", quote(filepath.Join(".workshop", "view", l.Name())))
	}
	if f.step {
		fmt.Printf("For a second terminal:\n  export KUBECONFIG=%s\n  export PATH=%s:\"$PATH\"\n", quote(stage.Kubeconfig()), quote(c.Kubectl))
		keys.shell = func(ctx context.Context) error {
			return openShell(ctx, l.Dir, scratch, l.Name(), stage.Env())
		}
		player.Keys = shellKey + pauseKeys
	}
	result, asked, err := stage.Play(ctx, player)
	if err != nil {
		return endedEarly(l, result, page, err)
	}
	fmt.Printf("\nLesson %d is over: %d commands, %d lines of output as the page says, %s.\n",
		l.Number, result.Commands, result.Checked, result.Duration.Round(time.Second))
	if err := writeBill(asked); err != nil {
		return err
	}
	fmt.Printf("%s\n%s\n", look, whatNext(root, l, f, c))
	return nil
}

// viewWhile serves the page of the recordings in a directory, which it empties, until stop is called.
func viewWhile(ctx context.Context, dir string) (stop func() error, err error) {
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
		return nil, fmt.Errorf("make a directory for the recordings: %w", err)
	}
	url, stop, err := serveWhile(ctx, dir)
	if err != nil {
		return nil, err
	}
	fmt.Printf("view: %s shows the requests while the lesson is played\n", url)
	return stop, nil
}

// whileCompiling says what can be done before the control plane is there.
const whileCompiling = `The control plane is now compiled, which takes a few minutes, once. The lesson goes on by itself after that.
The first exercises need no control plane. You can do one meanwhile, in another terminal:

  make exercise

`

// changesMore is the beginning of errors about a lesson that needs a new cluster.
const changesMore = "lesson %s changes more on a cluster than its own namespace, so it is not played on "

// requireOwnCluster returns an error unless the lesson is to be played on a cluster that is new, since the lesson changes more
// than its namespace.
func requireOwnCluster(root, number string, f lessonFlags) error {
	if context, ok := strings.CutPrefix(f.cluster, "context:"); ok {
		return fmt.Errorf(changesMore+"context %q; play it without CLUSTER (--cluster)", number, context)
	}
	if f.cluster == "up" {
		return fmt.Errorf(changesMore+"the cluster of make up; play it without CLUSTER (--cluster)", number)
	}
	if _, err := os.Stat(upDir(root)); f.cluster == "embedded" && f.keep && err == nil {
		return fmt.Errorf(changesMore+"a cluster that was used before; delete that one with make reset, or play the lesson without KEEP=1 (--keep)", number)
	}
	return nil
}

// checkCluster returns an error if there is no such cluster to play a lesson on, as far as can be told without starting or asking
// one: before somebody has read the introduction for nothing.
func checkCluster(ctx context.Context, root, name string) error {
	context, isContext := strings.CutPrefix(name, "context:")
	switch {
	case isContext:
		return cluster.CheckContext(context)
	case name == "kind":
		return kind.Check(ctx)
	case name == "up" && !cluster.IsUp(upDir(root)):
		_, err := findUp(ctx, upDir(root)) // which says why not
		return err
	case name != "up" && name != "embedded":
		return fmt.Errorf("CLUSTER (--cluster) is %q; it must be embedded, up, kind or context:NAME", name)
	}
	return nil
}

// endedEarly prints where the reader has left a lesson, which is not an error. It returns all other errors.
func endedEarly(l lesson.Lesson, played play.Result, page *play.Page, err error) error {
	if !errors.Is(err, play.ErrQuit) {
		return err
	}
	fmt.Printf("\nYou left lesson %d after %d of %d commands.", l.Number, played.Commands, page.Commands())
	if played.Commands > 0 {
		fmt.Printf(" To go on from there:  make lesson %d FROM=%d", l.Number, played.Commands)
	}
	fmt.Println()
	return nil
}

// writeBill prints the requests of a lesson's programs, and sums up those of kubectl and the workshop.
func writeBill(asked *history.History) error {
	isTool := func(r history.Request) bool { return r.ShortAgent() == "kubectl" || r.ShortAgent() == "workshop" }
	fmt.Print("Requests of its programs to the API server:\n\n")
	programs := asked.Where(func(r history.Request) bool { return !isTool(r) })
	if err := programs.WriteBill(os.Stdout, history.BillOptions{ByAgent: true}); err != nil {
		return err
	}
	var tools history.Cost
	for _, cost := range asked.Where(isTool).Cost() {
		tools.Requests += cost.Requests
		tools.Sent += cost.Sent
		tools.Received += cost.Received
	}
	fmt.Printf("\nkubectl and the workshop itself made %d more requests, %d KB.\n", tools.Requests, (tools.Sent+tools.Received)/1000)
	return nil
}

// opened is the cluster that a lesson is played on.
type opened struct {
	cluster *cluster.Cluster
	// scratch is a directory for the lesson's files.
	scratch string
	// disposable reports that end deletes the cluster, unless it is to be kept.
	disposable bool
	// end disposes of the cluster and the directory. It is called with the lesson's error.
	end func(error) error
}

// openCluster opens the cluster to play a lesson on, and starts it if necessary. machines is how many simulated machines the
// lesson's page needs, or 0.
func openCluster(ctx context.Context, root string, l lesson.Lesson, machines int, f lessonFlags) (*opened, error) {
	options := cluster.Options{Nodes: f.nodes, Progress: os.Stderr}
	if f.cluster == "embedded" && !f.keep {
		c, err := cluster.Start(ctx, options)
		if err != nil {
			return nil, err
		}
		// The cluster's own directory is removed even if this process is killed.
		return &opened{c, c.Dir(), true, func(error) error { return c.Stop() }}, nil
	}
	// It gets a kubeconfig with the user's own credentials if the lesson is played on a context.
	scratch, remove, err := guard.TempDir("workshop-run-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the lesson: %w", err)
	}
	o := &opened{scratch: scratch, end: func(error) error { return remove() }}
	name, isContext := strings.CutPrefix(f.cluster, "context:")
	switch {
	case isContext:
		o.cluster, err = cluster.Open(ctx, name, scratch, os.Stderr)
	case f.cluster == "up":
		o.cluster, err = findUp(ctx, upDir(root))
	case f.cluster == "kind":
		err = o.openKind(ctx, root, l, machines, f.keep)
	default:
		o.cluster, err = cluster.Up(ctx, options, upDir(root))
		if errors.Is(err, cluster.ErrAlreadyUp) {
			err = fmt.Errorf("%w; play the lesson on it (CLUSTER=up), or stop it first (make down)", err)
		}
		o.disposable = true
		o.end = func(lessonErr error) error {
			err := remove()
			if lessonErr != nil {
				err = errors.Join(err, cluster.Down(context.WithoutCancel(ctx), upDir(root)))
			}
			return err
		}
	}
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	return o, nil
}

// clean deletes what a lesson created, and prints what it waits for. An interrupt, before or during the wait, shortens the
// wait for the namespace to be gone, but not the wait for the API server to accept the deletion. A second interrupt ends
// both.
func clean(ctx context.Context, stage *lesson.Stage) error {
	const deleteLimit, goneLimit, goneLimitAfterInterrupt = 30 * time.Second, 2 * time.Minute, 3 * time.Second
	cleaning, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	interrupts := make(chan os.Signal, 2)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(interrupts)
	limit, left := goneLimit, 2 // interrupts until everything ends
	if ctx.Err() != nil {
		limit, left = goneLimitAfterInterrupt, 1
	}
	go func() {
		for range left {
			select {
			case <-interrupts:
			case <-cleaning.Done():
				return
			}
		}
		cancel(errors.New("interrupted again"))
	}()
	fmt.Fprintf(os.Stderr, "deleting namespace %s on %s; waiting up to %s until it is gone\n", stage.Namespace, stage.Cluster.Name, limit)
	deleting, cancelDeleting := context.WithTimeout(cleaning, deleteLimit)
	defer cancelDeleting()
	if err := stage.Delete(deleting); err != nil {
		return err
	}
	endAfter := func(limit time.Duration) { time.AfterFunc(limit, func() { cancel(context.DeadlineExceeded) }) }
	endAfter(limit)
	defer context.AfterFunc(ctx, func() { endAfter(goneLimitAfterInterrupt) })()
	return stage.AwaitGone(cleaning)
}

// ask lists what the lesson will create, and returns an error unless the answer is yes.
func ask(ctx context.Context, keys *keyboard, s *lesson.Stage) error {
	fmt.Printf("\nLesson %d will be played on %s. It creates, and deletes at the end:\n  Namespace %s, and everything in it\n",
		s.Lesson.Number, s.Cluster.Name, s.Namespace)
	for _, object := range s.Outside {
		fmt.Println("  " + object)
	}
	fmt.Print("Type yes to continue: ")
	answer, err := keys.line(ctx)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if answer != "yes" {
		return errors.New("nothing was changed; to play the lesson, type yes, or give YES=1 (--yes)")
	}
	return nil
}

// whatNext says what the reader could do after a lesson.
func whatNext(root string, l lesson.Lesson, f lessonFlags, c *cluster.Cluster) string {
	if f.keep && f.cluster == "kind" {
		return "The cluster is still up. To use it from this terminal:  export KUBECONFIG=" + quote(c.Kubeconfig) + "   To delete it:  make kind-down"
	}
	if f.keep && strings.HasPrefix(f.cluster, "context:") {
		return fmt.Sprintf("What the lesson created on %s is still there; it is deleted when you play the lesson there again without KEEP=1.", c.Name)
	}
	if f.keep {
		return "The cluster is still up. To use it from this terminal:  eval \"$(make -s env)\"   To stop it:  make down"
	}
	next := fmt.Sprintf("Next:\n  read %s/controller.go, change it, and play the lesson again\n", l.Name()) + exercisesOf(root, l.Number)
	if following, err := lesson.Find(root, fmt.Sprint(l.Number+1)); err == nil {
		next += fmt.Sprintf("  make lesson %d\n", following.Number)
	}
	return strings.TrimSuffix(next, "\n")
}

// exercisesOf says which exercises belong to a lesson; nothing if none do.
func exercisesOf(root string, number int) string {
	catalogue, err := exercise.Open(root)
	if err != nil {
		return "" // a lesson can be played without them
	}
	var first, last int
	for _, e := range catalogue.Exercises {
		if e.Lesson == number {
			first, last = cmp.Or(first, e.Number), e.Number
		}
	}
	if first == 0 {
		return ""
	}
	return fmt.Sprintf("  make exercise %d   (its exercises are %d to %d)\n", first, first, last)
}
