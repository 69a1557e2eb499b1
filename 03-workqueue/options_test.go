package workqueue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestValidate(t *testing.T) {
	tests := map[string]struct {
		choose func(*Options)
		want   string // part of the error; "" for no error
	}{
		"defaults":                  {func(*Options) {}, ""},
		"lowest values":             {func(o *Options) { o.Workers, o.Backoff, o.MaxBackoff, o.WarnAfter, o.Grace = 1, 1, 1, 0, 0 }, ""},
		"no namespace":              {func(o *Options) { o.Namespace = "" }, "--namespace is missing"},
		"no workers":                {func(o *Options) { o.Workers = 0 }, "--workers is 0"},
		"no backoff":                {func(o *Options) { o.Backoff = 0 }, "--backoff is 0s"},
		"negative backoff":          {func(o *Options) { o.Backoff = -time.Second }, "--backoff is -1s"},
		"maximum below the backoff": {func(o *Options) { o.MaxBackoff = time.Millisecond }, "--max-backoff is 1ms; it must be at least --backoff, which is 1s"},
		"negative count":            {func(o *Options) { o.WarnAfter = -1 }, "--warn-after is -1"},
		"negative grace":            {func(o *Options) { o.Grace = -1 }, "--grace is -1ns"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			options := Options{Namespace: namespace, Workers: 2, Backoff: time.Second, MaxBackoff: time.Minute, WarnAfter: 8, Grace: time.Second}
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
