package reboot

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"example.com/controllers/reboot/internal/nodetest"
	"example.com/controllers/reboot/policy"
)

// testOptions returns valid options.
func testOptions() Options {
	return Options{
		Policy:    policy.Policy{MaxUnavailable: intstr.FromInt32(1), MaxPerDomain: intstr.FromInt32(1), Selector: labels.Everything()},
		Namespace: "reboot", Ledger: "reboot-ledger",
		DrainTimeout: 30 * time.Minute, AgentTimeout: 5 * time.Minute, RebootTimeout: 10 * time.Minute,
		RetryInterval: 5 * time.Minute, MaxRetryInterval: 2 * time.Hour,
		Workers: 2, Backoff: time.Second, MaxBackoff: time.Minute, Grace: 10 * time.Second,
	}
}

func TestValidate(t *testing.T) {
	tests := map[string]struct {
		choose func(*Options)
		want   string // part of the error; "" for no error
	}{
		"defaults": {func(*Options) {}, ""},
		"lowest values": {func(o *Options) {
			o.DrainTimeout, o.AgentTimeout, o.RebootTimeout, o.RetryInterval, o.MaxRetryInterval = 1, 1, 1, 1, 1
			o.Workers, o.Backoff, o.MaxBackoff, o.Grace = 1, 1, 1, 0
		}, ""},
		"a topology key":                {func(o *Options) { o.TopologyKey = nodetest.ZoneLabel }, ""},
		"a topology key and a limit":    {func(o *Options) { o.TopologyKey, o.MaxPerDomain = nodetest.ZoneLabel, intstr.FromString("10%") }, ""},
		"a limit without topology key":  {func(o *Options) { o.MaxPerDomain = intstr.FromInt32(2) }, "--max-unavailable-per-domain has no effect without --topology-key"},
		"no namespace":                  {func(o *Options) { o.Namespace = "" }, "--namespace is missing"},
		"no ledger":                     {func(o *Options) { o.Ledger = "" }, "--ledger is missing"},
		"no drain timeout":              {func(o *Options) { o.DrainTimeout = 0 }, "--drain-timeout is 0s; it must be greater than 0"},
		"negative drain timeout":        {func(o *Options) { o.DrainTimeout = -time.Second }, "--drain-timeout is -1s; it must be greater than 0"},
		"no agent timeout":              {func(o *Options) { o.AgentTimeout = 0 }, "--agent-timeout is 0s"},
		"no reboot timeout":             {func(o *Options) { o.RebootTimeout = 0 }, "--reboot-timeout is 0s"},
		"no retry interval":             {func(o *Options) { o.RetryInterval = 0 }, "--retry-interval is 0s"},
		"maximum below the interval":    {func(o *Options) { o.MaxRetryInterval = time.Minute }, "--max-retry-interval is 1m0s; it must be at least --retry-interval, which is 5m0s"},
		"no workers":                    {func(o *Options) { o.Workers = 0 }, "--workers is 0; it must be at least 1"},
		"negative number of workers":    {func(o *Options) { o.Workers = -1 }, "--workers is -1; it must be at least 1"},
		"no backoff":                    {func(o *Options) { o.Backoff = 0 }, "--backoff is 0s"},
		"maximum below the backoff":     {func(o *Options) { o.MaxBackoff = time.Millisecond }, "--max-backoff is 1ms; it must be at least --backoff, which is 1s"},
		"negative grace":                {func(o *Options) { o.Grace = -1 }, "--grace is -1ns; it must not be negative"},
		"two invalid options, in order": {func(o *Options) { o.DrainTimeout, o.Workers = 0, 0 }, "--drain-timeout"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			options := testOptions()
			test.choose(&options)
			err := options.Validate()
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestRetryWait(t *testing.T) {
	for _, test := range []struct {
		interval, most time.Duration
		failures       int
		want           time.Duration
	}{
		{5 * time.Minute, 2 * time.Hour, 0, 5 * time.Minute},
		{5 * time.Minute, 2 * time.Hour, 1, 10 * time.Minute},
		{5 * time.Minute, 2 * time.Hour, 4, 80 * time.Minute},
		{5 * time.Minute, 2 * time.Hour, 5, 2 * time.Hour},
		{5 * time.Minute, 2 * time.Hour, math.MaxInt, 2 * time.Hour},
		{time.Second, 24 * time.Hour, 17, 24 * time.Hour},
		{48 * time.Hour, 7 * 24 * time.Hour, 16, 7 * 24 * time.Hour}, // 2^16 times 48 hours is more than a Duration can hold
	} {
		options := Options{RetryInterval: test.interval, MaxRetryInterval: test.most}
		require.Equal(t, test.want, options.retryWait(test.failures), "%s, %d", test.interval, test.failures)
	}
}
