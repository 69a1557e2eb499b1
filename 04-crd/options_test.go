package crd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/controllers/crd"
)

func TestValidate(t *testing.T) {
	tests := map[string]struct {
		choose func(*crd.Options)
		want   string // part of the error; "" for no error
	}{
		"defaults": {func(*crd.Options) {}, ""},
		"lowest values": {func(o *crd.Options) {
			o.Workers, o.Backoff, o.MaxBackoff, o.Recheck, o.Grace = 1, 1, 1, 1, 0
		}, ""},
		"no namespace":              {func(o *crd.Options) { o.Namespace = "" }, "--namespace is missing"},
		"no workers":                {func(o *crd.Options) { o.Workers = 0 }, "--workers is 0"},
		"no backoff":                {func(o *crd.Options) { o.Backoff = 0 }, "--backoff is 0s"},
		"negative backoff":          {func(o *crd.Options) { o.Backoff = -time.Second }, "--backoff is -1s"},
		"maximum below the backoff": {func(o *crd.Options) { o.MaxBackoff = time.Millisecond }, "--max-backoff is 1ms; it must not be less than --backoff, 1s"},
		"no recheck":                {func(o *crd.Options) { o.Recheck = 0 }, "--recheck is 0s"},
		"negative grace":            {func(o *crd.Options) { o.Grace = -1 }, "--grace is -1ns"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			options := crd.Options{Namespace: namespace, Workers: 2, Backoff: time.Second, MaxBackoff: time.Minute, Recheck: time.Minute, Grace: time.Second}
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
