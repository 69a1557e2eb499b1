package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
)

// width is the width, in characters, at which prose is wrapped. Commands and paths are not.
const width = 100

// WriteText writes the report for a person.
func (s *Summary) WriteText(w io.Writer) error {
	var text strings.Builder
	if s.Plans > 0 {
		if err := s.writeTable(&text); err != nil {
			return err
		}
	}
	for i, f := range s.Failures {
		fmt.Fprintln(&text)
		lead := fmt.Sprintf("%d. ", i+1)
		if !f.Confirmed {
			lead = ""
		}
		writeWrapped(&text, lead, f.Title())
		f.writeDetails(&text)
	}
	s.writeCoverage(&text)
	s.writeUndisturbed(&text)
	s.writeNotRun(&text)
	s.writeNotes(&text)
	s.writeEnd(&text)
	_, err := io.WriteString(w, text.String())
	return err
}

// Title says what went wrong, and whether it counts.
func (f Failure) Title() string {
	what := f.Verdict + ": " + f.Message
	switch {
	case f.Confirmed:
		return what
	case f.ComesAnyway:
		return "Not counted, as it comes without the fault, too: " + what
	case f.Controls > 0 && f.Seen > 1:
		return "Not counted, as it came again only once: " + what
	case f.Runs == 1:
		return "Not counted, as it has been seen once, and no repetition of its plan says more: " + what
	}
	return "Not counted, as it did not come again: " + what
}

// Often says which plans failed, and how often the first of them.
func (f Failure) Often() string {
	plans := fmt.Sprintf("%s: %s", count(len(f.Plans), "plan", "plans"), strings.Join(f.Kinds, ", "))
	if f.Runs <= 1 {
		return plans
	}
	which := ", which"
	if len(f.Plans) > 1 {
		which = "; the first of them"
	}
	text := plans + fmt.Sprintf("%s failed like this in %d of %d runs", which, f.Seen, f.Runs)
	if f.Controls > 0 {
		text += fmt.Sprintf("; without its fault, %d of %d runs did", f.Alone, f.Controls)
	} else if f.NotCompared {
		text += "; not compared with runs without its fault"
	}
	return text
}

func (f Failure) writeDetails(w io.Writer) {
	const indent = "   "
	first := f.Plans[0]
	writeWrapped(w, indent, f.Often())
	first.writeWhere(w)
	if first.View != "" {
		fmt.Fprintf(w, "%sview: %s\n", indent, first.View)
	}
	for _, line := range first.Requests {
		fmt.Fprintln(w, "     "+line)
	}
	for _, text := range f.Behind {
		writeWrapped(w, indent, text)
	}
}

// writeWhere writes how to run a plan again, and where its files are.
func (p Plan) writeWhere(w io.Writer) {
	if p.Replay != "" {
		fmt.Fprintf(w, "   replay: %s\n", p.Replay)
	}
	if p.Files != "" {
		fmt.Fprintf(w, "   log: %s.log\n   requests: %s.requests, .jsonl\n", p.Files, p.Files)
	}
}

// Coverage says in sentences how many of the plans that there are were run, and which writes they did not break.
func (s *Summary) Coverage() (sentences []string) {
	if s.Possible > s.Plans {
		sentences = append(sentences, fmt.Sprintf("There are %d plans; %s not run.", s.Possible, count(s.Possible-s.Plans, "was", "were")))
	}
	var broken, never, reads []string
	writes, all := 0, true
	for _, w := range s.Writes {
		switch {
		case w.IsRead:
			if w.Broken == 0 {
				reads = append(reads, w.What)
			}
			continue
		case w.Broken == 0:
			never = append(never, fmt.Sprintf("%s (%d)", w.What, w.Writes))
		default:
			broken = append(broken, fmt.Sprintf("%s (%d of %d)", w.What, w.Broken, w.Writes))
		}
		writes++
		all = all && w.Broken == w.Writes
	}
	switch {
	case writes > 0 && all:
		sentences = append(sentences, "Each of the controller's writes was broken at least once.")
	case writes > 0:
		if len(broken) > 0 {
			sentences = append(sentences, "Writes that were broken at least once: "+strings.Join(broken, ", ")+".")
		}
		if len(never) > 0 {
			sentences = append(sentences, "Writes that were never broken, of which nothing is known: "+strings.Join(never, ", ")+".")
		}
	}
	if len(reads) > 0 {
		sentences = append(sentences, "Reads that were never broken: "+strings.Join(reads, ", ")+".")
	}
	return sentences
}

func (s *Summary) writeCoverage(w io.Writer) {
	sentences := s.Coverage()
	if len(sentences) > 0 {
		fmt.Fprintln(w)
	}
	for _, text := range sentences {
		writeWrapped(w, "", text)
	}
}

// UndisturbedText says which plans failed without the fault of their plan; "" if none did.
func (s *Summary) UndisturbedText() string {
	if s.Undisturbed == nil {
		return ""
	}
	first := s.Undisturbed.First
	return fmt.Sprintf("Not counted, as the fault did not come: %s failed all the same. The first: %s: %s: %s",
		count(s.Undisturbed.Plans, "plan", "plans"), first.Kind, first.Verdict, first.Message)
}

