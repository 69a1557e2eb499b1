package torture

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"example.com/controllers/harness/history"
)

// Group is failures with the same verdict and cause.
type Group struct {
	Verdict  Verdict
	Cause    string
	Message  string   // of the first failure
	Kinds    []string // of the plans
	Failures []Outcome
	// Seen and Runs are how often runs of the first failure's plan had this verdict, and how many there were.
	Seen, Runs int
}

// Confirmed reports whether the controller failed in this way more than once.
func (g Group) Confirmed() bool { return g.Seen > 1 || len(g.Failures) > 1 }

// counts reports whether an outcome is a failure of the controller. One whose fault did not occur, or that could not be
// run, says nothing about it.
func (o Outcome) counts() bool { return o.Verdict != Passed && o.Verdict != NotRun && !o.NotMet }

// retried notes a further run of a plan that has failed.
func (r *Report) retried(again Outcome) {
	if r.Retried == nil {
		r.Retried = map[string][]Verdict{}
	}
	key := again.Plan.Key()
	r.Retried[key] = append(r.Retried[key], again.Verdict)
}

// Groups returns the failures of the controller by cause, the largest group first.
func (r *Report) Groups() []Group {
	groups := map[[2]string]*Group{}
	var all []*Group
	for _, o := range r.Outcomes {
		if !o.counts() {
			continue
		}
		key := [2]string{string(o.Verdict), o.Cause}
		g := groups[key]
		if g == nil {
			g = &Group{Verdict: o.Verdict, Cause: o.Cause, Message: o.Message, Seen: 1, Runs: 1}
			for _, verdict := range r.Retried[o.Plan.Key()] {
				g.Runs++
				if verdict == o.Verdict {
					g.Seen++
				}
			}
			groups[key], all = g, append(all, g)
		}
		g.Failures = append(g.Failures, o)
		if !slices.Contains(g.Kinds, o.Plan.Kind) {
			g.Kinds = append(g.Kinds, o.Plan.Kind)
		}
	}
	slices.SortStableFunc(all, func(a, b *Group) int {
		return cmp.Or(len(b.Failures)-len(a.Failures), slices.Index(Verdicts, a.Verdict)-slices.Index(Verdicts, b.Verdict), strings.Compare(a.Cause, b.Cause))
	})
	var sorted []Group
	for _, g := range all {
		slices.Sort(g.Kinds)
		sorted = append(sorted, *g)
	}
	return sorted
}

// Failures returns the failures of the controller that came more than once, by plan or in a repeated run.
func (r *Report) Failures() []Outcome {
	var failures []Outcome
	for _, g := range r.Groups() {
		if g.Confirmed() {
			failures = append(failures, g.Failures...)
		}
	}
	return failures
}

// NotRun returns the outcomes of the plans that could not be run.
func (r *Report) NotRun() []Outcome {
	return slices.DeleteFunc(slices.Clone(r.Outcomes), func(o Outcome) bool { return o.Verdict != NotRun })
}

