package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/apiproxy"
)

func TestCoverage(t *testing.T) {
	fault := func(text string) Plan {
		f, err := apiproxy.ParseFault(text)
		require.NoError(t, err)
		return Plan{Faults: []apiproxy.Fault{f}}
	}
	w := World{Baseline: job()}
	for name, c := range map[string]struct {
		plans []Plan
		want  int
	}{
		"nothing":                   {nil, 0},
		"one":                       {[]Plan{fault("verb=delete,resource=pods,nth=2,refuse=500")}, 1},
		"the same one, twice":       {[]Plan{fault("verb=delete,resource=pods,nth=2,refuse=500"), fault("verb=delete,resource=pods,nth=2,lost=reply")}, 1},
		"a range":                   {[]Plan{fault("verb=delete,resource=pods,nth=7-,refuse=500,for=6s")}, 1},
		"more than there are":       {[]Plan{fault("verb=delete,resource=pods,nth=9,refuse=500")}, 0},
		"all":                       {[]Plan{fault("verb=delete,resource=pods,lost=reply")}, 1},
		"a read":                    {[]Plan{fault("verb=list,resource=pods,nth=1,refuse=500")}, 0},
		"one of two faults":         {[]Plan{{Faults: append(fault("verb=list,resource=pods,delay=1s").Faults, fault("verb=delete,resource=pods,nth=3,kill=after").Faults...)}}, 1},
		"with the core group":       {[]Plan{fault("verb=delete,group=core,resource=pods,nth=3,kill=after")}, 1},
		"of no subresource":         {[]Plan{fault("verb=delete,resource=pods,subresource=none,nth=3,kill=after")}, 1},
		"of a subresource it lacks": {[]Plan{fault("verb=delete,resource=pods,subresource=status,nth=3,kill=after")}, 0},
	} {
		require.Contains(t, w.Coverage(c.plans), Broken{"delete pods", 8, c.want, false}, name)
	}
	require.Contains(t, w.Coverage([]Plan{fault("verb=list,resource=pods,nth=1,refuse=500")}), Broken{"list pods", 1, 1, true})
	w.Resources = []string{"events"}
	require.Contains(t, w.Coverage(nil), Broken{"create events", 1, 0, false})
	for _, b := range w.Coverage(Possible(w)) {
		require.Equal(t, b.Writes, b.Broken, "all plans break everything: %s", b.What)
	}
}
