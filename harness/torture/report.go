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
	"unicode/utf8"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/view"
)

// Group is failures with the same verdict and cause.
type Group struct {
	Verdict  Verdict
	Cause    string
	Message  string   // of the first failure
	Kinds    []string // of the plans
	Failures []Outcome
	// Seen and Runs are how often runs of the first failure's plan had this verdict, and how many there were. The first failure
	// is one whose plan has failed again, if there is one.
	Seen, Runs int
}

// maxRepeated is how many plans of a group are repeated at most to see whether one fails again.
const maxRepeated = 3

// toRepeat returns the plans of a group that can be repeated, in the order of their failures. The first failure may have come by
// chance, and another one beside it not.
func (g Group) toRepeat() (plans []Plan) {
	keys := map[string]bool{}
	for _, failure := range g.Failures {
		if key := failure.Plan.Key(); !keys[key] && len(plans) < maxRepeated {
			keys[key] = true
			plans = append(plans, failure.Plan)
		}
	}
	return plans
}

// Confirmed reports whether the controller failed in this way in two runs of a plan. Other plans that failed, too, do not
// confirm it: in a thousand of them, the machine may hiccup twice. Nor do runs that failed side by side: a machine that had no
// time for one of them had none for the others either.
func (g Group) Confirmed() bool {
	if g.Seen > 1 {
		return true
	}
	for i, a := range g.Failures {
		if slices.ContainsFunc(g.Failures[i+1:], func(b Outcome) bool { return a.Plan.Key() == b.Plan.Key() && !a.besides(b) }) {
			return true
		}
	}
	return false
}

// besides reports whether the failing steps of two runs may have overlapped in time.
func (o Outcome) besides(other Outcome) bool {
	return o.FailedAt.Sub(other.FailedAt).Abs() < max(o.Duration, other.Duration)
}

// counts reports whether an outcome is a failure of the controller. One whose fault did not occur, or that could not be
// run, says nothing about it.
func (o Outcome) counts() bool { return o.Verdict != Passed && !o.saysNothing() }

// saysNothing reports whether an outcome says nothing about the controller: the plan was not run, or without its fault.
func (o Outcome) saysNothing() bool { return o.Verdict == NotRun || o.NotMet }

// retried notes a further run of a plan that has failed, if it says anything.
func (r *Report) retried(again Outcome) {
	if again.saysNothing() {
		return
	}
	if r.Retried == nil {
		r.Retried = map[string][]Outcome{}
	}
	key := again.Plan.Key()
	r.Retried[key] = append(r.Retried[key], again.forReport())
}

// forReport returns what a [Report] keeps of an outcome.
func (o Outcome) forReport() Outcome {
	if o.Verdict == Passed {
		o.History, o.Log = &history.History{}, ""
	}
	return o
}

// failure is an outcome that counts, and in how many runs of its plan the controller failed with the same verdict.
type failure struct {
	Outcome
	seen, runs int
}

// failures returns the failures of the controller: those of the plans and, where a plan that was repeated failed with another
// verdict in at least two repetitions, the first of these.
func (r *Report) failures() (all []failure) {
	isKnown := map[string]bool{} // plans, the repetitions of which are among all
	for _, o := range r.Outcomes {
		if !o.counts() {
			continue
		}
		key := o.Plan.Key()
		runs := append([]Outcome{o}, r.Retried[key]...)
		verdicts := map[Verdict]int{}
		for _, one := range runs {
			verdicts[one.Verdict]++
		}
		all = append(all, failure{o, verdicts[o.Verdict], len(runs)})
		delete(verdicts, o.Verdict)
		for _, one := range runs {
			if often := verdicts[one.Verdict]; one.counts() && often > 1 && !isKnown[key] {
				all = append(all, failure{one, often, len(runs)})
			}
			delete(verdicts, one.Verdict)
		}
		isKnown[key] = true
	}
	return all
}

