package report

import (
	"encoding/xml"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWriteJUnit(t *testing.T) {
	s := &Summary{Scenario: "shop.yaml", Plans: 9, Duration: 1500 * time.Millisecond, Kinds: []Kind{
		{Name: "answered 500", Plans: 3, Passed: 2, Failed: []Count{{"change lost", 1}}}, {Name: "slow", Plans: 2, NotMet: 2},
		{Name: "watch cut", Plans: 2, NotRun: 1, NotMet: 1}, {Name: "killed after", Plans: 2, NotRun: 1, Passed: 1},
	}, Failures: []Failure{
		{Verdict: "change lost", Cause: "web", Message: `Pod "web" & <more>`, Confirmed: true, Kinds: []string{"answered 500"}, Plans: []Plan{{Kind: "answered 500", Replay: "workshop torture"}}, Seen: 2, Runs: 2},
		{Verdict: "died", Cause: "exit status 1", Message: "it exited", Plans: []Plan{{}}},
	}}
	write := func() string {
		var text strings.Builder
		require.NoError(t, s.WriteJUnit(&text))
		require.NoError(t, xml.Unmarshal([]byte(text.String()), new(junitSuite)))
		return text.String()
	}
	require.Equal(t, `<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="torture shop.yaml" tests="5" failures="1" errors="1" skipped="1" time="1.500">
  <testcase classname="torture.failures" name="change lost: web">
    <failure message="Pod &#34;web&#34; &amp; &lt;more&gt;" type="change lost">&#xA;   1 plan: answered 500, which failed like this in 2 of 2 runs&#xA;   replay: workshop torture&#xA;</failure>
  </testcase>
  <testcase classname="torture.faults" name="answered 500"></testcase>
  <testcase classname="torture.faults" name="slow">
    <skipped message="the fault did not come in 2 plans"></skipped>
  </testcase>
  <testcase classname="torture.faults" name="watch cut">
    <error message="1 plan could not be run"></error>
  </testcase>
  <testcase classname="torture.faults" name="killed after"></testcase>
</testsuite>
`, write())
	s.Error, s.Planned = "no space left on device", 40
	require.Contains(t, write(), `<error message="ended by an error: 9 of 40 plans were run, 0 failed; 2s">no space left on device</error>`)
}
