package secretsync

import (
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
)

// The bodies of requests are not logged, whichever way a logger is derived from ours.
func TestBodiesAreNotLogged(t *testing.T) {
	for name, derive := range map[string]func(klog.Logger) klog.Logger{
		"itself":     func(logger klog.Logger) klog.Logger { return logger },
		"values":     func(logger klog.Logger) klog.Logger { return logger.WithValues("copy", "shop/db") },
		"name":       func(logger klog.Logger) klog.Logger { return logger.WithName("name") },
		"call depth": func(logger klog.Logger) klog.Logger { return logger.WithCallDepth(1) },
	} {
		t.Run(name, func(t *testing.T) {
			var log string
			logger := derive(withoutBodies(funcr.New(func(_, args string) { log += args }, funcr.Options{Verbosity: 10})))
			logger.V(MaxVerbosity).Info("Request")
			logger.V(MaxVerbosity+1).Info("Response Body", "body", secretValue)
			require.Contains(t, log, "Request")
			require.NotContains(t, log, "Body")
		})
	}
}
