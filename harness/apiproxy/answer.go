package apiproxy

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"

	"example.com/controllers/harness/history"
)

// reply forwards the response to the client.
func (x *exchange) reply(response *http.Response) error {
	contentType := contentTypeOf(response)
	isWatch := x.record.Verb == "watch" && response.StatusCode == http.StatusOK
	if !isWatch {
		x.skip(history.Injection.IsOnEvents, fmt.Sprintf("the watch was answered %d", response.StatusCode))
	}
	if isWatch {
		x.record.Open, x.record.Duration = true, time.Since(x.record.Start)
		x.proxy.recordRequest(&x.record)
		x.record.Open = false
	}
	write, err := x.begin(response, contentType)
	if err != nil {
		return err
	}
	if isWatch && x.injection.editsWatch() {
		return x.edit(response, contentType, write)
	}
	if isWatch {
		return x.watch(response, contentType, write)
	}

	through := newRelay(response.Body, func(data []byte) error {
		x.record.Received += int64(len(data))
		return write(data)
	})
	x.look(response, contentType, through)
	if err := through.finish(); err != nil {
		_ = http.NewResponseController(x.writer).Flush() // of the headers, if nothing came after them
		return err
	}
	return nil
}

// contentTypeOf returns the content type of a response without its parameters, in lower case; "" if it has none or is wrong.
func contentTypeOf(response *http.Response) string {
	text := response.Header.Get("Content-Type")
	if text == "application/json" {
		return text // nearly always; parsing makes a map
	}
	contentType, _, _ := mime.ParseMediaType(text)
	return contentType
}

// begin forwards the status and the headers of the response, and returns a function that forwards its body.
//
// The client gets the headers at once, and each part of the body when it comes. Only if the response is an object of known length
// does it get the headers with the first part, and the last part when the handler returns, after it has been recorded: without
// these flushes, a request takes some 30 µs less.
func (x *exchange) begin(response *http.Response, contentType string) (write func([]byte) error, err error) {
	header := x.writer.Header()
	for name, values := range response.Header {
		header[name] = values
	}
	dropHopByHop(header)
	x.writer.WriteHeader(response.StatusCode)
	flush := http.NewResponseController(x.writer).Flush
	left := int64(-1) // how many bytes of the object are still to come; negative if unknown
	switch {
	case response.ContentLength == 0: // without a flush, net/http does not add a Content-Length
	case response.ContentLength > 0 && x.hasObject(contentType) && !x.isStream(): // a stream may be held back on purpose
		left = response.ContentLength
	case flush() != nil:
		return nil, errClientGone
	}
	return func(data []byte) error {
		if _, err := x.writer.Write(data); err != nil {
			return errClientGone
		}
		if left -= int64(len(data)); left != 0 && flush() != nil || x.ctx.Err() != nil {
			return errClientGone
		}
		return nil
	}, nil
}

// lose reads the response to its end without forwarding it, or of a stream, which may have no end, nothing. The record has the
// status of the API server.
func (x *exchange) lose(response *http.Response) error {
	x.skip(history.Injection.IsOnEvents, "the client did not get the watch")
	if x.isStream() {
		response.Body.Close()
	} else {
		through := newRelay(response.Body, func(data []byte) error {
			x.record.Received += int64(len(data))
			return nil
		})
		x.look(response, contentTypeOf(response), through)
		if err := through.finish(); err != nil {
			return err
		}
	}
	if err := x.holdReply(); err != nil {
		return err
	}
	switch {
	case x.injection.Kill == After:
		x.proxy.kill()
	case x.injection.Crash == After:
		x.proxy.crash()
	case x.injection.Refuse != 0:
		status, received := x.record.Status, x.record.Received
		err := x.refuse()
		x.record.Status, x.record.Received = status, received
		x.record.Error = fmt.Sprintf("the client was answered %d", x.injection.Refuse)
		return err
	}
	return errOnPurpose
}

// Refused is how the message of an answer begins with which the proxy refuses a request on purpose.
const Refused = "refused on purpose by the workshop's proxy"

// refuse answers the client as the API server would refuse a request. What is outside of the cluster never gives the same
// answer twice.
func (x *exchange) refuse() error {
	f := x.injection.refusedBy
	retry := int((f.RetryAfter + time.Second - 1) / time.Second)
	status := apierrors.NewGenericServerResponse(f.Refuse, x.in.Method,
		schema.GroupResource{Group: x.record.Group, Resource: x.record.Resource}, x.record.Name, "", retry, false).Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	switch f.Refuse {
	case http.StatusGone:
		status.Reason = metav1.StatusReasonExpired // clients look at it before they list again
	case http.StatusConflict:
		status.Reason = metav1.StatusReasonConflict // for a create too, whose object does not exist
	}
	status.Message = fmt.Sprintf("%s (%s): %s", Refused, f, status.Message)
	if x.proxy.outside != "" {
		// Cloud APIs name the request in their errors. A controller that copies the text into a status writes without end.
		status.Message += fmt.Sprintf(" (request req-%s)", uuid.NewUUID())
	}
	body, err := json.Marshal(status)
	if err != nil {
		return err
	}
	x.record.Status = f.Refuse
	x.record.Received = int64(len(body))
	header := x.writer.Header()
	header.Set("Content-Type", "application/json")
	if retry > 0 {
		header.Set("Retry-After", strconv.Itoa(retry))
	}
	x.writer.WriteHeader(f.Refuse)
	_, err = x.writer.Write(body)
	return err
}
