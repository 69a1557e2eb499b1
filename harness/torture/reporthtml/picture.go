package reporthtml

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/torture/report"
	"example.com/controllers/harness/view"
	"example.com/controllers/harness/view/page"
)

// drawn is a run that failed, and one without faults, in the same scale.
type drawn struct {
	Failed   template.HTML // an SVG
	Baseline template.HTML // an SVG; "" if there is no run without faults
	LeftOut  int           // rows in which nothing was written
	Done     []string      // what was done on purpose, in words
	Cut      string        // that the pictures end before the runs, in a sentence; "" if they do not
}

// sign is a part of a picture, and what it means.
type sign struct {
	Mark  template.HTML // an SVG; "" for what is named
	Name  string
	Means string
}

// legend returns what a reader may not guess.
func legend() (signs []sign, err error) {
	for _, s := range []struct {
		outcome      view.Outcome
		ring, framed bool
		means        string
	}{
		{view.Wrote, false, false, "a write"},
		{view.NoOp, false, false, "a write that changed nothing"},
		{view.Read, false, false, "a read"},
		{view.Conflict, false, false, "a conflict; in the row of a process, that it was killed"},
		{view.NotFound, false, false, "not found"},
		{view.Refused, false, false, "refused"},
		{view.Lost, false, false, "no whole answer"},
		{view.GaveUp, false, false, "the client gave up"},
		{view.Wrote, false, true, "the other run has no such write in this step"},
		{view.Wrote, true, false, "its program had not been told of everything that it wrote about"},
	} {
		mark, err := page.Sign(s.outcome, s.ring, s.framed)
		if err != nil {
			return nil, err
		}
		signs = append(signs, sign{Mark: template.HTML(mark), Means: s.means})
	}
	return append(signs,
		sign{Name: "flash", Means: "something was done to it on purpose"},
		sign{Name: "wide band", Means: "a version of the object in the API server, in the colour of who wrote it; grey if that is somebody else"},
		sign{Name: "thin band", Means: "what a program has been told of the object; hatched while it is behind"},
		sign{Name: "dotted line", Means: "a step of the scenario begins"},
	), nil
}

const (
	width    = 1100 // of a picture, in pixels
	mostRows = 40
)

// draw draws the recording of a failure above that of a run without faults, with the steps one below the other. A recording may be missing.
func draw(f report.Failure, baseline *history.History) (drawn, error) {
	if f.Run == nil || len(f.Run.Requests) == 0 {
		return drawn{}, nil
	}
	failed := view.Of("The run that failed", f.Run)
	models := []*view.Model{failed}
	if baseline != nil && len(baseline.Requests) > 0 {
		undisturbed := view.Of("A run without faults", baseline)
		view.Compare(failed, undisturbed)
		models = append(models, undisturbed)
	}
	d := drawn{Done: done(failed)}
	end := 0.0
	for _, m := range models {
		end = max(end, lastTelling(m))
	}
	if end = min(end*1.1+500, failed.End); end < failed.End*0.9 {
		d.Cut = fmt.Sprintf("The pictures end at %.1f s: nothing was written after that, until the run ended at %.1f s.", end/1000, failed.End/1000)
	} else {
		end = failed.End
	}
	for i, m := range models {
		var svg strings.Builder
		lanes := telling(m)
		d.LeftOut += len(m.Lanes) - len(lanes)
		margin := max(end, 1) * 0.01
		if err := (page.Picture{From: -margin, To: end + margin, Width: width, Lanes: lanes, Titles: true}).Write(&svg, m); err != nil {
			return drawn{}, fmt.Errorf("draw: %w", err)
		}
		if i == 0 {
			d.Failed = template.HTML(svg.String())
		} else {
			d.Baseline = template.HTML(svg.String())
		}
	}
	return d, nil
}

// lastTelling returns when the last write of the job ended, or the last thing that was done on purpose or to a process. Leases are renewed for as
// long as a run lasts.
func lastTelling(m *view.Model) (last float64) {
	for _, mark := range m.Marks {
		isWrite := mark.Verb != "get" && mark.Verb != "list" && mark.Verb != "watch" && m.Lanes[mark.Lane].Resource != "leases.coordination.k8s.io"
		if isWrite || mark.Fault != "" && mark.Verb != "watch" {
			last = max(last, mark.End)
		}
	}
	for _, p := range m.Processes {
		for _, s := range p.States {
			if s.Is != string(history.Ended) && s.Is != string(history.Stopping) {
				last = max(last, s.From)
			}
		}
	}
	return last
}

// telling returns the lanes that tell something: those in which anything was written or done on purpose, or differs; if there are too many,
// first those in which something differs or was done on purpose. Events tell what other rows tell.
func telling(m *view.Model) (lanes []int) {
	weight := make([]int, len(m.Lanes))
	for _, mark := range m.Marks {
		switch of := &weight[mark.Lane]; {
		case mark.Differs || mark.Fault != "":
			*of = max(*of, 3)
		case mark.Stale != nil:
			*of = max(*of, 2)
		case m.Lanes[mark.Lane].Resource == "events" || m.Lanes[mark.Lane].Resource == "events.events.k8s.io":
		case mark.Outcome != view.Read && mark.Outcome != view.StillOpen && mark.Verb != "get" && mark.Verb != "list" && mark.Verb != "watch":
			*of = max(*of, 1)
		}
	}
	for i, l := range m.Lanes {
		if weight[i] == 0 && len(l.Versions) > 1 && l.Resource != "events" {
			weight[i] = 1
		}
	}
	lanes = []int{}
	for _, least := range []int{3, 2, 1} {
		for i, w := range weight {
			if w == least && (len(lanes) < mostRows || m.Lanes[i].Family != "") {
				lanes = append(lanes, i)
			}
		}
	}
	slices.Sort(lanes)
	return lanes
}

// done says what was done on purpose in a run.
func done(m *view.Model) (all []string) {
	const most = 6
	more := 0
	for _, mark := range m.Marks {
		if mark.Fault == "" {
			continue
		}
		if len(all) == most {
			more++
			continue
		}
		object := strings.TrimSpace(mark.What + " " + m.Lanes[mark.Lane].Name)
		all = append(all, fmt.Sprintf("%.2f s: %s %s by %s: %s", mark.Start/1000, mark.Verb, object, m.Programs[mark.Program], mark.Fault))
	}
	if more > 0 {
		all = append(all, fmt.Sprintf("and %d more requests", more))
	}
	return all
}
