package main

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// slowTicks finds the clock of etcd's server by name.
func TestEtcdHasATicker(t *testing.T) {
	t.Chdir(t.TempDir())
	e, err := startEtcd(t.Context(), ".", false)
	require.NoError(t, err)
	t.Cleanup(e.Close)
	field := reflect.ValueOf(e.Server).Elem().FieldByName("r").FieldByName("ticker")
	require.True(t, field.IsValid(), "see slowTicks")
	require.Equal(t, reflect.TypeFor[*time.Ticker](), field.Type(), "see slowTicks")
}
