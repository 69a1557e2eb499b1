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
	var out strings.Builder
	require.NoError(t, writeSlowest(&out, strings.NewReader(events), 10))
	require.Equal(t, "\nThe slowest tests:\n  12.0s  shop/test TestSlow\n   0.2s  shop/test TestFast\n\n3 passed, 1 failed, 1 skipped\n", out.String())
	out.Reset()
	require.NoError(t, writeSlowest(&out, strings.NewReader(events), 1))
	require.NotContains(t, out.String(), "TestFast")
	out.Reset()
	require.NoError(t, writeSlowest(&out, strings.NewReader(""), 10))
	require.Equal(t, "\n0 passed, 0 failed, 0 skipped\n", out.String())
	require.ErrorContains(t, writeSlowest(&out, strings.NewReader("no JSON"), 10), "read the results of the tests: ")
}
