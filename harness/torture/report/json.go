package report

import (
	"encoding/json"
	"io"
)

// WriteJSON writes the report for programs: an object with the number of plans, of those that failed and of those that
// could not be run, and of those that there are, how many of the controller's writes were broken, and for each failure of the controller the kind of its plan, the faults, the verdict, the message, an
// excerpt of the requests, the command that replays it, and its files. A failure that was seen once only has confirmed
// false, and is not counted in failed. For a run that ended early, there are the error that ended it, unless that was
// Ctrl-C, the number of plans that there were, and the command that resumes it.
func (s *Summary) WriteJSON(w io.Writer) error {
	type failure struct {
		Kind      string   `json:"kind"`
		Faults    []string `json:"faults"`
		Verdict   string   `json:"verdict"`
		Cause     string   `json:"cause"`
		Message   string   `json:"message"`
		Confirmed bool     `json:"confirmed"`
		Seen      int      `json:"seen,omitempty"`     // runs of the first plan of this cause that failed so, if it was repeated,
		Runs      int      `json:"runs,omitempty"`     // of so many;
		Alone     int      `json:"alone,omitempty"`    // and runs without faults that did,
		Controls  int      `json:"controls,omitempty"` // of so many
		Replay    string   `json:"replay,omitempty"`
		Log       string   `json:"log,omitempty"`       // file
		Recording string   `json:"recording,omitempty"` // file
		Requests  []string `json:"requests"`
	}
	type write struct {
		What   string `json:"what"`
		Writes int    `json:"writes"`
		Broken int    `json:"broken"`           // how many of them, at least once
		IsRead bool   `json:"isRead,omitempty"` // lists or watches
	}
	out := struct {
		Plans       int       `json:"plans"`
		Failed      int       `json:"failed"`
		NotMet      int       `json:"notMet"` // were run without their faults
		NotRun      int       `json:"notRun"`
		Possible    int       `json:"possible,omitempty"` // plans that there are
		Writes      []write   `json:"writes,omitempty"`
		Interrupted bool      `json:"interrupted,omitempty"`
		Error       string    `json:"error,omitempty"`
		Planned     int       `json:"planned,omitempty"`
		Resume      string    `json:"resume,omitempty"`
		Seconds     float64   `json:"seconds"`
		Failures    []failure `json:"failures"`
	}{
		Plans: s.Plans, Failed: s.Failed, NotMet: s.NotMet, NotRun: s.NotRun, Seconds: s.Duration.Seconds(),
		Interrupted: s.Interrupted, Error: s.Error, Planned: s.Planned, Resume: s.Resume, Failures: []failure{},
		Possible: s.Possible,
	}
	for _, w := range s.Writes {
		out.Writes = append(out.Writes, write(w))
	}
	for _, group := range s.Failures {
		for _, p := range group.Plans {
			f := failure{Kind: p.Kind, Faults: p.Faults, Verdict: p.Verdict, Cause: p.Cause, Message: p.Message, Confirmed: group.Confirmed, Replay: p.Replay, Requests: p.Requests}
			if group.Runs > 1 {
				f.Seen, f.Runs, f.Alone, f.Controls = group.Seen, group.Runs, group.Alone, group.Controls
			}
			if p.Files != "" {
				f.Log, f.Recording = p.Files+".log", p.Files+".jsonl"
			}
			out.Failures = append(out.Failures, f)
		}
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(out)
}
