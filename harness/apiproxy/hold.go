package apiproxy

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"

	"example.com/controllers/harness/history"
)

// wait keeps the client waiting for a time. It returns an error if the client goes away or the proxy stops meanwhile.
func (x *exchange) wait(kind history.InjectionKind, long time.Duration) error {
	if long <= 0 {
		return nil
	}
	defer x.proxy.hold(kind)()
	select {
	case <-time.After(long):
		return nil
	case <-x.ctx.Done():
		return context.Cause(x.ctx)
	}
}

// stop asks the controller to shut down. If it cannot be asked, the request is not delayed either, as a delay is for keeping it
// in flight meanwhile.
func (x *exchange) stop() {
	if x.proxy.stop() {
		return
	}
	for _, kind := range []history.InjectionKind{history.ControllerStopped, history.Delayed} {
		x.skipKind(kind, "the controller was stopping already")
	}
	x.injection.Delay = 0
}

// freeze returns when the controller has been frozen and runs again. It returns an error if the controller was ended
// meanwhile.
func (x *exchange) freeze() error {
	defer x.proxy.hold(history.ControllerFrozen)()
	if !x.proxy.freeze(x.ctx, x.injection.FreezeFor) {
		x.skipKind(history.ControllerFrozen, "the controller was stopping, or had ended")
	}
	return context.Cause(x.ctx)
}

// failMachine makes a machine fail before or after the request, as the injection says. It returns an error if the
// controller ran on the machine.
func (x *exchange) failMachine(when string) error {
	kind := history.PowerCut
	if x.injection.Reboot == when {
		kind = history.MachineRebooted
	}
	own, done := x.proxy.failMachine(x.ctx, kind, x.injection.OffFor, x.record)
	if !done {
		x.skipKind(kind, "it was for no machine, or for one that was off or rebooting")
	}
	if own {
		return errOnPurpose
	}
	return nil
}

// hang leaves the request without an answer, until the client goes away or the connection is to break.
func (x *exchange) hang() error {
	_, _ = io.Copy(io.Discard, x.in.Body) // net/http notices that an HTTP/1 client goes away only once its body has been read
	if err := x.wait(history.NoAnswer, x.injection.Hang); err != nil {
		return err
	}
	return errOnPurpose
}

// holdReply waits as long as the client must not get the answer.
func (x *exchange) holdReply() error {
	if x.injection.Freeze == After {
		if err := x.freeze(); err != nil {
			return err
		}
	}
	if x.injection.failsMachine(After) {
		if err := x.failMachine(After); err != nil {
			return err
		}
	}
	return x.wait(history.AnsweredLate, x.injection.AnswerLate)
}

// replyLate forwards the response when the injection allows it. It reads an object at once, because what it says of
// the object may be outdated when the client gets it.
func (x *exchange) replyLate(response *http.Response) error {
	if x.isStream() {
		if err := x.holdReply(); err != nil {
			return err
		}
		return x.reply(response)
	}
	var whole bytes.Buffer
	through := newRelay(response.Body, func(data []byte) error {
		whole.Write(data)
		return nil
	})
	contentType := contentTypeOf(response)
	x.look(response, contentType, through)
	if err := through.finish(); err != nil {
		return err
	}
	if err := x.holdReply(); err != nil {
		return err
	}
	write, err := x.begin(response, contentType)
	if err != nil {
		return err
	}
	if whole.Len() == 0 { // a status such as 204 allows no body
		return nil
	}
	x.record.Received += int64(whole.Len())
	return write(whole.Bytes())
}
