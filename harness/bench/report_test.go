package main

import (
	"strings"
	"testing"
)

func TestProxyRowsCompareDirectAndProxied(t *testing.T) {
	// Most pairs differ by half a millisecond; the medians of the two paths differ by something else.
	times := []pair{{0.001, 0.0015}, {0.002, 0.0025}, {0.010, 0.004}, {0.004, 0.0045}}
	var out strings.Builder
	latencyRow(&out, "GET", times)
	if got, want := out.String(), "GET\t3.00 ms (10.00 ms)\t3.25 ms (4.50 ms)\t0.50 ms\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	out.Reset()
	throughputRow(&out, "JSON", []pair{{1, 2}, {1, 4}, {2, 2}}, 100)
	if got, want := out.String(), "JSON\t100 (50 – 100)\t50 (25 – 50)\t50 %\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSummarizeReturnsMedianAndRange(t *testing.T) {
	for _, test := range []struct {
		name    string
		numbers []float64
		want    summary
	}{
		{"one", []float64{3}, summary{median: 3, min: 3, max: 3}},
		{"two: halfway between them", []float64{4, 1}, summary{median: 2.5, min: 1, max: 4}},
		{"odd: the middle one, whatever the order", []float64{9, 1, 5}, summary{median: 5, min: 1, max: 9}},
		{"even: halfway between the middle two", []float64{8, 2, 100, 4}, summary{median: 6, min: 2, max: 100}},
		{"equal ones", []float64{7, 7, 7}, summary{median: 7, min: 7, max: 7}},
	} {
		t.Run(test.name, func(t *testing.T) {
			given := append([]float64(nil), test.numbers...)
			if got := summarize(given); got != test.want {
				t.Errorf("summarize(%v) = %+v, want %+v", test.numbers, got, test.want)
			}
			for i := range given {
				if given[i] != test.numbers[i] {
					t.Errorf("summarize changed its argument to %v", given)
					break
				}
			}
		})
	}
}
