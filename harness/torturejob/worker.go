package torturejob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"example.com/controllers/harness/torture"
)

// Worker runs one index's share of the plans, and writes the outcomes to out. It is what runs in the Pods of [Run].
type Worker struct {
	Scenario *torture.Scenario
	Plans    []torture.Plan
	Commands torture.Commands
	// Index is the Job's completion index, and Workers the number of completions.
	Index, Workers  int
	Nodes, Parallel int
	Out, Progress   io.Writer
}

// ReadWorker reads what a worker needs from its files and its environment. command is that of the controller; empty for the
// programs that the scenario names.
func ReadWorker(ctx context.Context, scenario, plans string, command []string) (w Worker, err error) {
	if w.Scenario, err = torture.Read(scenario); err != nil {
		return w, err
	}
	file, err := os.Open(plans)
	if err != nil {
		return w, err
	}
	defer file.Close()
	if w.Plans, err = torture.ReadPlans(file); err != nil {
		return w, fmt.Errorf("%s: %w", plans, err)
	}
	if w.Commands = torture.Single(command...); len(command) == 0 {
		if w.Commands, err = w.Scenario.Build(ctx, os.Stderr); err != nil {
			return w, err
		}
	}
	if w.Index, err = number("JOB_COMPLETION_INDEX"); err != nil {
		return w, err
	}
	w.Workers, err = number("TORTURE_WORKERS")
	return w, err
}

func number(variable string) (int, error) {
	n, err := strconv.Atoi(os.Getenv(variable))
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s is %q; it must be a number: this command runs in a Pod of an Indexed Job", variable, os.Getenv(variable))
	}
	return n, nil
}

// Run runs the share.
func (w Worker) Run(ctx context.Context) (err error) {
	numbers := torture.Share(len(w.Plans), w.Index, w.Workers)
	if len(numbers) == 0 {
		return w.writeDone()
	}
	lab, err := torture.Open(ctx, w.Nodes, w.Progress)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	o := torture.Options{Scenario: w.Scenario, Commands: w.Commands, Nodes: w.Nodes, Parallel: w.Parallel, Progress: w.Progress, Unconfirmed: true}
	byKey := map[string][]int{} // the same plan may be there several times
	for _, n := range numbers {
		o.Plans = append(o.Plans, w.Plans[n])
		byKey[w.Plans[n].Key()] = append(byKey[w.Plans[n].Key()], n)
	}
	outcomes := torture.NewOutcomeWriter(marked{w.Out})
	var writeErr error
	o.Finished = func(outcome torture.Outcome) {
		key := outcome.Plan.Key()
		n := byKey[key][0]
		byKey[key] = byKey[key][1:]
		writeErr = errors.Join(writeErr, outcomes.Write(n, outcome))
	}
	if _, err := lab.Run(ctx, o); err != nil {
		return err
	}
	if writeErr != nil {
		return writeErr
	}
	return w.writeDone()
}

func (w Worker) writeDone() error {
	_, err := fmt.Fprintln(w.Out, doneLine)
	return err
}

// marked begins each line with the mark of outcomes.
type marked struct{ w io.Writer }

func (m marked) Write(line []byte) (int, error) {
	_, err := m.w.Write(append([]byte(outcomeMark), line...))
	return len(line), err
}