func (s *Summary) writeUndisturbed(w io.Writer) {
	if s.Undisturbed != nil {
		fmt.Fprintln(w)
		writeWrapped(w, "", s.UndisturbedText())
		s.Undisturbed.First.writeWhere(w)
	}
}

// NotRunText says which plans say nothing about the controller; "" if all do.
func (s *Summary) NotRunText() string {
	if s.CouldNotRun == nil {
		return ""
	}
	text := fmt.Sprintf("%s could not be run, which says nothing about the controller.", count(s.NotRun, "plan", "plans"))
	if s.NotRun == s.Plans {
		text = "No plan could be run, so nothing is known about the controller."
	}
	return fmt.Sprintf("%s The first: %s: %s", text, s.CouldNotRun.First.Kind, s.CouldNotRun.First.Message)
}

func (s *Summary) writeNotRun(w io.Writer) {
	if s.CouldNotRun != nil {
		fmt.Fprintln(w)
		writeWrapped(w, "", s.NotRunText())
		if files := s.CouldNotRun.First.Files; files != "" {
			fmt.Fprintf(w, "   log: %s.log\n", files)
		}
	}
}

// writeNotes writes what was unusual and may be right, each once.
func (s *Summary) writeNotes(w io.Writer) {
	if len(s.Notes) == 0 {
		return
	}
	fmt.Fprint(w, "\nDifferent from the baseline, which may be right:\n")
	for _, note := range s.Notes {
		writeWrapped(w, " - ", fmt.Sprintf("%s (in %s)", note.Text, count(note.Plans, "plan", "plans")))
	}
}

// End says how many plans were run.
func (s *Summary) End() string {
	duration := s.Duration.Round(time.Second)
	if !s.EndedEarly() {
		plans := count(s.Plans, "plan", "plans")
		if s.Runs > 0 && s.Runs < s.Plans {
			plans += " in " + count(s.Runs, "run", "runs")
		}
		return fmt.Sprintf("%s, %d failed; %s", plans, s.Failed, duration)
	}
	ran := count(s.Plans, "plan was", "plans were")
	if s.Planned > 0 {
		ran = fmt.Sprintf("%d of %s", s.Plans, count(s.Planned, "plan was", "plans were"))
	}
	how := "interrupted"
	if s.Error != "" {
		how = "ended by an error"
	}
	return fmt.Sprintf("%s: %s run, %d failed; %s", how, ran, s.Failed, duration)
}

// writeEnd writes how many plans were run, and where more can be found.
func (s *Summary) writeEnd(w io.Writer) {
	fmt.Fprintln(w)
	if s.Dir != "" {
		fmt.Fprintf(w, "The controller's log and the requests of every failed plan are in %s\n", s.Dir)
	}
	fmt.Fprintln(w, s.End())
	if s.Resume != "" {
		fmt.Fprintf(w, "resume: %s\n", s.Resume)
	}
}

// writeWrapped writes a text in lines of at most width characters, if its words allow that. The first line begins with
// lead, and the others are indented as far.
func writeWrapped(w io.Writer, lead, text string) {
	indent := strings.Repeat(" ", len(lead))
	for paragraph := range strings.SplitSeq(text, "\n") {
		line, empty := lead, true
		for _, word := range strings.Fields(paragraph) {
			if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
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

// NotMetText explains the column NOT INJECTED of the table.
const NotMetText = "NOT INJECTED: the request or event at which the fault is aimed did not come in that run, or the fault could not be done to it, so these plans say nothing about the controller."

// Table returns the table of how the plans of each kind went, with its head. The columns NOT RUN and FAILED are left out if they would be
// empty.
func (s *Summary) Table() (rows [][]string) {
	failed := false
	for _, k := range s.Kinds {
		failed = failed || len(k.Failed) > 0
	}
	add := func(name, plans, passed, notMet, notRun, verdicts string) {
		row := []string{name, plans, passed, notMet}
		if s.NotRun > 0 {
			row = append(row, notRun)
		}
		if failed {
			row = append(row, verdicts)
		}
		rows = append(rows, row)
	}
	add("FAULT", "PLANS", "PASSED", "NOT INJECTED", "NOT RUN", "FAILED")
	for _, k := range s.Kinds {
		var verdicts []string
		for _, c := range k.Failed {
			verdicts = append(verdicts, fmt.Sprintf("%d %s", c.Plans, c.Verdict))
		}
		add(k.Name, fmt.Sprint(k.Plans), fmt.Sprint(k.Passed), fmt.Sprint(k.NotMet), fmt.Sprint(k.NotRun), strings.Join(verdicts, ", "))
	}
	return rows
}

func (s *Summary) writeTable(w io.Writer) error {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	for _, row := range s.Table() {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
	if s.NotMet > 0 {
		fmt.Fprint(w, "\n")
		writeWrapped(w, "", NotMetText)
	}
	return nil
}
