// Package reach lets the packages of this module that stand on package rlock use the Redis server of a
// lock. The API of package rlock does not have it, as no user has asked for it yet.
package reach

import (
	"context"
	"log/slog"

	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/pubsub"
)

// Lock is the server of a lock, as the lock's client sees it.
type Lock struct {
	// Key is the lock's key. lua.Own names other keys, and channels, in the same cluster slot.
	Key string

	// Run sends a script that may be executed several times and late, until there is an answer, until
	// ctx ends, or until there was no answer for as long as the lock's lease, at least 5 s. KEYS[1] must
	// be in the cluster slot of the lock. The error of the script itself is a redis.Error. Another
	// error is one of package rlock, with the lock's name: ErrUnavailable, ErrClosed, or lua.ErrNotOwner
	// of a guarded script.
	Run func(ctx context.Context, s *lua.Script, keys []string, args ...any) (any, error)

	// RunReplicated is Run. If the lock is WithReplicas, the replicas must also acknowledge what the script
	// has written, or the error is ErrNotReplicated. A repetition must write again, because replicas
	// acknowledge what a connection has written.
	RunReplicated func(ctx context.Context, s *lua.Script, keys []string, args ...any) (any, error)

	// Log is the logger of the lock's client.
	Log *slog.Logger

	// Subscribe subscribes to a channel, on the connection for the client's waiters: see
	// [pubsub.Hub.Subscribe]. With sharded channels the channel must be in the cluster slot of the lock.
	Subscribe func(channel string, message func(payload string), changed func()) *pubsub.Subscription

	// Publish returns an argument for a script: the command by which the script reaches the subscribers of
	// Subscribe, or both with a space between.
	Publish func() any
}

// Of returns the server of a *rlock.Lock. The error is that of a lock with a name or an option that cannot
// work. Package rlock sets Of when it is initialised, and nobody sets it later.
var Of func(lock any) (Lock, error)
