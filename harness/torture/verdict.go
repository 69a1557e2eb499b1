package torture

import (
	"regexp"
	"strings"

	"example.com/controllers/harness/apiproxy"
)

// Verdict names a way in which a controller can fail a plan. It is "" for one that passes.
type Verdict string

// The verdicts. [Verdicts] lists those that are about the controller.
const (
	Passed     Verdict = ""
	Died       Verdict = "died"
	NoStop     Verdict = "does not stop"
	Lost       Verdict = "change lost"
	Different  Verdict = "ends differently"
	RuleBroken Verdict = "rule broken"
	TooMuch    Verdict = "did too much"
	TooLittle  Verdict = "did too little"
	NoRest     Verdict = "does not come to rest"
	// NotRun is for a plan that could not be run, which says nothing about the controller.
	NotRun Verdict = "could not be run"
)

// Verdicts are the verdicts on a controller, the most telling first.
var Verdicts = []Verdict{Died, NoStop, Lost, Different, RuleBroken, TooMuch, TooLittle, NoRest}

// Failure says what a controller did wrong in a run.
type Failure struct {
	Verdict Verdict
	// Cause identifies what went wrong: failures with the same verdict and the same cause are reported together. It
	// has no generated names, counts or times in it.
	Cause string
	// Message says what went wrong in this run.
	Message string
}

func (f *Failure) Error() string { return string(f.Verdict) + ": " + f.Message }

// volatile is what differs between two runs in the output of the same program.
var volatile = regexp.MustCompile(`0x[0-9a-f]+|[0-9a-z]*[0-9][0-9a-z]*`)

// causeOfOutput identifies a line that a controller has printed. The error of a request that was refused on purpose names the request, and
// the same mistake may be made at each.
func causeOfOutput(line string) string {
	line, _, _ = strings.Cut(line, apiproxy.Refused)
	return volatile.ReplaceAllString(line, "#")
}
