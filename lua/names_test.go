package lua_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/lua"
)

// words returns all words of so many of these letters.
func words(letters string, size int) (all []string) {
	for all = []string{""}; size > 0; size-- {
		var longer []string
		for _, w := range all {
			for _, l := range letters {
				longer = append(longer, w+string(l))
			}
		}
		all = longer
	}
	return all
}

// No two locks have a queue, a channel for grants or an intent in common, and the slot is
// that of the lock. The scripts know the same names: see TestCourses and TestRetained.
func TestOwnNamesAreOfOneLock(t *testing.T) {
	t.Parallel()
	locks := make(map[string]string)
	for size := 1; size <= 7; size++ {
		for _, key := range words("a:{}", size) {
			if !strings.Contains(key, "{") && strings.Contains(key, "}") {
				continue // has no queue in its slot, and is refused
			}
			queue := lua.QueueOf(key)
			require.Empty(t, locks[queue], "%s and %s have %s", locks[queue], key, queue)
			locks[queue] = key
			require.Equal(t, "rlock_channel"+strings.TrimPrefix(queue, "rlock_queue")+":client", lua.GrantChannel(key, "client"))
			if strings.Contains(key, "{") {
				require.Equal(t, key, strings.TrimSuffix(strings.TrimPrefix(queue, "rlock_queue:"), strings.Repeat(":", len(queue)-len(key)-12)))
			}
		}
	}
	require.Equal(t, "rlock_queue:{a}", lua.QueueOf("a"))
	require.Equal(t, "rlock_queue:{a}b", lua.QueueOf("{a}b"))
	require.Equal(t, "rlock_queue:{a}:", lua.QueueOf("{a}"))
}
