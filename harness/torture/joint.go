package torture

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/oracle"
	"example.com/controllers/harness/torture/plan"
)

// Most of a run's time is spent on starting and on steps in which no fault comes. So plans share a run, in which each has its fault in a step
// of its own. Such a joint run only says that nothing was wrong: at the end, after each step, and with the number of writes in each. Of any
// other, nothing is believed, and each of its plans whose turn had come is run alone. So is one whose fault did not come.

// mostJoint is how many plans share a run at most. Some faults take seconds.
const mostJoint = 12

// placed is a plan whose fault comes in one step.
type placed struct {
	Plan
	plan.Place
}

// job is the plans of one run: one, or several in the order of their steps.
type job []placed

// joinPlans says which plans share a run. Those that come first are in the first runs.
func (s *subject) joinPlans(o Options, plans []Plan) (jobs []job) {
	var locate func(Plan) (plan.Place, bool)
	if o.Baseline != nil && !o.Alone {
		locate = o.world(o.Baseline).Locate()
	}
	var open []int // jobs that take more
	for _, p := range plans {
		if locate == nil {
			jobs = append(jobs, job{{Plan: p}})
			continue
		}
		at, ok := locate(p)
		if !ok {
			jobs = append(jobs, job{{Plan: p}})
			continue
		}
		i := slices.IndexFunc(open, func(i int) bool { return jobs[i].takes(at.Step) })
		if i < 0 {
			jobs, open = append(jobs, job{{p, at}}), append(open, len(jobs))
			continue
		}
		to := &jobs[open[i]]
		if *to = append(*to, placed{p, at}); len(*to) == mostJoint {
			open = slices.Delete(open, i, i+1)
		}
	}
	for _, j := range jobs {
		slices.SortFunc(j, func(a, b placed) int { return a.Step - b.Step })
	}
	return jobs
}

// takes reports whether no plan has its fault in a step yet.
func (j job) takes(step int) bool {
	return !slices.ContainsFunc(j, func(p placed) bool { return p.Step == step })
}

// isJoint reports whether several plans share the run.
func (j job) isJoint() bool { return len(j) > 1 }

// plan returns what goes wrong in the run.
func (j job) plan() Plan {
	if !j.isJoint() {
		return j[0].Plan
	}
	all := Plan{Kind: fmt.Sprintf("%d plans together", len(j))}
	for _, p := range j {
		all.Faults = append(all.Faults, p.Fault)
	}
	return all
}

// arm puts the faults of a job in force; of a joint one, when their steps come.
func (j job) arm() []armed {
	if !j.isJoint() {
		return arm(j[0].Plan)
	}
	var all []armed
	for _, p := range j {
		program := p.Fault.Program
		fault := p.Fault
		fault.Program = "" // a proxy knows no programs
		one := armed{program, apiproxy.Arm(fault)}
		if p.OfEvent {
			one.Armed = apiproxy.ArmAtEvents(fault)
		}
		one.SetPaused(true)
		all = append(all, one)
	}
	return all
}

// suspicion is the error of a joint run in which something was unusual.
type suspicion struct{ what string }

func (s suspicion) Error() string { return s.what }

// settledWithin is how long after a step a joint run may take to be as without faults.
const settledWithin = 10 * time.Second

// leaveStep notes what a step came to without faults, or compares a joint run with that.
func (r *run) leaveStep(ctx context.Context) error {
	if !r.learns && !r.job.isJoint() {
		return nil
	}
	step := len(r.stepStarts) - 1
	for begin := time.Now(); ; {
		state, err := r.normalized(ctx)
		if err != nil {
			return err
		}
		if r.learns {
			r.stepEnds[step] = state
			return nil
		}
		unusual := r.steps[step].compare(state)
		if len(unusual) == 0 {
			break
		}
		if r.elapsed(begin) > settledWithin {
			return suspicion{fmt.Sprintf("after %s: %s", r.stepName(step), unusual[0])}
		}
		if err := r.sleep(ctx, nil, 2*pollInterval); err != nil {
			return err
		}
	}
	part := r.recording.History().Between(r.stepStarts[step], time.Time{})
	injected := 0
	for _, q := range part.Requests {
		if q.IsDisturbed() {
			injected++
		}
	}
	for _, d := range r.steps[step].expected.Deviations(r.effectsOf(part), injected, r.scenario.MayDiffer.Writes) {
		if !d.Tolerable {
			return suspicion{"in " + r.stepName(step) + ": " + d.Message}
		}
	}
	return nil
}

// stepName returns what a step is called, from 0 for the start.
func (r *run) stepName(step int) string {
	if step == 0 {
		return "the start"
	}
	return r.scenario.Steps[step-1].Name
}

