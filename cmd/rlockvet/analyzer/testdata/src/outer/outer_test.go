package outer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/rlock"
)

// A test drops what it expects to be refused. What never ends is a mistake here, too.
func TestRefused(t *testing.T) {
	mu := new(rlock.Client).NewLock("a")
	_, hold, err := mu.Lock(t.Context())
	require.NoError(t, err)
	_, _, err = mu.TryLock(t.Context())
	require.NoError(t, mu.Do(t.Context(), work)) // want `mu.Do under t.Context\(\) waits`
	require.NoError(t, hold.Unlock(t.Context()))
	require.NoError(t, mu.Do(t.Context(), work))
}
