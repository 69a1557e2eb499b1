package check

import (
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr/funcr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// maxLog is how many log messages a timeline has. A controller may log without end.
const maxLog = 200

// log makes what the controller and client-go log a part of the timeline.
func (w *World) log() {
	lines := 0
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	klog.SetLoggerWithOptions(funcr.New(func(_, args string) {
		w.mu.Lock()
		lines++
		show := lines <= maxLog
		text := message(args)
		if text != "" && !level.MatchString(args) {
			w.errors = append(w.errors, time.Now())
		}
		w.mu.Unlock()
		if show && text != "" {
			w.say("log", text, "")
		}
	}, funcr.Options{}), klog.ContextualLogger(true))
	// The second handler limits the rate of errors by the clock, and each scene has a virtual clock of its own.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
}

// level begins a message that is not an error: errors have no level.
var level = regexp.MustCompile(`^"level"=`)

// field is a key and its value in the text of a log message.
var field = regexp.MustCompile(`(?: |^)"([^"]+)"=("(?:[^"\\]|\\.)*"|\{[^}]*\}|\S+)`)

// message makes `"level"=0 "msg"="Deleting" "pod"={"name"="web" "namespace"="shop"}` readable. It returns "" for what
// client-go says about a watch that has failed, which is in the timeline, and about the mutation detector, which is always on.
func message(args string) string {
	var text []string
	for _, match := range field.FindAllStringSubmatch(args, -1) {
		key, value := match[1], match[2]
		if unquoted, err := strconv.Unquote(value); err == nil {
			value = unquoted
		}
		if object := reference.FindStringSubmatch(value); object != nil {
			value = strings.Trim(object[2]+"/"+object[1], "/")
		}
		switch {
		case key == "reflector":
			return ""
		case key == "logger" || key == "level" || key == "panicGoValue" || key == "stacktrace" || value == "null":
		case key == "msg" && strings.HasPrefix(value, "Mutation detector is enabled"):
			return ""
		case key == "msg":
			text = append(text, value)
		default:
			text = append(text, key+"="+value)
		}
	}
	return strings.Join(text, " ")
}

// reference is the text of klog.KObj.
var reference = regexp.MustCompile(`^\{"name"="([^"]*)"(?: "namespace"="([^"]*)")?\}$`)