// effectsOf counts the writes in a part of the recording.
func (r *run) effectsOf(part *history.History) oracle.Effects {
	return oracle.EffectsOf(part, r.scope(), r.scenario.plurals(), r.scenario.classesIn(part, r.states.Classes()))
}

// stepBaseline is what a step came to in the runs without faults.
type stepBaseline struct {
	ends     [][]string // the different states after it, normalized
	expected oracle.Expected
	// varying are the annotations and the fields of a status that were not the same in all of these states, by object. They may hold a
	// resourceVersion, or the Node that the scheduler has chosen.
	varying map[string]bool
	// statuses are the resources whose status the programs write. What others report of theirs, such as a Deployment's conditions, has a
	// time of its own.
	statuses map[string]bool
}

// compare returns in what a state is unlike the most similar one without faults. A step that goes on without waiting has none.
func (s *stepBaseline) compare(state []string) (fewest []oracle.Difference) {
	for i, end := range s.ends {
		differences := slices.DeleteFunc(oracle.Compare(end, state), func(d oracle.Difference) bool {
			return d.Kind == oracle.Changed && !slices.ContainsFunc(d.Fields, func(f oracle.FieldDifference) bool {
				return !s.varying[d.Object()+": "+f.Path] && (s.statuses[d.Resource] || !isStatus(f.Path))
			})
		})
		if i == 0 || len(differences) < len(fewest) {
			fewest = differences
		}
	}
	return fewest
}

// addEnd adds a state that is unlike those that are known.
func (s *stepBaseline) addEnd(end []string) {
	s.ends = append(s.ends, end)
	for _, d := range oracle.Compare(s.ends[0], end) {
		for _, f := range d.Fields {
			if isStatus(f.Path) || strings.HasPrefix(f.Path, "metadata.annotations") {
				if s.varying == nil {
					s.varying = map[string]bool{}
				}
				s.varying[d.Object()+": "+f.Path] = true
			}
		}
	}
}

func isStatus(path string) bool { return path == "status" || strings.HasPrefix(path, "status.") }

// statusesOf returns the resources whose status is among the writes, by plural.
func statusesOf(e oracle.Effects) map[string]bool {
	all := map[string]bool{}
	for write := range e.Did {
		if words := strings.Fields(write); len(words) > 1 { // such as: patch deployments.apps/status web
			if of, isStatus := strings.CutSuffix(words[1], "/status"); isStatus {
				all[resourceName(of)] = true
			}
		}
	}
	return all
}

// addSteps adds what the steps of a run without faults came to.
func (b *Baseline) addSteps(o *observation) {
	if b.steps == nil {
		b.steps, b.stepStarts = make([]stepBaseline, len(o.steps)), o.stepStarts
	}
	for i := range b.steps {
		if b.steps[i].statuses == nil {
			b.steps[i].statuses = map[string]bool{}
		}
		maps.Copy(b.steps[i].statuses, statusesOf(o.effects))
		if end := o.stepEnds[i]; end != nil && (len(b.steps[i].ends) == 0 || len(b.steps[i].compare(end)) > 0) {
			b.steps[i].addEnd(end)
		}
		b.steps[i].expected.Add(o.steps[i])
	}
}

// sortOut returns what a joint run has said of its plans, and those that are to be run again: alone, or with others of them.
func (j job) sortOut(outcome Outcome, r *run) (passed []Outcome, again []job) {
	reached := len(r.stepStarts) - 1
	hasPassed := outcome.Verdict == Passed && r.suspected == ""
	if outcome.Verdict == NotRun || reached < j[0].Step { // no fault has come
		reached = j[len(j)-1].Step
	}
	var rest job
	for i, p := range j {
		switch {
		case hasPassed && r.wasMet(i):
			one := Outcome{Plan: p.Plan, History: outcome.History, Duration: outcome.Duration / time.Duration(len(j))}
			if len(passed) == 0 {
				one.Notes = outcome.Notes
			}
			passed = append(passed, one)
		case hasPassed || p.Step <= reached:
			again = append(again, job{{Plan: p.Plan}})
		default:
			rest = append(rest, p)
		}
	}
	if len(rest) > 0 {
		again = append(again, rest)
	}
	return passed, again
}

// unusual returns what was unusual in a joint run, or "".
func (r *run) unusual(o Outcome) string {
	if o.Verdict != Passed {
		return string(o.Verdict) + ": " + o.Message
	}
	return r.suspected
}

// wasMet reports whether the fault of a plan of the job was injected, in its step.
func (r *run) wasMet(number int) bool {
	p := r.job[number]
	if p.OfEvent {
		return r.armed[number].IsMet()
	}
	var to time.Time
	if p.Step+1 < len(r.stepStarts) {
		to = r.stepStarts[p.Step+1]
	}
	return slices.ContainsFunc(r.recording.History().Between(r.stepStarts[p.Step], to).Requests, history.Request.MetFault)
}
