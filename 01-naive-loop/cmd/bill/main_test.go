package main

import "testing"

func TestPerIteration(t *testing.T) {
	marker, lists := request{"GET", "configmaps"}, request{"LIST", "nodes"}
	sample := func(iterations, count, bytes float64) map[request]usage {
		return map[request]usage{marker: {count: iterations}, lists: {count, bytes}}
	}
	for _, test := range []struct {
		name    string
		samples []map[request]usage
		want    usage
	}{
		{"one a time", []map[request]usage{sample(1, 1, 10), sample(2, 2, 20)}, usage{1, 10}},
		{"none", []map[request]usage{sample(1, 7, 70), sample(2, 7, 70), sample(3, 7, 70)}, usage{0, 0}},
		{"another client's requests in one iteration", []map[request]usage{sample(1, 1, 10), sample(2, 6, 500), sample(3, 7, 510), sample(4, 8, 520)}, usage{1, 10}},
		{"a sample in the middle of an iteration", []map[request]usage{sample(1, 0, 0), sample(2, 2, 20), sample(3, 3, 30), sample(4, 4, 40)}, usage{1, 10}},
		{"each second sample in the middle of an iteration", []map[request]usage{sample(1, 1, 10), sample(2, 1, 10), sample(3, 3, 30), sample(4, 3, 30), sample(5, 5, 50), sample(6, 5, 50)}, usage{1, 10}},
		{"two iterations between samples", []map[request]usage{sample(1, 1, 10), sample(3, 3, 30)}, usage{1, 10}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := perIteration(test.samples, marker, lists); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
