package plan

import (
	"slices"
	"time"

	"example.com/controllers/harness/apiproxy"
)

// kind is a kind of fault: its name, and what it does to a request.
type kind struct {
	name   string
	effect apiproxy.Effect
}

var (
	// ofAny are for any request.
	ofAny = []kind{
		{"answered 429", apiproxy.Effect{Refuse: 429, RetryAfter: time.Second}},
		{"answered 500", apiproxy.Effect{Refuse: 500}},
		{"answered 503", apiproxy.Effect{Refuse: 503}},
		{"request lost", apiproxy.Effect{Lost: apiproxy.LostRequest}},
		{"connection refused", apiproxy.Effect{Down: time.Second}},
		{"slow", apiproxy.Effect{Delay: 2 * time.Second}},
	}
	// ofWrites are for writes.
	ofWrites = []kind{
		{"answered 403", apiproxy.Effect{Refuse: 403}},
		{"answered 409", apiproxy.Effect{Refuse: 409}},
		{"reply lost", apiproxy.Effect{Lost: apiproxy.LostReply}},
		{"reply lost, 504", apiproxy.Effect{Lost: apiproxy.LostReply, Refuse: 504}},
		{"answered late", apiproxy.Effect{AnswerLate: 3 * time.Second}},
		{"killed before", apiproxy.Effect{Kill: apiproxy.Before}},
		{"killed after", apiproxy.Effect{Kill: apiproxy.After}},
		{"told to stop", apiproxy.Effect{Stop: apiproxy.Before, Delay: 500 * time.Millisecond}},
		{"control plane killed before", apiproxy.Effect{Crash: apiproxy.Before}},
		{"control plane killed after", apiproxy.Effect{Crash: apiproxy.After}},
	}
	// ofWritesOutside are for writes to what is outside of the cluster. What is done late is done before the run could
	// be taken to be at rest.
	ofWritesOutside = []kind{
		{"answered 412", apiproxy.Effect{Refuse: 412}},
		{"done late", apiproxy.Effect{Lost: apiproxy.LostLate, Delay: 300 * time.Millisecond}},
	}
	// ofWritesToMachines are for writes of a program on a machine, which fails, and for those of others to a Node, whose
	// machine fails.
	ofWritesToMachines = []kind{
		{"machine rebooted before", apiproxy.Effect{Reboot: apiproxy.Before}},
		{"machine rebooted after", apiproxy.Effect{Reboot: apiproxy.After}},
		{"power cut before", apiproxy.Effect{PowerCut: apiproxy.Before}},
		{"power cut after", apiproxy.Effect{PowerCut: apiproxy.After}},
	}
	// atEvents are for one event of a watch.
	atEvents = []kind{
		{"watch cut", apiproxy.Effect{Watch: apiproxy.WatchCut}},
		{"watch expired", apiproxy.Effect{Watch: apiproxy.WatchExpired}},
		{"unobserved", apiproxy.Effect{Watch: apiproxy.WatchUnobserved}},
	}
	// ofWatches are for a whole watch.
	ofWatches = []kind{
		{"watch late", apiproxy.Effect{Late: 2 * time.Second}},
		{"watch answered 410", apiproxy.Effect{Refuse: 410}},
	}
	// noBookmarks is for a whole watch of a class that gets any: the API server sends one each minute.
	noBookmarks = kind{"no bookmarks", apiproxy.Effect{Watch: apiproxy.WatchNoBookmarks}}
	// forAWhile are for all requests of a class.
	forAWhile = []kind{
		{"answered 500 for a while", apiproxy.Effect{Refuse: 500, For: 6 * time.Second}},
		{"answered 429 for a while", apiproxy.Effect{Refuse: 429, RetryAfter: time.Second, For: 6 * time.Second}},
	}
)

// These take so long that each is for a few requests only.
var (
	// noAnswer is for one request of each class.
	noAnswer = kind{"no answer", apiproxy.Effect{Hang: 20 * time.Second}}
	// frozen are for one write of each class.
	frozen = []kind{
		{"frozen before", apiproxy.Effect{Freeze: apiproxy.Before}},
		{"frozen after", apiproxy.Effect{Freeze: apiproxy.After}},
	}
	// frozenAlone is how long a controller is frozen that has no Lease, and so no successor.
	frozenAlone = 5 * time.Second
	// longOutage is for a first list or watch and for the first write: a client that gives up after a number of attempts does so.
	longOutage = kind{"long outage", apiproxy.Effect{Down: 45 * time.Second}}
	// leaseLost is for the renewals of Leases. It outlasts a LeaseDuration of 15 seconds.
	leaseLost = kind{"lease lost", apiproxy.Effect{Refuse: 500, For: 20 * time.Second}}
	// longPowerCuts are for one write of each class that reaches a machine. They last longer than the 50 seconds after
	// which the node lifecycle controller takes a Node without heartbeats for unreachable.
	longPowerCuts = []kind{
		{"long power cut before", apiproxy.Effect{PowerCut: apiproxy.Before, OffFor: time.Minute}},
		{"long power cut after", apiproxy.Effect{PowerCut: apiproxy.After, OffFor: time.Minute}},
	}
	// oneCacheBehind is for all watches of one resource, if the controller watches another one too.
	oneCacheBehind = kind{"one cache behind", apiproxy.Effect{Late: 5 * time.Second}}
)

// aWhileOutside is for all writes of a class to what is outside of the cluster: a right that is missing for some time, as
// when a quota is used up.
var aWhileOutside = kind{"answered 403 for a while", apiproxy.Effect{Refuse: 403, For: 6 * time.Second}}

// Kinds returns the names of all kinds of fault.
func Kinds() (names []string) {
	for _, k := range slices.Concat(ofAny, ofWrites, ofWritesOutside, ofWritesToMachines, atEvents, ofWatches, forAWhile, frozen, longPowerCuts,
		[]kind{noBookmarks, noAnswer, longOutage, leaseLost, oneCacheBehind, aWhileOutside}) {
		names = append(names, k.name)
	}
	slices.Sort(names)
	return names
}
