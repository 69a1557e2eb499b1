package report

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/torture/plan"
)

func TestCoverage(t *testing.T) {
	for name, c := range map[string]struct {
		summary Summary
		want    []string
	}{
		"nothing is known": {Summary{Plans: 3}, nil},
		"all plans":        {Summary{Plans: 3, Possible: 3, Writes: []plan.Broken{{What: "delete pods", Writes: 2, Broken: 2}}}, []string{"Each of the controller's writes was broken at least once."}},
		"some": {Summary{Plans: 3, Possible: 40, Writes: []plan.Broken{{What: "create events", Writes: 4}, {What: "delete pods", Writes: 3, Broken: 1}}}, []string{
			"There are 40 plans; 37 were not run.",
			"Writes that were broken at least once: delete pods (1 of 3).",
			"Writes that were never broken, of which nothing is known: create events (4).",
		}},
		"reads": {Summary{Plans: 3, Writes: []plan.Broken{{What: "list nodes", Writes: 2, IsRead: true}, {What: "list pods", Writes: 2, Broken: 1, IsRead: true}}}, []string{
			"Reads that were never broken: list nodes.",
		}},
		"no write": {Summary{Plans: 3, Writes: []plan.Broken{{What: "delete pods", Writes: 3}}}, []string{
			"Writes that were never broken, of which nothing is known: delete pods (3).",
		}},
	} {
		require.Equal(t, c.want, c.summary.Coverage(), name)
	}
	var text strings.Builder
	require.NoError(t, (&Summary{Plans: 3, Possible: 40}).WriteText(&text))
	require.Contains(t, text.String(), "\nThere are 40 plans; 37 were not run.\n\n3 plans, 0 failed; 0s\n")
	text.Reset()
	require.NoError(t, (&Summary{Possible: 40, Writes: []plan.Broken{{What: "delete pods", Writes: 3, Broken: 1}}}).WriteJSON(&text))
	require.Contains(t, text.String(), `"possible": 40`)
	require.Contains(t, text.String(), `"what": "delete pods"`)
}
