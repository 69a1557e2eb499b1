package apiproxy

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// FaultUsage explains the text of a fault, for the help of a command. It leaves out the effects that only a program
// can use: those of [ProgramFaultUsage] call functions in [Options], and watch=held lasts until [Proxy.Release].
const FaultUsage = `A fault is a list of KEY=VALUE, separated by commas. These keys choose the requests that
it applies to; without any of them, it applies to all:

  verb=VERB           get, list, watch, create, update, patch, delete or deletecollection
  group=, resource=, subresource=, namespace=, name=
                      group=core: only the core group, such as Pods; without group=,
                      resources of that name in any group; subresource=none: the resource
                      itself, and none of its subresources
  agent=PREFIX        how the User-Agent header begins
  program=NAME        only of this program, where a scenario has several
  nth=N               of the requests that match, only number N; also 1-6, or 3-

These say what happens to a request; give at least one:

  refuse=STATUS       it is not sent on, and answered with this HTTP status; for 429 and
                      5xx, retry-after=DURATION tells the client when to try again; 409 is
                      a Conflict, for creates too
  lost=request        it is not sent on, and the connection breaks
  lost=reply          it is sent on, and the connection breaks instead of an answer; with
                      refuse=504, the client is told of a timeout instead
  lost=late           the connection breaks, and it is sent on after delay=DURATION
  delay=DURATION      it is sent on after a delay
  answer-late=DURATION
                      it is sent on at once, and the answer reaches the client that much later
  hang=DURATION       it is not sent on, and gets no answer; after that time, the connection
                      breaks
  down=DURATION       all connections break, and no client can connect for that long
  late=DURATION       each event of the watch reaches the client that much later
  watch=cut           the watch breaks off before its event number N, given as event=N
                      (default 1; bookmarks do not count)
  watch=expired       at that event the watch ends with 410 Gone, as if the client's
                      resourceVersion were too old
  watch=unobserved    that event is left out once the object's next event has come; if none
                      comes within 2s, it is not left out
  watch=no-bookmarks  the watch gets no bookmarks

late and watch need verb=watch. for=DURATION ends the fault that long after the first
request that it applied to. A DURATION is a number with a unit, such as 500ms or 2s.`

// ProgramFaultUsage explains those effects that [FaultUsage] leaves out, for the help of a command that can run programs.
const ProgramFaultUsage = `These happen to a program at a request that it sends: before that is sent on, or after the
API server has answered it.

  kill=before|after   SIGKILL; then the program is started again
  stop=before         SIGTERM, while the request is on its way; then it is started again
  freeze=before|after SIGSTOP, and SIGCONT after freeze-for=DURATION (default 20s)
  crash=before|after  the API server and etcd are killed, and come back
  reboot=before|after
  power-cut=before|after
                      its machine reboots, or loses its power, and is off for off-for=DURATION;
                      for scenarios with machines`

// ParseFault reads a fault from text such as "verb=delete,resource=pods,nth=2,refuse=500" or
// "verb=watch,resource=pods,watch=cut,event=3". The keys are the fields of [Match] and [Effect] in lower case, with
// retry-after for RetryAfter, and nth for From and To: a number, a range such as 1-6, or one without an end such as
// 3-. See [FaultUsage].
func ParseFault(text string) (Fault, error) {
	f, err := parseFault(text)
	if err != nil {
		return Fault{}, fmt.Errorf("fault %q: %w", text, err)
	}
	return f, nil
}

func parseFault(text string) (Fault, error) {
	var f Fault
	given := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok || value == "" {
			return f, fmt.Errorf("%q is not of the form key=value", part)
		}
		if given[name] {
			return f, fmt.Errorf("%s is given twice", name)
		}
		given[name] = true
		if err := f.set(name, value); err != nil {
			return f, err
		}
	}
	return f, f.check()
}

func (f *Fault) set(name, value string) error {
	var names []string
	for _, k := range keys {
		if k.name == name {
			return k.parse(f, value)
		}
		names = append(names, k.name)
	}
	return fmt.Errorf("there is no key %q; the keys are %s", name, strings.Join(names, ", "))
}

// String returns the text that [ParseFault] reads.
func (f Fault) String() string {
	var parts []string
	for _, k := range keys {
		if value := k.text(f); value != "" {
			parts = append(parts, k.name+"="+value)
		}
	}
	return strings.Join(parts, ",")
}

// check says what is wrong with a fault: first with each field by itself, then with their combination.
func (f Fault) check() error {
	hasEffect := false
	for _, k := range keys {
		if k.check != nil {
			if err := k.check(f); err != nil {
				return err
			}
		}
		value := k.text(f)
		if value != "" && k.onEvents && f.Verb != "watch" {
			return fmt.Errorf("%s=%s is for watches; add verb=watch", k.name, value)
		}
		hasEffect = hasEffect || k.combine != nil && value != ""
	}
	switch {
	case !hasEffect:
		return errors.New("it does not say what is to go wrong; give one of refuse=STATUS, delay=DURATION, " +
			"answer-late=DURATION, hang=DURATION, late=DURATION, down=DURATION, lost=request, reply or late, watch=cut, expired, unobserved or no-bookmarks")
	case (f.Lost == LostReply || f.Lost == LostLate) && f.Verb == "watch":
		return fmt.Errorf("lost=%s is not for watches; give lost=request or watch=cut", f.Lost)
	case (f.Lost == LostRequest || f.Lost == LostLate) && f.Refuse != 0:
		return fmt.Errorf("with lost=%s there is no answer; remove refuse, or give lost=reply", f.Lost)
	case f.AnswerLate != 0 && f.Verb == "watch":
		return errors.New("answer-late is not for watches; give delay=DURATION, or late=DURATION for the events")
	case f.Hang != 0 && f.Refuse != 0:
		return errors.New("with hang there is no answer; remove refuse")
	case f.FreezeFor != 0 && f.Freeze == "":
		return errors.New("freeze-for is how long the controller is frozen; add freeze=before or freeze=after")
	case f.OffFor != 0 && f.Reboot == "" && f.PowerCut == "":
		return errors.New("off-for is how long the machine is off; add reboot or power-cut, with before or after")
	case f.RetryAfter != 0 && f.Refuse != http.StatusTooManyRequests && f.Refuse < 500:
		return errors.New("retry-after is for refusals with 429 or 5xx")
	}
	return nil
}
