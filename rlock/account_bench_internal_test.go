package rlock

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// One operation is what a Lock and an Unlock add for being counted, with no Trace set.
func BenchmarkAccounting(b *testing.B) {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:1"})
	defer rdb.Close()
	c, err := New(rdb, nil)
	if err != nil {
		b.Fatal(err)
	}
	l := c.NewLock("a")
	g := l.newGrant("")
	g.began = time.Now()
	hold := &Hold{grant: g, counts: true}
	w, ctx := new(waiter), b.Context()
	b.ReportAllocs()
	for b.Loop() {
		wait, began := l.starts(ctx)
		g.began, g.ended = began, began
		l.ends(wait, began, hold, nil, w)
		g.released(ctx, 1, nil)
	}
}
