package secretsync

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"
)

func TestDeletesGoFirst(t *testing.T) {
	urgent := map[cache.ObjectName]bool{}
	q := newDeletesFirst(func(key cache.ObjectName) bool { return urgent[key] })
	key := func(name string) cache.ObjectName { return cache.NewObjectName("ns", name) }
	for _, name := range []string{"a", "b", "c", "d"} {
		urgent[key(name)] = name == "c"
		q.Push(key(name))
	}
	urgent[key("b")] = true
	q.Touch(key("b"))
	q.Touch(key("b"))
	q.Touch(key("a"))
	require.Equal(t, 4, q.Len())
	for _, name := range []string{"c", "b", "a", "d"} {
		require.Equal(t, key(name), q.Pop())
	}
	require.Zero(t, q.Len())

	// A key that has moved and is added again waits once, and can move again.
	for range 2 {
		urgent[key("a")] = false
		q.Push(key("d"))
		q.Push(key("a"))
		urgent[key("a")] = true
		q.Touch(key("a"))
		require.Equal(t, key("a"), q.Pop())
		require.Equal(t, key("d"), q.Pop())
		urgent[key("a")] = false
		q.Push(key("a"))
		q.Push(key("d"))
		require.Equal(t, 2, q.Len())
		require.Equal(t, key("a"), q.Pop())
		require.Equal(t, key("d"), q.Pop())
		require.Zero(t, q.Len())
	}
}

// Whatever becomes urgent when, each key comes out once for each time that it went in.
func TestTheQueueLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		urgent, waiting := map[cache.ObjectName]bool{}, map[cache.ObjectName]bool{}
		q := newDeletesFirst(func(key cache.ObjectName) bool { return urgent[key] })
		for range rapid.IntRange(0, 50).Draw(t, "steps") {
			key := cache.NewObjectName("ns", fmt.Sprint(rapid.IntRange(0, 4).Draw(t, "key")))
			urgent[key] = rapid.Bool().Draw(t, "urgent")
			switch {
			case q.Len() > 0 && rapid.IntRange(0, 2).Draw(t, "pop") == 0:
				popped := q.Pop()
				require.True(t, waiting[popped], popped)
				delete(waiting, popped)
			case waiting[key]:
				q.Touch(key)
			default:
				q.Push(key)
				waiting[key] = true
			}
			require.Equal(t, len(waiting), q.Len())
		}
		for q.Len() > 0 {
			popped := q.Pop()
			require.True(t, waiting[popped], popped)
			delete(waiting, popped)
		}
		require.Empty(t, waiting)
	})
}
