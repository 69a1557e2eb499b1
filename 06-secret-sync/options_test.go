package secretsync

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
)

func TestValidate(t *testing.T) {
	for _, test := range []struct {
		change func(*Options)
		err    string
	}{
		{func(*Options) {}, ""},
		{func(o *Options) { o.QPS, o.Burst = 0, 0 }, ""},
		{func(o *Options) { o.SourceNamespace = "" }, "--source-namespace is missing; name the namespace whose Secrets are shared"},
		{func(o *Options) { o.SourceNamespace = "A b" }, `--source-namespace is "A b", which is not the name of a namespace`},
		{func(o *Options) { o.Workers = 0 }, "--workers is 0; it must be at least 1"},
		{func(o *Options) { o.QPS = -1 }, "--qps is -1; it must be greater than 0, or 0 for no limit"},
		{func(o *Options) { o.Burst = 0 }, "--burst is 0; it must be at least 1"},
		{func(o *Options) { o.Backoff = 0 }, "--backoff is 0s; it must be greater than 0"},
		{func(o *Options) { o.MaxBackoff = time.Millisecond }, "--max-backoff is 1ms; it must be at least --backoff, which is 1s"},
		{func(o *Options) { o.Grace = -time.Second }, "--grace is -1s; it must not be negative"},
	} {
		options := Options{
			Scope: Scope{SourceNamespace: "secret-sync", Namespaces: labels.Everything()}, Workers: 1, QPS: 1, Burst: 1, Backoff: time.Second, MaxBackoff: time.Second,
		}
		test.change(&options)
		if err := options.Validate(); test.err == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, test.err)
		}
	}
}

func TestParseNamespaces(t *testing.T) {
	selector, err := ParseNamespaces(DefaultNamespaces)
	require.NoError(t, err)
	require.True(t, selector.Matches(labels.Set{CopiesLabel: "true"}))
	require.False(t, selector.Matches(labels.Set{CopiesLabel: "false"}))
	_, err = ParseNamespaces("a in")
	require.ErrorContains(t, err, `"a in" is not a label selector: `)
	_, err = ParseNamespaces(" ")
	require.ErrorContains(t, err, "it is empty, which would select all namespaces; ")
}
