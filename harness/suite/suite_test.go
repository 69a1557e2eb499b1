package suite

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// skipping is a test that notes whether it is skipped, and goes on.
type skipping struct {
	testing.TB
	why []any
}

func (s *skipping) Skip(why ...any) { s.why = why }

func TestOnce(t *testing.T) {
	for value, want := range map[string][]any{"": nil, "0": nil, "1": {Done}} {
		t.Setenv(AfterVariable, value)
		require.Equal(t, want != nil, Ran())
		s := skipping{TB: t}
		Once(&s)
		require.Equal(t, want, s.why)
	}
}

func TestLong(t *testing.T) {
	s := skipping{TB: t}
	Long(&s, "it is long")
	if testing.Short() {
		require.Equal(t, []any{Left + "it is long"}, s.why)
	} else {
		require.Empty(t, s.why)
	}
}
