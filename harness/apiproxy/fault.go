package apiproxy

import (
	"cmp"
	"strings"
	"time"

	"example.com/controllers/harness/history"
)

// Fault is something that goes wrong on purpose: an Effect on the requests that Match. Several faults may
// apply to the same request. Then their delays (Delay, AnswerLate) add up, the longest Late, Down and Hang count, and
// of every other effect the first fault that has it counts.
type Fault struct {
	Match
	Effect
}

// Match says which requests a fault is for.
type Match struct {
	// These are compared with the fields of a [history.Request]; "" matches any request. Name is the name in the
	// request's path, which has none in a create. Agent is a prefix of the User-Agent. Group may be CoreGroup, and
	// Subresource may be NoSubresource.
	Verb, Group, Resource, Subresource, Namespace, Name, Agent string

	// Program is the program whose requests are meant, where each of several programs has a proxy of its own, as in
	// package torture. A proxy does not know the names of programs, and refuses a fault that has one.
	Program string

	// From and To choose by number among the requests that match all of the above: both are inclusive, and the
	// requests are numbered from 1 as they arrive. From 0 means from the first; To 0 means without end.
	From, To int
}

// Effect is what a fault does to a request. The fields that name an effect of their own (Refuse, Delay, AnswerLate,
// Late, Hang, Lost, Down, Kill, Crash, Stop, Freeze, Reboot, PowerCut, Watch) may be combined.
type Effect struct {
	// Refuse is the HTTP status, 400 to 599, that the proxy answers with, together with a matching Status object.
	// The request does not reach the API server, unless Lost is LostReply. The reason of a 409 is Conflict, also
	// for a create: AlreadyExists would tell the client that the object exists.
	Refuse int
	// RetryAfter is the Retry-After header of a refusal with 429 or 5xx, rounded up to whole seconds. Without it,
	// client-go does not retry by itself.
	RetryAfter time.Duration

	// Delay is how long the proxy waits before it sends the request on.
	Delay time.Duration

	// AnswerLate is how long the proxy holds the answer back. The API server has carried the request out by then, and
	// the client's watches may show the change before the client gets the answer.
	AnswerLate time.Duration

	// Hang is how long the proxy leaves the request without an answer, or until the client gives up. Then the
	// connection breaks. The API server does not get the request.
	Hang time.Duration

	// Late is how long the proxy holds back each event of a watch. Events keep their order.
	Late time.Duration

	// Lost is what gets lost: LostRequest, LostReply or LostLate. The client sees its connection break, and cannot
	// tell which of them it was. LostReply with Refuse does not break the connection but answers with that status:
	// with 504, the client is told of a timeout although the API server has done what it was asked.
	Lost string

	// Down is for how long no client can connect. All connections break when the request arrives, its own included,
	// and the API server does not get the request.
	Down time.Duration

	// Kill and Crash call Options.Kill, which kills the controller, and Options.Crash, which kills the control
	// plane: Before the request is sent on, or After the API server has answered it. Either way the client gets no
	// answer.
	Kill, Crash string

	// Stop calls Options.Stop, which asks the controller to shut down, Before the request is sent on. The request
	// goes on: a controller that is asked to stop should finish its in-flight work.
	Stop string

	// Freeze calls Options.Freeze, which stops the controller's process with SIGSTOP and lets it continue after
	// FreezeFor: Before the request is sent on, or After the API server has answered it. The request or the answer waits
	// until the process runs again. FreezeFor 0 means DefaultFreeze.
	Freeze    string
	FreezeFor time.Duration

	// Reboot and PowerCut call Options.FailMachine, which reboots a machine or cuts its power: Before the request is sent
	// on, or After the API server has answered it. If the controller runs on that machine, it gets no answer. The machine
	// boots after OffFor; 0 leaves that to FailMachine.
	Reboot, PowerCut string
	OffFor           time.Duration

	// For is how long the fault lasts, from the first request that it applies to; 0 means without end.
	For time.Duration

	// Watch is what happens to a watch: one of the Watch constants. Event is the number of the event at which it
	// happens, from 1; 0 means the first. Bookmarks do not count, because the API server sends them when it likes.
	Watch string
	Event int
}

// CoreGroup is the value of Match.Group for requests for resources of the core group, such as Pods, whose own name is "".
const CoreGroup = "core"

// NoSubresource is the value of Match.Subresource for requests that are not for a subresource: for Deployments, say, and
// not for their status.
const NoSubresource = "none"

// DefaultFreeze is longer than the Lease of a leader: 15 seconds, unless the controller sets another LeaseDuration.
const DefaultFreeze = 20 * time.Second

// The values of Effect.Lost, Kill, Crash, Stop, Freeze, Reboot, PowerCut and Watch; "" means no such effect.
const (
	LostRequest = "request" // the API server does not get the request
	LostReply   = "reply"   // the API server does what it was asked, and the client does not get the answer
	LostLate    = "late"    // the API server gets the request Delay after the client's connection broke

	Before = "before"
	After  = "after"

	WatchCut         = "cut"          // the watch breaks off before the event
	WatchExpired     = "expired"      // the client gets an ERROR event, 410 Gone, in place of the event, and the watch ends
	WatchUnobserved  = "unobserved"   // the event and all after it are held back until the object's next event replaces it
	WatchHeld        = "held"         // the event and all after it are held back until Proxy.Release
	WatchNoBookmarks = "no-bookmarks" // bookmarks are left out, except the one that ends the initial events
)

// Matches says whether a request is one of those that the fault is for, apart from its number and its program.
func (m Match) Matches(r history.Request) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	return is(m.Verb, r.Verb) && is(m.Group, groupOf(r)) && is(m.Resource, r.Resource) && is(m.Subresource, cmp.Or(r.Subresource, NoSubresource)) &&
		is(m.Namespace, r.Namespace) && is(m.Name, r.Name) && strings.HasPrefix(r.Agent, m.Agent)
}

// groupOf returns the group of a request as Match.Group has it; "" if the request is not for a resource.
func groupOf(r history.Request) string {
	if r.Group == "" && r.Resource != "" {
		return CoreGroup
	}
	return r.Group
}

// includes says whether From and To include the request with that number.
func (m Match) includes(number int64) bool {
	return number >= int64(m.From) && (m.To == 0 || number <= int64(m.To))
}
