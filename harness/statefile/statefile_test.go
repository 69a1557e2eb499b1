package statefile_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"sigs.k8s.io/yaml"

	"example.com/controllers/harness/statefile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type counter struct {
	Count int `json:"count"`
}

// As many processes as there are goroutines count, and none of them is lost.
func TestUpdate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "my", "count.yaml")
	count := func() error {
		return statefile.Update(path, "A count.", func() (any, error) {
			var c counter
			err := statefile.Read(path, &c)
			c.Count++
			return c, err
		})
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if err := count(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "# A count.\ncount: 20\n", string(text))

	// What cannot be read, or must not be changed, stays as it is; twice, as it may be tried again.
	refused := errors.New("no")
	for range 2 {
		require.ErrorIs(t, statefile.Update(path, "A count.", func() (any, error) { return counter{}, refused }), refused)
		require.NoError(t, os.WriteFile(path, []byte("count: [\n"), 0o600))
		require.ErrorContains(t, count(), path+": ")
		kept, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, "count: [\n", string(kept))
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 2, "the file and its lock, and no temporary file")
	require.Error(t, statefile.Update(filepath.Join(path, "below a file"), "", func() (any, error) { return counter{}, nil }))
}

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "count.yaml")
	c := counter{Count: 7}
	require.NoError(t, statefile.Read(path, &c))
	require.Equal(t, 7, c.Count, "there is no file")
	require.NoError(t, os.WriteFile(path, []byte("count: 8\nmore: 9\n"), 0o600))
	require.NoError(t, statefile.Read(path, &c))
	require.Equal(t, 8, c.Count)
	require.ErrorContains(t, statefile.Read(path, &c, yaml.DisallowUnknownFields), `unknown field "more"; repair it, or delete it to start over`)
	require.Error(t, statefile.Read(filepath.Dir(path), &c), "a directory")
}
