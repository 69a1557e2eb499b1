package secretsync

import (
	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// MaxVerbosity is the highest verbosity that is safe. Above it, client-go logs the bodies of requests and responses, and with
// them the data of Secrets.
const MaxVerbosity = 7

// withoutBodies returns a logger that logs nothing above MaxVerbosity.
func withoutBodies(logger klog.Logger) klog.Logger {
	return logger.WithSink(&cappedSink{logger.GetSink()})
}

// cappedSink drops what is too verbose.
type cappedSink struct{ logr.LogSink }

// Enabled reports whether a verbosity is logged.
func (s *cappedSink) Enabled(level int) bool {
	return level <= MaxVerbosity && s.LogSink.Enabled(level)
}

// WithValues returns a sink that is capped as well.
func (s *cappedSink) WithValues(keysAndValues ...any) logr.LogSink {
	return &cappedSink{s.LogSink.WithValues(keysAndValues...)}
}

// WithName returns a sink that is capped as well.
func (s *cappedSink) WithName(name string) logr.LogSink { return &cappedSink{s.LogSink.WithName(name)} }

// WithCallDepth keeps the file and line in each log line correct.
func (s *cappedSink) WithCallDepth(depth int) logr.LogSink {
	if sink, ok := s.LogSink.(logr.CallDepthLogSink); ok {
		return &cappedSink{sink.WithCallDepth(depth)}
	}
	return s
}