// Groups returns the failures of the controller by cause, the largest group first.
func (r *Report) Groups() []Group {
	groups := map[[2]string]*Group{}
	var all []*Group
	for _, f := range r.failures() {
		o, seen, runs := f.Outcome, f.seen, f.runs
		key := [2]string{string(o.Verdict), o.Cause}
		g := groups[key]
		if g == nil {
			g = &Group{Verdict: o.Verdict, Cause: o.Cause}
			groups[key], all = g, append(all, g)
		}
		if seen > g.Seen {
			g.Message, g.Seen, g.Runs = o.Message, seen, runs
			g.Failures = slices.Insert(g.Failures, 0, o)
		} else {
			g.Failures = append(g.Failures, o)
		}
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

// First returns the confirmed failure whose plan comes first in the order of the plans. With [Options.FirstOnly], all plans
// before that one were run.
func (r *Report) First() (first Outcome, found bool) {
	failures := r.Failures()
	for _, plan := range r.Planned {
		for _, failure := range failures {
			if failure.Plan.Key() == plan.Key() {
				return failure, true
			}
		}
	}
	return Outcome{}, false
}

// pending returns the plans that come before the first confirmed failure and were not run; none if there is no such failure.
func (r *Report) pending() (pending []Plan) {
	first, found := r.First()
	if !found {
		return nil
	}
	done := map[string]bool{}
	for _, o := range r.Outcomes {
		done[o.Plan.Key()] = true
	}
	for _, plan := range r.Planned {
		key := plan.Key()
		if key == first.Plan.Key() {
			break
		}
		if !done[key] {
			pending = append(pending, plan)
		}
	}
	return pending
}

// NotRun returns the outcomes of the plans that could not be run.
func (r *Report) NotRun() []Outcome {
	return slices.DeleteFunc(slices.Clone(r.Outcomes), func(o Outcome) bool { return o.Verdict != NotRun })
}

// NotMet returns the outcomes of the plans that were run without their faults. See [Outcome.NotMet].
func (r *Report) NotMet() []Outcome {
	return slices.DeleteFunc(slices.Clone(r.Outcomes), func(o Outcome) bool { return o.Verdict == NotRun || !o.NotMet })
}

// Judges reports whether any plan says something about the controller: was run, with its faults.
func (r *Report) Judges() bool { return len(r.NotRun())+len(r.NotMet()) < len(r.Outcomes) }

// Details are what a report is written with. All of them may be missing.
type Details struct {
	// Replay returns the command that replays a plan.
	Replay func(Plan) string
	// View returns the command that draws a recording; nil if there is none.
	View func(path string) string
	// Keep has the files of the plans that failed.
	Keep *Keep
	// Interrupted says that Ctrl-C has ended the run, and Err is the error of torture's own that has; nil if none has.
	Interrupted bool
	Err         error
	// Of a run that ended early, Planned is how many plans there were, with those that have not been run, and Resume is
	// the command that runs these; "" if there is none.
	Planned int
	Resume  string
}

// EndedEarly reports whether the run did not come to its end.
func (d Details) EndedEarly() bool { return d.Interrupted || d.Err != nil }

// reportWidth is the width, in characters, at which the prose of a report is wrapped. Commands and paths are not.
const reportWidth = 100

// WriteText writes the report for a person.
func (r *Report) WriteText(w io.Writer, d Details) error {
	var text strings.Builder
	if len(r.Outcomes) > 0 {
		if err := r.writeTable(&text); err != nil {
			return err
		}
	}
	groups := r.Groups()
	number := 0
	for _, g := range groups {
		if g.Confirmed() {
			number++
			fmt.Fprintln(&text)
			writeWrapped(&text, fmt.Sprintf("%d. ", number), string(g.Verdict)+": "+g.Message)
			g.writeDetails(&text, d)
		}
	}
	for _, g := range groups {
		if !g.Confirmed() {
			fmt.Fprintln(&text)
			why := "Not counted, as it did not come again: "
			if g.Runs == 1 {
				why = "Not counted, as it has been seen once, and no repetition of its plan says more: "
			}
			writeWrapped(&text, "", why+string(g.Verdict)+": "+g.Message)
			g.writeDetails(&text, d)
		}
	}
	r.writeFailedUndisturbed(&text, d)
	r.writeNotRun(&text, d)
	r.writeNotes(&text)
	r.writeSummary(&text, d)
	_, err := io.WriteString(w, text.String())
	return err
}

func (g Group) writeDetails(w io.Writer, d Details) {
	const indent = "   "
	first := g.Failures[0]
	which := ", which"
	if len(g.Failures) > 1 {
		which = "; the first of them"
	}
	plans := fmt.Sprintf("%s: %s", count(len(g.Failures), "plan", "plans"), strings.Join(g.Kinds, ", "))
	if g.Runs > 1 {
		plans += fmt.Sprintf("%s failed like this in %d of %d runs", which, g.Seen, g.Runs)
	}
	writeWrapped(w, indent, plans)
	if d.Replay != nil {
		fmt.Fprintf(w, "%sreplay: %s\n", indent, d.Replay(first.Plan))
	}
	if files := d.Keep.Files(first); files != "" {
		fmt.Fprintf(w, "%slog: %s.log\n%srequests: %s.requests, .jsonl\n", indent, files, indent, files)
		if d.View != nil {
			fmt.Fprintf(w, "%sview: %s\n", indent, d.View(files+".jsonl"))
		}
	}
	for _, line := range excerpt(first) {
		fmt.Fprintln(w, "     "+line)
	}
	for _, text := range staleWrites(first) {
		writeWrapped(w, indent, text)
	}
}

// staleWrites says, of the last writes before a failure that were made by a program that was behind, what it did not know. There are
// none without a watch, and its own writes do not count.
func staleWrites(o Outcome) []string {
	const most = 2
	m := view.Of("", o.History)
	var marks []view.Mark
	for _, mark := range m.Marks {
		at := m.Start.Add(time.Duration(mark.Start * float64(time.Millisecond)))
		if s := mark.Stale; s != nil && (!s.Own || len(s.Others) > 0) && (o.FailedAt.IsZero() || at.Before(o.FailedAt)) {
			marks = append(marks, mark)
		}
	}
	var texts []string
	for _, mark := range marks[max(0, len(marks)-most):] {
		_, name, isNamespaced := strings.Cut(m.Lanes[mark.Lane].Name, "/")
		if !isNamespaced {
			name = m.Lanes[mark.Lane].Name
		}
		texts = append(texts, fmt.Sprintf("behind at %.3fs: %s %s %s: %s", mark.Start/1000, mark.Verb, mark.What, name, mark.Stale.Text))
	}
	return texts
}

// writeNotRun names the plans that say nothing about the controller.
func (r *Report) writeNotRun(w io.Writer, d Details) {
	notRun := r.NotRun()
	if len(notRun) == 0 {
		return
	}
	fmt.Fprintln(w)
	text := fmt.Sprintf("%s could not be run, which says nothing about the controller.", count(len(notRun), "plan", "plans"))
	if len(notRun) == len(r.Outcomes) {
		text = "No plan could be run, so nothing is known about the controller."
	}
	writeWrapped(w, "", fmt.Sprintf("%s The first: %s: %s", text, notRun[0].Plan.Kind, notRun[0].Message))
	if files := d.Keep.Files(notRun[0]); files != "" {
		fmt.Fprintf(w, "   log: %s.log\n", files)
	}
}

// writeSummary writes how many plans were run, and where more can be found.
func (r *Report) writeSummary(w io.Writer, d Details) {
	fmt.Fprintln(w)
	if d.Keep != nil && len(d.Keep.names) > 0 {
		fmt.Fprintf(w, "The controller's log and the requests of every failed plan are in %s\n", d.Keep.Dir())
	}
	failed, duration := len(r.Failures()), r.Duration.Round(time.Second)
	if !d.EndedEarly() {
		fmt.Fprintf(w, "%s, %d failed; %s\n", count(len(r.Outcomes), "plan", "plans"), failed, duration)
		return
	}
	ran := count(len(r.Outcomes), "plan was", "plans were")
	if d.Planned > 0 {
		ran = fmt.Sprintf("%d of %s", len(r.Outcomes), count(d.Planned, "plan was", "plans were"))
	}
	how := "interrupted"
	if d.Err != nil {
		how = "ended by an error"
	}
	fmt.Fprintf(w, "%s: %s run, %d failed; %s\n", how, ran, failed, duration)
	if d.Resume != "" {
		fmt.Fprintf(w, "resume: %s\n", d.Resume)
	}
}

// writeWrapped writes a text in lines of at most reportWidth characters, if its words allow that. The first line begins
// with lead, and the others are indented as far.
func writeWrapped(w io.Writer, lead, text string) {
	indent := strings.Repeat(" ", len(lead))
	for paragraph := range strings.SplitSeq(text, "\n") {
		line, empty := lead, true
		for _, word := range strings.Fields(paragraph) {
			if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > reportWidth {
				fmt.Fprintln(w, line)
				line, empty = indent, true
			}
			if !empty {
				line += " "
			}
			line, empty = line+word, false
		}
		if !empty {
			fmt.Fprintln(w, line)
		}
		lead = indent
	}
}

// writeNotes writes what was unusual and may be right, each once.
func (r *Report) writeNotes(w io.Writer) {
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
		return
	}
	fmt.Fprint(w, "\nDifferent from the baseline, which may be right:\n")
	for _, note := range order {
		writeWrapped(w, " - ", fmt.Sprintf("%s (in %s)", note, count(counts[note], "plan", "plans")))
	}
}

// count is a number with its noun.
func count(n int, singular, plural string) string {
	if n == 1 {
		return "1 " + singular
	}
	return fmt.Sprintf("%d %s", n, plural)
}

// writeTable writes how the plans of each kind went. The columns NOT RUN and FAILED are left out if they would be empty.
func (r *Report) writeTable(w io.Writer) error {
	type row struct {
		plans, passed, notMet, notRun int
		failed                        map[Verdict]int
	}
	rows, total := map[string]*row{}, row{failed: map[Verdict]int{}}
	for _, o := range r.Outcomes {
		kind := o.Plan.Kind
		if o.Plan.isDrawn() {
			kind = "seeds"
		}
		if rows[kind] == nil {
			rows[kind] = &row{failed: map[Verdict]int{}}
		}
		for _, in := range []*row{rows[kind], &total} {
			in.plans++
			switch {
			case o.Verdict == NotRun:
				in.notRun++
			case o.NotMet:
				in.notMet++
			case o.Verdict == Passed:
				in.passed++
			default:
				in.failed[o.Verdict]++
			}
		}
	}
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	writeRow := func(name, plans, passed, notMet, notRun, failed string) {
		cells := []string{name, plans, passed, notMet}
		if total.notRun > 0 {
			cells = append(cells, notRun)
		}
		if len(total.failed) > 0 {
			cells = append(cells, failed)
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	writeRow("FAULT", "PLANS", "PASSED", "NOT MET", "NOT RUN", "FAILED")
	for _, kind := range slices.Sorted(maps.Keys(rows)) {
		of := rows[kind]
		var failed []string
		for _, v := range Verdicts {
			if n := of.failed[v]; n > 0 {
				failed = append(failed, fmt.Sprintf("%d %s", n, v))
			}
		}
		writeRow(kind, fmt.Sprint(of.plans), fmt.Sprint(of.passed), fmt.Sprint(of.notMet), fmt.Sprint(of.notRun), strings.Join(failed, ", "))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, line := range trimmedLines(text.String()) {
		fmt.Fprintln(w, line)
	}
	if total.notMet > 0 {
		fmt.Fprint(w, "\n")
		writeWrapped(w, "", "NOT MET: the request or event at which the fault is aimed did not come, or the fault could not be done to it, so these plans say nothing about the controller.")
	}
	return nil
}

// writeFailedUndisturbed names the first of the failures without the fault of their plan.
func (r *Report) writeFailedUndisturbed(w io.Writer, d Details) {
	failed := slices.DeleteFunc(r.NotMet(), func(o Outcome) bool { return o.Verdict == Passed })
	if len(failed) == 0 {
		return
	}
	first := failed[0]
	fmt.Fprintln(w)
	text := fmt.Sprintf("Not counted, as the fault did not come: %s failed all the same.", count(len(failed), "plan", "plans"))
	writeWrapped(w, "", fmt.Sprintf("%s The first: %s: %s: %s", text, first.Plan.Kind, first.Verdict, first.Message))
	if d.Replay != nil {
		fmt.Fprintf(w, "   replay: %s\n", d.Replay(first.Plan))
	}
	if files := d.Keep.Files(first); files != "" {
		fmt.Fprintf(w, "   log: %s.log\n   requests: %s.requests, .jsonl\n", files, files)
	}
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
	if len(part.Requests) == 0 {
		return []string{}
	}
	withoutNamespace(part.Requests)
	var text strings.Builder
	if err := part.WriteRequests(&text); err != nil {
		return []string{}
	}
	return trimmedLines(text.String())
}

// trimmedLines returns the lines of a table without the spaces at their ends.
func trimmedLines(table string) []string {
	lines := strings.Split(strings.TrimRight(table, "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return lines
}

// withoutNamespace leaves out the namespace if all requests are for the same one, which is the run's: its name says nothing.
func withoutNamespace(requests []history.Request) {
	namespaces := map[string]bool{}
	for _, r := range requests {
		if r.Namespace != "" {
			namespaces[r.Namespace] = true
		}
	}
	if len(namespaces) > 1 {
		return
	}
	for i := range requests {
		requests[i].Namespace = ""
	}
}

// WriteJSON writes the report for programs: an object with the number of plans, of those that failed and of those that
// could not be run, and for each failure of the controller the kind of its plan, the faults, the verdict, the message, an
// excerpt of the requests, the command that replays it, and its files. A failure that was seen once only has confirmed
// false, and is not counted in failed. For a run that ended early, there are the error that ended it, unless that was
// Ctrl-C, the number of plans that there were, and the command that resumes it.
func (r *Report) WriteJSON(w io.Writer, d Details) error {
	type failure struct {
		Kind      string   `json:"kind"`
		Faults    []string `json:"faults"`
		Verdict   Verdict  `json:"verdict"`
		Cause     string   `json:"cause"`
		Message   string   `json:"message"`
		Confirmed bool     `json:"confirmed"`
		Replay    string   `json:"replay,omitempty"`
		Log       string   `json:"log,omitempty"`       // file
		Recording string   `json:"recording,omitempty"` // file
		Requests  []string `json:"requests"`
	}
	out := struct {
		Plans       int       `json:"plans"`
		Failed      int       `json:"failed"`
		NotMet      int       `json:"notMet"` // were run without their faults
		NotRun      int       `json:"notRun"`
		Interrupted bool      `json:"interrupted,omitempty"`
		Error       string    `json:"error,omitempty"`
		Planned     int       `json:"planned,omitempty"`
		Resume      string    `json:"resume,omitempty"`
		Seconds     float64   `json:"seconds"`
		Failures    []failure `json:"failures"`
	}{
		Plans: len(r.Outcomes), Failed: len(r.Failures()), NotMet: len(r.NotMet()), NotRun: len(r.NotRun()), Seconds: r.Duration.Seconds(),
		Interrupted: d.Interrupted, Failures: []failure{},
	}
	if d.Err != nil {
		out.Error = d.Err.Error()
	}
	if d.EndedEarly() {
		out.Planned, out.Resume = d.Planned, d.Resume
	}
	for _, g := range r.Groups() {
		for _, o := range g.Failures {
			f := failure{Kind: o.Plan.Kind, Verdict: o.Verdict, Cause: o.Cause, Message: o.Message, Confirmed: g.Confirmed(), Requests: excerpt(o), Faults: []string{}}
			for _, fault := range o.Plan.Faults {
				f.Faults = append(f.Faults, fault.String())
			}
			if d.Replay != nil {
				f.Replay = d.Replay(o.Plan)
			}
			if files := d.Keep.Files(o); files != "" {
				f.Log, f.Recording = files+".log", files+".jsonl"
			}
			out.Failures = append(out.Failures, f)
		}
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(out)
}
