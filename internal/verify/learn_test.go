package verify

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// Every kind of lock can be watched. Those who wait for a plain lock queue by a script of
// its own; a fair lock has but one.
func TestLearn(t *testing.T) {
	redistest.Long(t, "a lesson for each kind of lock")
	for _, v := range varieties {
		if v == quorum {
			continue
		}
		t.Run(v.String(), func(t *testing.T) {
			hashes := lesson(t, v)
			for _, what := range []string{"acquire", "count", "release", "renew"} {
				require.NotEmpty(t, hashes[what], what)
			}
			require.Equal(t, v != polling && v != fair && v != readWrite, len(hashes["queue"]) > 0)
		})
	}
}
