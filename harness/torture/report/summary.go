// Package report prints what torture has found: as text for a terminal, or as JSON. Package reporthtml prints it as a page.
//
// All of them print a [Summary], which is data: it has been decided what counts, and what is told of it.
package report

import (
	"fmt"
	"time"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/torture/plan"
)

// Summary is what a report says.
type Summary struct {
	Scenario string // its file, or ""
	Kinds    []Kind // sorted by Name
	Plans    int    // that were run, or could not be
	Failed   int    // failures of plans that are confirmed
	NotMet   int    // plans that were run without their faults
	NotRun   int    // plans that could not be run
	Possible int    // how many plans there are; 0 if it was said which to run
	Runs     int    // how many runs these plans took, some of which they shared; 0 if that is not known
	// Writes are the controller's, and how many of them were broken by the plans that were run; nil if that is not known.
	Writes   []plan.Broken
	Duration time.Duration

	Failures    []Failure // those that are confirmed first, each part sorted by how many plans have failed so
	Undisturbed *Example  // plans whose fault did not come, and that failed all the same; nil if there are none
	CouldNotRun *Example  // plans that could not be run; nil if there are none
	Notes       []Note    // what was unusual and may be right
	Dir         string    // of the logs and recordings of the plans that failed; "" if there are none
	// Baseline is the recording of the first run without faults; nil if there is none.
	Baseline *history.History

	// Of a run that did not come to its end:
	Interrupted bool   // by Ctrl-C
	Error       string // of torture's own that has ended it; "" for none
	Planned     int    // how many plans there were, with those that have not been run; 0 if unknown
	Resume      string // the command that runs these; "" if there is none
}

// EndedEarly reports whether the run did not come to its end.
func (s *Summary) EndedEarly() bool { return s.Interrupted || s.Error != "" }

// Kind is how the plans of one kind went.
type Kind struct {
	Name                          string
	Plans, Passed, NotMet, NotRun int
	Failed                        []Count // by verdict, the most telling first
}

// Count is how many plans had a verdict.
type Count struct {
	Verdict string
	Plans   int
}

// Failure is a way in which the controller failed.
type Failure struct {
	Verdict   string
	Cause     string // what identifies it
	Message   string // what went wrong in the first of Plans
	Confirmed bool   // it came again; if not, it does not count
	Kinds     []string
	Plans     []Plan // that failed so
	// Seen and Runs are in how many runs of the first of Plans the controller failed so, and how many there were.
	Seen, Runs int
	// Alone and Controls are in how many runs without faults it failed so, and how many there were beside the others; 0 if there were none.
	Alone, Controls int
	ComesAnyway     bool // it fails about as often without the fault
	NotCompared     bool // the end came before it could be seen how often it fails without the fault
	// Behind are sentences about what the controller did not know when it wrote, before it failed.
	Behind []string
	Run    *history.History // the recording of the first of Plans
	Failed time.Time        // when the step began in which it failed; zero if unknown
}

// Plan is a plan that failed, and where to look.
type Plan struct {
	Kind     string
	Faults   []string // in the syntax of --fault
	Verdict  string
	Cause    string
	Message  string
	Requests []string // the lines of a table of those requests that tell the failure
	Replay   string   // the command that runs the plan again; "" for none
	Files    string   // the path of its log and recording, without extension; "" for none
	View     string   // the command that draws its recording; "" for none
}

// Example is how many plans there are of a kind, and the first of them.
type Example struct {
	Plans int
	First Plan
}

// Note is something unusual, and in how many plans it was seen.
type Note struct {
	Text  string
	Plans int
}

// count is a number with its noun.
func count(n int, singular, plural string) string {
	if n == 1 {
		return "1 " + singular
	}
	return fmt.Sprintf("%d %s", n, plural)
}
