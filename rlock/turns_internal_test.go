package rlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// counter is an ear that has heard so many messages.
type counter int64

func (counter) C() <-chan struct{} { return nil }
func (counter) Live() bool         { return true }
func (counter) Leave()             {}
func (n counter) Heard() int64     { return int64(n) }

func TestTurns(t *testing.T) {
	now := time.Now()
	at := func(d time.Duration) time.Time { return now.Add(d) }
	const ms = time.Millisecond

	t.Run("nobody listens", func(t *testing.T) {
		var turns turns
		turns.freed(0, ms, now)
		require.Zero(t, turns.rest(now))
	})
	t.Run("each of the others comes first", func(t *testing.T) {
		var turns turns
		turns.listen(counter(7))
		turns.freeing, turns.last, turns.echoes = true, now, 1
		require.Positive(t, turns.rest(now), "not before the release is answered")
		turns.freed(2, ms, now)
		require.Equal(t, reaction, turns.rest(now))

		heard, foreign := turns.hear(counter(8), at(ms)) // the own message
		require.Equal(t, []int64{1, 0}, []int64{heard, foreign})
		require.Equal(t, reaction-ms, turns.rest(at(ms)))

		turns.hear(counter(9), at(3*ms))
		require.Equal(t, reaction, turns.rest(at(3*ms)), "a turn was had, and the next one begins")
		turns.hear(counter(10), at(4*ms))
		require.Zero(t, turns.rest(at(4*ms)))
	})
	t.Run("silence is tried once", func(t *testing.T) {
		var turns turns
		turns.freed(1, ms, now)
		require.LessOrEqual(t, turns.rest(at(reaction)), time.Duration(0))
		turns.refused(now.Add(-ms), at(time.Minute))
		require.LessOrEqual(t, turns.rest(at(reaction)), time.Duration(0), "that may have been the own grant")
		turns.refused(at(reaction), at(time.Minute))
		require.Equal(t, time.Minute-reaction, turns.rest(at(reaction)), "somebody has it and will be heard")
		turns.hear(counter(1), at(20*ms))
		require.Zero(t, turns.rest(at(20*ms)))
	})
	t.Run("idle listeners are not waited for", func(t *testing.T) {
		var turns turns
		turns.freed(3, ms, now)
		turns.hear(counter(1), at(ms))
		turns.acquired() // in the silence: two wanted nothing
		turns.freed(3, ms, at(10*ms))
		require.EqualValues(t, 1, turns.owed)
		turns.freed(4, ms, at(11*ms))
		require.EqualValues(t, 4, turns.owed, "a newcomer")
		turns.acquired()
		turns.freed(4, ms, at(12*ms))
		require.Zero(t, turns.owed)
		turns.freed(4, ms, at(12*ms+idleRecheck))
		require.EqualValues(t, 4, turns.owed, "asked again now and then")
	})
	t.Run("far servers take longer to react", func(t *testing.T) {
		var turns turns
		turns.freed(1, 10*ms, now)
		require.Equal(t, 30*ms, turns.rest(now))
		turns.freed(1, time.Second, now)
		require.Equal(t, slow, turns.rest(now))
	})
	t.Run("while holding, every message is strange", func(t *testing.T) {
		var turns turns
		turns.listen(counter(3))
		_, foreign := turns.hear(counter(4), now)
		require.EqualValues(t, 1, foreign)
	})
}
