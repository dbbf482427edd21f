package rlock

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/record"
	"github.com/go-rlock/rlock/internal/redistest"
)

// In a shard with 100,000 names, the one with an eighth of all the waiting is shown, and with no more waiting than it had,
// although all rows were taken before by names with more waiting than it has at first. The others take no memory.
func TestFakeTimeHotNameAmongManyNames(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, hotLock, _ := newFake(t)
		var h hot
		wait := func(l *Lock, d time.Duration) { h.waited(&waiter{lock: l, since: time.Now().Add(-d)}, 1) }
		time.Sleep(time.Hour)
		for i := range hotRows {
			wait(c.NewLock(fmt.Sprint("warm", i)), 90*time.Millisecond)
		}
		for i := range 100_000 {
			wait(c.NewLock(fmt.Sprint("cold", i)), time.Millisecond)
			if i%14 == 0 {
				wait(hotLock, 2*time.Millisecond)
			}
			time.Sleep(100 * time.Microsecond)
		}
		require.LessOrEqual(t, len(h.rows), hotRows)
		v := view{now: time.Now(), hot: make(map[string]record.Hot)}
		h.show(&v)
		shown := v.hottest()
		require.NotEmpty(t, shown)
		require.Equal(t, "a", shown[0].Name)
		require.Len(t, shown, 1, "the others have waited for less than a tenth of a second each")
		most := 2.0 * 10_000 / 14 / 1000 // in a second
		require.InDelta(t, most, shown[0].Waiting, most/20)
	})
}

// What a wait costs under queues.mu, by how many names calls wait for in the shard.
func BenchmarkHotNames(b *testing.B) {
	for _, names := range []int{1, hotRows, 1000} {
		b.Run(fmt.Sprint(names), func(b *testing.B) {
			rdb := redis.NewClient(&redis.Options{Addr: "localhost:1"})
			defer rdb.Close()
			c, err := New(rdb, nil)
			require.NoError(b, err)
			defer c.Close(b.Context())
			var h hot
			all := make([]waiter, names)
			for i := range all {
				all[i] = waiter{lock: c.NewLock(fmt.Sprint("order:", i)), since: time.Now()}
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				h.waited(&all[i%names], 1)
				i++
			}
		})
	}
}
