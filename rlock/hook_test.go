package rlock_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// endsCaller is a hook that ends the goroutine in which it runs, by a panic or by Goexit, at the
// next command that is sent in that goroutine: that of the caller, if the request is the only one
// under way. A panic elsewhere would end the program.
type endsCaller struct {
	how   func()
	after bool // when the command was sent
	in    atomic.Pointer[string]
	ended atomic.Int64 // how many
}

// goroutine names the one that calls it.
func goroutine() string {
	stack := make([]byte, 64)
	stack = stack[:runtime.Stack(stack, false)]
	return string(bytes.Fields(stack)[1])
}

func (e *endsCaller) arm() {
	id := goroutine()
	e.in.Store(&id)
}

func (e *endsCaller) hook() redistest.Hook {
	return redistest.Hook{Process: func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if in := e.in.Load(); in == nil || *in != goroutine() {
			return next(ctx, cmd)
		}
		e.in.Store(nil)
		e.ended.Add(1)
		if e.after {
			_ = next(ctx, cmd)
		}
		e.how()
		return nil
	}}
}

// A hook of the client that panics, or ends the goroutine, makes its caller leave. The application
// may recover, as net/http does. No lock is then held, or renewed, for nobody.
func TestHookThatEndsItsCaller(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	for name, how := range map[string]func(){"panic": func() { panic("hook") }, "Goexit": runtime.Goexit} {
		for _, after := range []bool{false, true} {
			e := &endsCaller{how: how, after: after}
			hooked := srv.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
			hooked.AddHook(e.hook())
			c := clientOn(t, hooked, &rlock.Options{LeaseTime: time.Minute})
			for kind, of := range map[string]func(name string) rlock.Locker{
				"plain":  func(name string) rlock.Locker { return c.NewLock(name) },
				"fair":   func(name string) rlock.Locker { return c.NewFairLock(name) },
				"reader": func(name string) rlock.Locker { return c.NewRWLock(name).Reader() },
				"writer": func(name string) rlock.Locker { return c.NewRWLock(name).Writer() },
				"kept":   func(name string) rlock.Locker { return c.NewLock(name, rlock.WithRetention(time.Millisecond)) },
				"multi": func(name string) rlock.Locker {
					return rlock.NewMultiLock(c.NewLock(name), c.NewLock(name+"2"), c.NewFairLock(name+"3"))
				},
			} {
				for _, at := range []string{"Lock", "TryLock", "nested Lock", "nested Unlock", "Unlock"} {
					t.Run(fmt.Sprint(name, " ", after, " ", kind, " ", at), func(t *testing.T) {
						name := strings.ReplaceAll(t.Name(), "/", " ")
						mu := of(name)
						require.NoError(t, mu.Do(t.Context(), func(context.Context) error { return nil })) // the server knows the scripts, and answers fast
						armed := func(here string) {
							if here == at {
								e.arm()
							}
						}
						ended := make(chan struct{})
						go func() {
							defer close(ended)
							defer func() { _ = recover() }()
							work := func(ctx context.Context) error {
								armed("nested Lock")
								err := mu.Do(ctx, func(context.Context) error { armed("nested Unlock"); return nil })
								armed("Unlock")
								return err
							}
							armed("Lock")
							armed("TryLock")
							if at == "TryLock" {
								_ = mu.TryDo(t.Context(), work)
							} else {
								_ = mu.Do(t.Context(), work)
							}
						}()
						<-ended
						redistest.Eventually(t, "it is free", func() bool {
							return len(rdb.Keys(t.Context(), name+"*").Val()) == 0
						})
						require.NoError(t, mu.TryDo(t.Context(), func(context.Context) error { return nil }))
					})
				}
			}
			require.Positive(t, e.ended.Load())
			for _, kind := range c.Stats().Kinds {
				require.Zero(t, kind.Waiting, kind.Kind)
				require.Zero(t, kind.Held, kind.Kind)
			}
		}
	}
}
