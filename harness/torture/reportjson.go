package torture

import (
	"encoding/json"
	"io"
)

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
