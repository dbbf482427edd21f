// Package kind makes the requests of each kind of lock: plain and fair locks, with and without
// fencing tokens, locks whose grants replicas must acknowledge, the two sides of a read/write
// lock, and quorum locks. It knows no contexts that own a lock, no waiters and no schedule of
// renewals: those are in package rlock, and are the same for all kinds.
//
// Each method is one request, made once; where that cannot do, as while a cluster slot moves or
// among the servers of a quorum, a few. It returns the client's error as it is, and
// [Classify] reads that; package request repeats what may be repeated. Every request is
// safe to repeat and to arrive late, but Force.
package kind

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/pubsub"
)

// Kind is one lock as its servers see it. Its methods may be called by several
// goroutines at once.
type Kind interface {
	// Key is the lock's key. It identifies the lock within a client: locks of one key nest,
	// and have one queue.
	Key() string
	// Gathers reports whether requests may be sent by a [request.Call], together with those
	// of other locks: those to acquire, or all others. None is slower than a script on one
	// server then.
	Gathers(acquire bool) bool
	// Acquire takes the lock for owner, or says why it is refused. Its scripts are sent by r,
	// as are those of the next two methods. A kind with several servers, or with a command
	// behind each script, sends them itself.
	Acquire(ctx context.Context, r lua.Runner, owner string, lease time.Duration, o Options) (lua.Reply, error)
	// SetCount makes n the hold count of owner; [lua.ErrNotOwner] if it holds nothing.
	SetCount(ctx context.Context, r lua.Runner, owner string, lease time.Duration, n Count) error
	// Release ends the grant of owner, and removes what a refusal has left for it;
	// [lua.ErrNotOwner] if it holds nothing.
	Release(ctx context.Context, r lua.Runner, owner string, e lua.Ending) (lua.Released, error)
	// Renewals are the requests that extend the lease of owner. A majority must succeed.
	Renewals(owner string, lease time.Duration) []Renewal
	// Subscribe subscribes to the channel on which the server tells waiters that they may have
	// the lock.
	Subscribe(e Events) Subscription
	// Force removes the lock whoever holds it.
	Force(ctx context.Context) (bool, error)
	// Inspect reads the lock.
	Inspect(ctx context.Context) (lua.State, error)
}

// notPlain begins the Key of a lock that is not a plain one. No name has an empty hash tag.
const notPlain = "{}"

// Options are those of an attempt; the same for all attempts of an owner.
type Options struct {
	Wait   bool       // the caller waits if it is refused
	Spare  int64      // fencing tokens to reserve beside the owner's own, for hand-offs
	Ticket lua.Ticket // how the owner stands in the server's queue; zero: not at all
}

// Answer is the answer to an attempt to acquire, as package rlock calls it.
type Answer = lua.Reply

// Count is a hold count. Only kinds with shared holds have both.
type Count struct{ Exclusive, Shared int }

// Renewal is a request to extend a lease, and whom to ask.
type Renewal struct {
	RDB redis.UniversalClient
	lua.Renewal
	Heard  func(err error, took time.Duration)         // of a share: gets what the server has answered; else nil
	Retake func(ctx context.Context, held func() bool) // of a share: takes it again for an owner that still holds the lock, if the server does not know of it and is free; else nil
}

// Events are called by the goroutine that reads the connection, so they must not block.
type Events struct {
	Message  func(payload string) // a message to one waiter
	Released func()               // a message to all waiters: the lock has been released
	Changed  func()               // the subscription was lost, or confirmed
}

// Subscription is that of a lock's waiters.
type Subscription interface {
	Live() bool // the server has confirmed it
	Close()
}

// Server is one Redis, as a client of package rlock sees it.
type Server struct {
	ID       string // of the client; names its channels
	RDB      redis.UniversalClient
	Scripts  lua.Runner // of what callers wait for
	Hub      *pubsub.Hub
	Log      *slog.Logger
	Channels *Channels

	Closed     func() error                                                       // the error of an attempt after the client was closed, which repeating does not help; nil before
	Owner      func() string                                                      // names a new grant
	Background func(func())                                                       // runs a function in a goroutine that the client waits for
	Sweep      func(k Kind, owner string, lease time.Duration, late, likely bool) // releases what an owner may have left, in the background; late: not yet, as the request may still arrive; likely: the server has something of the owner, so a refusal is not the end
	Sleep      func(ctx context.Context, d time.Duration) (ok bool)               // ends with ctx, or when the client closes

	pipelines pipelines
	redirects redirects
	asked     atomic.Int64 // requests of quorum locks under way
	overdue   atomic.Int64 // those of them that a poll of the servers has not waited for
	silent    atomic.Bool  // the last request that has ended got no answer in time
	failing   atomic.Int64 // when the first of them was made that got no answer, since the newest that did, in nanoseconds since 1970; 0 if none
	down      atomic.Bool  // the log was told that the server does not answer
	young     atomic.Bool  // and that it is not counted yet
	answered  atomic.Int64 // the newest answer to one, or when the first of those under way was made; in nanoseconds since 1970
}

// address is how the server is called in errors and in the log.
func (s *Server) address() string {
	switch rdb := s.RDB.(type) {
	case *redis.Client:
		return rdb.Options().Addr
	case *redis.ClusterClient:
		return strings.Join(rdb.Options().Addrs, ",")
	}
	return s.ID
}

// MaxAttempt bounds a single attempt, whatever the time-outs of the client underneath.
const MaxAttempt = 2 * time.Second

// Classify reads the error of a request. final says that repeating it would not help.
func Classify(err error) (o request.Outcome, final bool) {
	if err == nil || errors.Is(err, lua.ErrNotOwner) {
		return request.Answered, true
	}
	var conflict *lua.ConflictError
	var short *NotReplicated
	var minority *minorityError
	switch {
	case errors.Is(err, ErrSameServer):
		return request.NotExecuted, true
	case errors.As(err, &conflict), errors.As(err, &short):
		return request.Answered, true
	case errors.As(err, &minority):
		return minority.outcome, minority.final
	}
	return request.Classify(err)
}