// WriteText writes the report for a person. replay returns the command that replays a plan.
func (r *Report) WriteText(w io.Writer, replay func(Plan) string) error {
	if err := r.writeTable(w); err != nil {
		return err
	}
	groups := r.Groups()
	number := 0
	for _, g := range groups {
		if g.Confirmed() {
			number++
			fmt.Fprintf(w, "\n%d. %s: %s\n", number, g.Verdict, g.Message)
			g.writeDetails(w, replay)
		}
	}
	once := 0
	for _, g := range groups {
		if !g.Confirmed() {
			once++
			fmt.Fprintf(w, "\nSeen %s of %d times, so it does not count: %s: %s\n", times(g.Seen), g.Runs, g.Verdict, g.Message)
			g.writeDetails(w, replay)
		}
	}
	if notRun := r.NotRun(); len(notRun) > 0 {
		fmt.Fprintf(w, "\n%s could not be run, which says nothing about the controller. The first: %s: %s\n", count(len(notRun), "plan", "plans"), notRun[0].Plan.Kind, notRun[0].Message)
	}
	if err := r.writeNotes(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s, %d failed; %s\n", count(len(r.Outcomes), "plan", "plans"), len(r.Failures()), r.Duration.Round(time.Second))
	return err
}

func (g Group) writeDetails(w io.Writer, replay func(Plan) string) {
	first := g.Failures[0]
	fmt.Fprintf(w, "   %s: %s\n", count(len(g.Failures), "plan", "plans"), strings.Join(g.Kinds, ", "))
	if g.Runs > 1 {
		fmt.Fprintf(w, "   the first of them was run %d times and failed like this %s\n", g.Runs, times(g.Seen))
	}
	fmt.Fprintf(w, "   replay: %s\n", replay(first.Plan))
	for _, line := range excerpt(first) {
		fmt.Fprintln(w, "     "+line)
	}
}

// writeNotes writes what was unusual and may be right, each once.
func (r *Report) writeNotes(w io.Writer) error {
	counts := map[string]int{}
	var order []string
	for _, o := range r.Outcomes {
		for _, note := range o.Notes {
			if counts[note] == 0 {
				order = append(order, note)
			}
			counts[note]++
		}
	}
	if len(order) == 0 {
		return nil
	}
	fmt.Fprint(w, "\nNot as without faults, which may be right:\n")
	for _, note := range order {
		if _, err := fmt.Fprintf(w, "   %s (%s)\n", note, count(counts[note], "plan", "plans")); err != nil {
			return err
		}
	}
	return nil
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// count is a number with its noun.
func count(n int, singular, plural string) string {
	if n == 1 {
		return "1 " + singular
	}
	return fmt.Sprintf("%d %s", n, plural)
}

func (r *Report) writeTable(w io.Writer) error {
	type row struct {
		runs, passed, notMet int
		failed               map[Verdict]int
	}
	rows, kinds := map[string]*row{}, []string{}
	verdicts := map[Verdict]bool{}
	for _, o := range r.Outcomes {
		kind := o.Plan.Kind
		if strings.HasPrefix(kind, "seed ") {
			kind = "seeds"
		}
		if rows[kind] == nil {
			rows[kind] = &row{failed: map[Verdict]int{}}
			kinds = append(kinds, kind)
		}
		rows[kind].runs++
		switch {
		case o.NotMet:
			rows[kind].notMet++
		case o.Verdict == Passed:
			rows[kind].passed++
		default:
			rows[kind].failed[o.Verdict]++
			verdicts[o.Verdict] = true
		}
	}
	slices.Sort(kinds)
	columns := slices.Sorted(maps.Keys(verdicts))
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprint(table, "FAULT\tPLANS\tPASSED")
	for _, v := range columns {
		fmt.Fprintf(table, "\t%s", strings.ToUpper(string(v)))
	}
	fmt.Fprintln(table, "\tNOT MET")
	for _, kind := range kinds {
		fmt.Fprintf(table, "%s\t%d\t%d", kind, rows[kind].runs, rows[kind].passed)
		for _, v := range columns {
			fmt.Fprintf(table, "\t%d", rows[kind].failed[v])
		}
		fmt.Fprintf(table, "\t%d\n", rows[kind].notMet)
	}
	return table.Flush()
}

// excerpt returns the recorded requests that tell the failure, as lines: those around the first that something was done
// to, and those after the failing step began; or the last ones.
func excerpt(o Outcome) []string {
	requests := slices.DeleteFunc(slices.Clone(o.History.Requests), func(r history.Request) bool { return r.Resource == "" })
	chosen := map[int]bool{}
	choose := func(at, before, after int) {
		for i := max(0, at-before); i < min(len(requests), at+after+1); i++ {
			chosen[i] = true
		}
	}
	const before, after = 2, 4
	if at := slices.IndexFunc(requests, history.Request.IsDisturbed); at >= 0 {
		choose(at, before, after)
	} else {
		choose(len(requests)-1, before, 0)
	}
	if !o.FailedAt.IsZero() {
		at := slices.IndexFunc(requests, func(r history.Request) bool { return !r.Start.Before(o.FailedAt) })
		if at < 0 {
			at = len(requests)
		}
		choose(at, before, after)
	}
	part := &history.History{}
	for i, r := range requests {
		if chosen[i] {
			part.Requests = append(part.Requests, r)
		}
	}
	var text strings.Builder
	if err := part.WriteRequests(&text); err != nil || len(part.Requests) == 0 {
		return []string{}
	}
	return strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
}

// WriteJSON writes the report for programs: an object with the number of plans and of those that failed, and for each
// failure of the controller the kind of its plan, the faults, the verdict, the message, and an excerpt of the requests.
// A failure that was seen once only has confirmed false, and is not counted in failed.
func (r *Report) WriteJSON(w io.Writer) error {
	type failure struct {
		Kind      string   `json:"kind"`
		Faults    []string `json:"faults"`
		Verdict   Verdict  `json:"verdict"`
		Cause     string   `json:"cause"`
		Message   string   `json:"message"`
		Confirmed bool     `json:"confirmed"`
		Requests  []string `json:"requests"`
	}
	out := struct {
		Plans    int       `json:"plans"`
		Failed   int       `json:"failed"`
		NotRun   int       `json:"notRun"`
		Seconds  float64   `json:"seconds"`
		Failures []failure `json:"failures"`
	}{Plans: len(r.Outcomes), Failed: len(r.Failures()), NotRun: len(r.NotRun()), Seconds: r.Duration.Seconds(), Failures: []failure{}}
	for _, g := range r.Groups() {
		for _, o := range g.Failures {
			f := failure{Kind: o.Plan.Kind, Verdict: o.Verdict, Cause: o.Cause, Message: o.Message, Confirmed: g.Confirmed(), Requests: excerpt(o), Faults: []string{}}
			for _, fault := range o.Plan.Faults {
				f.Faults = append(f.Faults, fault.String())
			}
			out.Failures = append(out.Failures, f)
		}
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(out)
}
