package rlock_test

import (
	"testing"
	"time"

	"github.com/go-rlock/rlock/rlock"
)

// BenchmarkRetained is a Lock and an Unlock of a lock that the client keeps.
func BenchmarkRetained(b *testing.B) {
	for name, opts := range map[string][]rlock.LockOption{"plain": nil, "fenced": {rlock.WithFencing()}} {
		b.Run(name, func(b *testing.B) {
			mu := newClient(b, newServer(b), nil).NewLock("a", append(opts, rlock.WithRetention(time.Second))...)
			b.ReportAllocs()
			for b.Loop() {
				held, hold, err := mu.Lock(b.Context())
				if err == nil {
					err = hold.Unlock(held)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
