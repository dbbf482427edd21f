package netfault_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
)

// What a request costs on its way, alone and in company.
func BenchmarkPassThrough(b *testing.B) {
	s := redistest.Start(b)
	p := netfault.New(b, s.Addr())
	for name, addr := range map[string]string{"direct": s.Addr(), "proxy": p.Addr()} {
		rdb := s.Client(b, func(o *redis.Options) { o.Addr = addr })
		b.Run(name+"/one", func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, rdb.Incr(b.Context(), "k").Err())
			}
		})
		b.Run(name+"/parallel", func(b *testing.B) {
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := rdb.Incr(b.Context(), "k").Err(); err != nil {
						b.Error(err)
					}
				}
			})
		})
		b.Run(name+"/pipeline", func(b *testing.B) {
			const batch = 100
			for i := 0; i < b.N; i += batch {
				_, err := rdb.Pipelined(b.Context(), func(pipe redis.Pipeliner) error {
					for range batch {
						pipe.Incr(b.Context(), "k")
					}
					return nil
				})
				require.NoError(b, err)
			}
		})
	}
}
