package torture

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// Which repetitions confirm a failure, and how many there are until then.
func TestUntilConfirmed(t *testing.T) {
	passed, notRun, notMet := Outcome{}, Outcome{Verdict: NotRun}, Outcome{Verdict: NoRest, NotMet: true}
	again, other, third := Outcome{Verdict: NoRest}, Outcome{Verdict: Died}, Outcome{Verdict: TooMuch}
	for name, test := range map[string]struct {
		runs      []Outcome // the last one is repeated
		tries     int
		counted   int
		confirmed bool
	}{
		"at once":                              {[]Outcome{again}, 1, 1, true},
		"in the end":                           {[]Outcome{passed, passed, again}, 3, 3, true},
		"too late":                             {[]Outcome{passed, passed, passed, again}, 3, 3, false},
		"another failure, once":                {[]Outcome{other, passed}, 3, 3, false},
		"another failure, twice":               {[]Outcome{other, passed, other}, 3, 3, true},
		"two other failures":                   {[]Outcome{other, third, passed}, 3, 3, false},
		"it could not be run, and then it was": {[]Outcome{notRun, notMet, passed, notRun, passed, again}, 6, 3, true},
		"the fault never comes":                {[]Outcome{notMet}, 6, 0, false},
		"it can never be run":                  {[]Outcome{notRun}, 6, 0, false},
		"it fails without its fault":           {[]Outcome{notMet, passed}, 4, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, 3, maxRetries, "the table is for this number")
			tries := 0
			outcomes, confirmed, err := untilConfirmed(NoRest, func() (Outcome, error) {
				tries++
				return test.runs[min(tries, len(test.runs))-1], nil
			})
			require.NoError(t, err)
			require.Equal(t, test.confirmed, confirmed)
			require.Len(t, outcomes, test.counted)
			require.Equal(t, test.tries, tries)
		})
	}
	broken := errors.New("no control plane")
	runs := 0
	outcomes, confirmed, err := untilConfirmed(NoRest, func() (Outcome, error) {
		if runs++; runs == 2 {
			return Outcome{}, broken
		}
		return passed, nil
	})
	require.ErrorIs(t, err, broken)
	require.False(t, confirmed)
	require.Len(t, outcomes, 1, "what was seen before")
}
