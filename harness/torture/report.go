package torture

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"example.com/controllers/harness/history"
)

// Group is failures with the same cause.
type Group struct {
	Verdict  Verdict
	Why      string   // of the first
	Kinds    []string // of the plans
	Failures []Outcome
}

// particular is what differs between two failures with the same cause.
var particular = regexp.MustCompile(`\(.*\)$|[a-z0-9]*-[a-z0-9-]*[0-9][a-z0-9-]*|[a-z0-9-]+-[bcdfghjklmnpqrstvwxz2456789]{5}\b|0x[0-9a-f]+|[0-9]+`)

// Groups returns the failures by cause, the largest group first.
func (r *Report) Groups() []Group {
	groups := map[string]*Group{}
	for _, o := range r.Failures() {
		key := string(o.Verdict) + particular.ReplaceAllString(o.Why, "#")
		if groups[key] == nil {
			groups[key] = &Group{Verdict: o.Verdict, Why: o.Why}
		}
		g := groups[key]
		g.Failures = append(g.Failures, o)
		if !slices.Contains(g.Kinds, o.Plan.Kind) {
			g.Kinds = append(g.Kinds, o.Plan.Kind)
		}
	}
	var all []Group
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		slices.Sort(groups[key].Kinds)
		all = append(all, *groups[key])
	}
	slices.SortStableFunc(all, func(a, b Group) int { return len(b.Failures) - len(a.Failures) })
	return all
}

// WriteText writes the report for a person. replay is the command that replays a plan, up to its faults, and
// after them.
func (r *Report) WriteText(w io.Writer, replay func(Plan) string) error {
	if err := r.writeTable(w); err != nil {
		return err
	}
	for i, g := range r.Groups() {
		fmt.Fprintf(w, "\n%d. %s: %s\n", i+1, g.Verdict, g.Why)
		fmt.Fprintf(w, "   %s: %s\n", count(len(g.Failures), "plan"), strings.Join(g.Kinds, ", "))
		if again, ok := r.Again[g.Failures[0].Plan.String()]; ok && again != g.Verdict {
			fmt.Fprintf(w, "   the first of them was run once more, and then it was: %s\n", cmp.Or(again, "well"))
		}
		fmt.Fprintf(w, "   replay: %s\n", replay(g.Failures[0].Plan))
		for _, line := range story(g.Failures[0].History) {
			fmt.Fprintln(w, "     "+line)
		}
	}
	failures := len(r.Failures())
	_, err := fmt.Fprintf(w, "\n%s, %s failed; %s\n", count(len(r.Outcomes), "plan"), count(failures, ""), r.Duration.Round(time.Second))
	return err
}

func count(n int, what string) string {
	switch {
	case what == "":
		return fmt.Sprint(n)
	case n == 1:
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (r *Report) writeTable(w io.Writer) error {
	type row struct {
		runs, well, missed int
		by                 map[Verdict]int
	}
	rows, kinds := map[string]*row{}, []string{}
	verdicts := map[Verdict]bool{}
	for _, o := range r.Outcomes {
		kind := o.Plan.Kind
		if strings.HasPrefix(kind, "seed ") {
			kind = "seeds"
		}
		if rows[kind] == nil {
			rows[kind] = &row{by: map[Verdict]int{}}
			kinds = append(kinds, kind)
		}
		rows[kind].runs++
		if o.Missed {
			rows[kind].missed++
		}
		if o.Verdict == Well {
			rows[kind].well++
			continue
		}
		rows[kind].by[o.Verdict]++
		verdicts[o.Verdict] = true
	}
	slices.Sort(kinds)
	columns := slices.Sorted(maps.Keys(verdicts))
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprint(table, "FAULT\tPLANS\tWELL")
	for _, v := range columns {
		fmt.Fprintf(table, "\t%s", strings.ToUpper(string(v)))
	}
	fmt.Fprintln(table, "\tNOT MET")
	for _, kind := range kinds {
		fmt.Fprintf(table, "%s\t%d\t%d", kind, rows[kind].runs, rows[kind].well)
		for _, v := range columns {
			fmt.Fprintf(table, "\t%d", rows[kind].by[v])
		}
		fmt.Fprintf(table, "\t%d\n", rows[kind].missed)
	}
	return table.Flush()
}

// story returns the recorded lines around the first fault that something was done to, or the last ones.
func story(h *history.History) []string {
	var requests []history.Request
	for _, r := range h.Requests {
		if r.Resource != "" {
			requests = append(requests, r)
		}
	}
	at := slices.IndexFunc(requests, func(r history.Request) bool { return r.IsDisturbed() })
	const before, after = 2, 4
	if at < 0 {
		at = len(requests) - 1
	}
	part := &history.History{Requests: requests[max(0, at-before):min(len(requests), at+after+1)]}
	var text strings.Builder
	if err := part.WriteRequests(&text); err != nil || len(part.Requests) == 0 {
		return []string{}
	}
	return strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
}

// WriteJSON writes the report for machines: an object with "plans", "failed", and for each failed plan its
// kind, faults, verdict and why.
func (r *Report) WriteJSON(w io.Writer) error {
	type failure struct {
		Kind    string   `json:"kind"`
		Faults  []string `json:"faults"`
		Verdict Verdict  `json:"verdict"`
		Why     string   `json:"why"`
		Story   []string `json:"story"`
	}
	out := struct {
		Plans    int       `json:"plans"`
		Failed   int       `json:"failed"`
		Seconds  float64   `json:"seconds"`
		Failures []failure `json:"failures"`
	}{Plans: len(r.Outcomes), Failed: len(r.Failures()), Seconds: r.Duration.Seconds(), Failures: []failure{}}
	for _, o := range r.Failures() {
		f := failure{Kind: o.Plan.Kind, Verdict: o.Verdict, Why: o.Why, Story: story(o.History), Faults: []string{}}
		for _, fault := range o.Plan.Faults {
			f.Faults = append(f.Faults, fault.String())
		}
		out.Failures = append(out.Failures, f)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(out)
}
