package torture

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
)

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
