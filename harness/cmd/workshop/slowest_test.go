package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSlowest(t *testing.T) {
	const events = `
{"Action":"start","Package":"example.com/shop/test"}
{"Action":"run","Package":"example.com/shop/test","Test":"TestFast"}
{"Action":"pass","Package":"example.com/shop/test","Test":"TestFast","Elapsed":0.25}
{"Action":"pass","Package":"example.com/shop/test","Test":"TestSlow/part","Elapsed":11.9}
{"Action":"fail","Package":"example.com/shop/test","Test":"TestSlow","Elapsed":12}
{"Action":"skip","Package":"example.com/shop/test","Test":"TestLeftOut","Elapsed":0}
{"Action":"fail","Package":"example.com/shop/test","Elapsed":12.3}
{"Action":"pass","Package":"example.com/shop","Test":"TestOfTheCache","Elapsed":99}
{"Action":"output","Package":"example.com/shop","Output":"ok  \texample.com/shop\t(cached)\n"}
{"Action":"pass","Package":"example.com/shop","Elapsed":0}
`
	write := func(s summary, files ...string) string {
		t.Helper()
		var results results
		for _, events := range files {
			require.NoError(t, results.read(strings.NewReader(events)))
		}
		var out strings.Builder
		require.NoError(t, s.write(&out, &results))
		return out.String()
	}
	require.Equal(t, "\nThe slowest tests:\n  12.0s  shop/test TestSlow\n   0.2s  shop/test TestFast\n\n3 passed, 1 failed, 1 skipped\n", write(summary{slowest: 10}, events))
	require.NotContains(t, write(summary{slowest: 1}, events), "TestFast")
	require.Equal(t, "\n0 passed, 0 failed, 0 skipped\n", write(summary{slowest: 10}, ""))
	require.ErrorContains(t, new(results).read(strings.NewReader("no JSON")), "read the results of the tests: ")

	// The two parts of make test-all.
	const second = `
{"Action":"skip","Package":"example.com/shop/test","Test":"TestFast","Elapsed":0}
{"Action":"pass","Package":"example.com/shop/test","Test":"TestSlow","Elapsed":3}
{"Action":"output","Package":"example.com/shop/test","Test":"TestLater","Output":"    x_test.go:3: left to make test-all: it is long\n"}
{"Action":"skip","Package":"example.com/shop/test","Test":"TestLater","Elapsed":0}
`
	require.Equal(t, "\nThe slowest tests:\n  12.0s  shop/test TestSlow\n   0.2s  shop/test TestFast\n\nRun: this.\n"+
		"Left to make test-all: that; 1 test of the packages that were run.\n\n3 passed, 1 failed, 2 skipped\n",
		write(summary{slowest: 10, ran: "this", left: "that"}, events, second))
	const third = `{"Action":"pass","Package":"example.com/shop/test","Test":"TestLater","Elapsed":1}`
	require.Contains(t, write(summary{left: "that"}, second, third), "that; 0 tests")
	require.Contains(t, write(summary{left: "that"}, third, second), "that; 0 tests")

	lost := func(files ...string) error {
		var results results
		for _, events := range files {
			require.NoError(t, results.read(strings.NewReader(events)))
		}
		return results.requireNoneLost()
	}
	const once = `
{"Action":"output","Package":"example.com/shop/test","Test":"TestLater","Output":"    x_test.go:3: make test has run it\n"}
{"Action":"skip","Package":"example.com/shop/test","Test":"TestLater","Elapsed":0}
`
	const elsewhere = `
{"Action":"output","Package":"example.com/shop/test","Test":"TestLater","Output":"    x_test.go:3: there is no Docker\n"}
{"Action":"skip","Package":"example.com/shop/test","Test":"TestLater","Elapsed":0}
`
	require.NoError(t, lost(events, third))
	require.NoError(t, lost(second, third))
	require.NoError(t, lost(third, once))
	require.NoError(t, lost(elsewhere), "nobody was to run it instead")
	require.ErrorContains(t, lost(second, once), "neither make test nor make test-rest has run example.com/shop/test TestLater")
	require.Error(t, lost(events, once))
	require.Error(t, lost(second, elsewhere))
}
