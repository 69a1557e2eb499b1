package secretsync

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{}) // drops what is not written to a test's own log
	// The second handler limits the rate of errors by the clock, and each test has a virtual clock of its own.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	goleak.VerifyTestMain(m)
}

// With the detector on, client-go compares each cache with a copy of it once a second, and panics if somebody has
// modified a cached object. So it is a part of every test that runs a controller.
func TestTheMutationDetectorIsOn(t *testing.T) {
	const variable = "KUBE_CACHE_MUTATION_DETECTOR" // client-go reads it before any test can set it
	on, _ := strconv.ParseBool(os.Getenv(variable))
	require.True(t, on, "run the tests with %s=true, or they do not notice that a cached object is modified", variable)

	defer func(stdout *os.File) { os.Stdout = stdout }(os.Stdout)
	os.Stdout = nil // the detector prints a long diff

	detector := cache.NewCacheMutationDetector("Secrets") // as each informer creates one
	secret := &corev1.Secret{}
	detector.AddObject(secret)
	secret.Labels = map[string]string{"seen": "yes"}
	ended := make(chan struct{})
	close(ended)
	require.PanicsWithValue(t, "cache Secrets modified", func() { detector.Run(ended) })
}
