package rlock

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// The difference between the two is what a Lock and an Unlock add for being counted, with
// no Trace set: a call looked at the clock when it began before anything was counted.
func BenchmarkAccounting(b *testing.B) {
	b.Run("counted", benchmarkCounted)
	b.Run("clock", func(b *testing.B) {
		var began time.Time
		for b.Loop() {
			began = time.Now()
		}
		_ = began
	})
}

func benchmarkCounted(b *testing.B) {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:1"})
	defer rdb.Close()
	client, err := New(rdb, nil)
	if err != nil {
		b.Fatal(err)
	}
	l := client.NewLock("a")
	o := new(candidate).init(l)
	g := o.first.init(l, o, time.Now(), l.terms.lease, 0, run{})
	ctx, hold := g.derive(b.Context(), new(Hold), l, nil)
	b.ReportAllocs()
	for b.Loop() {
		c := l.starts(ctx)
		g.began = c.since // as one that was held, and passed on
		_ = c.ends(ctx, hold, nil)
		hold.ends = true
		hold.ended(ctx, c.since, nil)
	}
}
