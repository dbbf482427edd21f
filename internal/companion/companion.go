// Package companion keeps data beside a lock: who leads, which fire of a job was claimed, a result. The
// data is a hash of its own in the cluster slot of the lock, the companion. Packages election, jobs and
// once use one key and one channel for each name, so a user of Redis needs one more key pattern for all
// three. The field "is" says whose data it is; another package's data, or foreign data, is not touched.
package companion

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/internal/reach"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/pubsub"
	"github.com/go-rlock/rlock/rlock"
)

//go:embed companion.lua
var head string

// Script is a script about a companion: see companion.lua for its keys, and for the functions held,
// announce and now. A script must be safe to repeat, and to be executed late.
type Script struct{ script *lua.Script }

// NewScript returns a script.
func NewScript(source string) *Script { return &Script{lua.NewScript(head + source)} }

// Companion is the companion of one lock.
type Companion struct {
	lock reach.Lock
	name string // of the lock
	is   string
}

// Of returns the companion of a lock, which holds data of the kind is. The error is that of a lock whose
// name or options cannot work.
//
// Goroutines that pass a lock on in memory have the same owner, so a lock with a companion must be
// [rlock.WithoutHandoff], and without retention.
func Of(l *rlock.Lock, is string) (*Companion, error) {
	lock, err := reach.Of(l)
	if err != nil {
		return nil, err
	}
	return &Companion{lock, l.Name(), is}, nil
}

// Key returns the key of the companion of the lock with that key.
func Key(lock string) string { return lua.Own("rlock_companion", lock) }

// Key returns the key of the companion.
func (c *Companion) Key() string { return Key(c.lock.Key) }

// Channel names the channel of the companion.
func (c *Companion) Channel() string { return lua.Own("rlock_channel", c.lock.Key) + ":companion" }

// Log returns the logger of the client.
func (c *Companion) Log() *slog.Logger { return c.lock.Log }

// Publish returns the first argument of announce in a script.
func (c *Companion) Publish() any { return c.lock.Publish() }

// Subscribe subscribes to the channel: see [pubsub.Hub.Subscribe].
func (c *Companion) Subscribe(message func(payload string), changed func()) *pubsub.Subscription {
	return c.lock.Subscribe(c.Channel(), message, changed)
}

// Run runs a script with one key, the companion. The error has the name of the lock, and is
// [rlock.ErrKeyConflict] if the key holds other data, [rlock.ErrUnavailable] or [rlock.ErrClosed]. With
// an error, the script may have been executed, or may still be.
func (c *Companion) Run(ctx context.Context, s *Script, args ...any) (any, error) {
	return c.run(ctx, c.lock.Run, s, []string{c.Key()}, args)
}

// RunReplicated is Run for a write. If the lock is [rlock.WithReplicas], the replicas must acknowledge the
// write, or the error is [rlock.ErrNotReplicated]. A repetition must write again.
func (c *Companion) RunReplicated(ctx context.Context, s *Script, args ...any) (any, error) {
	return c.run(ctx, c.lock.RunReplicated, s, []string{c.Key()}, args)
}

// RunHeld is Run with the lock as second key, for a script that asks held.
func (c *Companion) RunHeld(ctx context.Context, s *Script, args ...any) (any, error) {
	return c.run(ctx, c.lock.Run, s, []string{c.Key(), c.lock.Key}, args)
}

type run func(ctx context.Context, s *lua.Script, keys []string, args ...any) (any, error)

func (c *Companion) run(ctx context.Context, run run, s *Script, keys []string, args []any) (any, error) {
	reply, err := run(ctx, s.script, keys, append([]any{c.is}, args...)...)
	refusal, refused := errors.AsType[redis.Error](err)
	switch {
	case refused && strings.HasPrefix(refusal.Error(), "NOTMINE "):
		what := strings.TrimPrefix(refusal.Error(), "NOTMINE ")
		return nil, fmt.Errorf("%w: key %s holds other data (%s): use another name", rlock.ErrKeyConflict, strconv.Quote(c.Key()), what)
	case refused && !errors.Is(err, rlock.ErrUnavailable):
		return nil, fmt.Errorf("%w: %s: %w", rlock.ErrUnavailable, strconv.Quote(c.name), err)
	}
	return reply, err
}
