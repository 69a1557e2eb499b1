package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestValidateAgent(t *testing.T) {
	valid := Options{NodeName: "node-00", RebootRetry: 5 * time.Minute, Backoff: time.Second, MaxBackoff: time.Minute}
	for name, test := range map[string]struct {
		choose func(*Options)
		want   string // part of the error; "" for no error
	}{
		"defaults":                  {func(*Options) {}, ""},
		"lowest values":             {func(o *Options) { o.RebootRetry, o.Backoff, o.MaxBackoff = 1, 1, 1 }, ""},
		"no Node":                   {func(o *Options) { o.NodeName = "" }, "--node-name is missing, and so is NODE_NAME"},
		"no retry of the reboot":    {func(o *Options) { o.RebootRetry = 0 }, "--reboot-retry is 0s; it must be greater than 0"},
		"no backoff":                {func(o *Options) { o.Backoff = 0 }, "--backoff is 0s; it must be greater than 0"},
		"maximum below the backoff": {func(o *Options) { o.MaxBackoff = time.Millisecond }, "--max-backoff is 1ms; it must be at least --backoff, which is 1s"},
	} {
		t.Run(name, func(t *testing.T) {
			options := valid
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
