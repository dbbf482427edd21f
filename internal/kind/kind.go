// Package kind makes the requests of each kind of lock: plain and fair locks, with and without
// fencing tokens, locks whose grants replicas must acknowledge, the two sides of a read/write
// lock, and quorum locks. Package rlock has the contexts of owners, the waiters and the schedule
// of renewals; these are the same for all kinds.
//
// Each method makes one request, once; a few requests while a cluster slot moves, or
// among the servers of a quorum. A method returns the client's error unchanged, for
// [Classify] to read; package request repeats a request where repeating is allowed. Every
// request but Force is safe to repeat and to arrive late.
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

// Kind is one lock as the servers see the lock. Several goroutines may call the methods
// at once.
type Kind interface {
	// Key is the lock's key, and identifies the lock within a client: locks of one key nest,
	// and have one queue.
	Key() string
	// Gathers reports whether a [request.Call] may send requests of several locks together:
	// acquire selects the requests to acquire, otherwise the rest. No such request may be
	// slower than a script on one server.
	Gathers(acquire bool) bool
	// Acquire takes the lock for owner, or returns the reason of the refusal. r sends the
	// scripts of Acquire, SetCount and Release. A kind with several servers, or with a
	// command behind each script, does not use r.
	Acquire(ctx context.Context, r lua.Runner, owner string, lease time.Duration, o Options) (lua.Reply, error)
	// SetCount makes n the hold count of owner; [lua.ErrNotOwner] if owner holds nothing. A writer that
	// becomes a reader releases a part of the lock.
	SetCount(ctx context.Context, r lua.Runner, owner string, lease time.Duration, n Count) (lua.Released, error)
	// Release ends the grant of owner, and removes the remains of a refusal;
	// [lua.ErrNotOwner] if owner holds nothing.
	Release(ctx context.Context, r lua.Runner, owner string, e lua.Ending) (lua.Released, error)
	// Renewals are the requests to extend the lease of owner. A majority must succeed.
	Renewals(owner string, lease time.Duration) []Renewal
	// Subscribe subscribes to the channel of the server's messages to waiters: a waiter may
	// have the lock.
	Subscribe(e Events) Subscription
	// GrantChannel names the channel of the messages for tickets, "" for a kind without tickets.
	GrantChannel() string
	// UnlockChannel names the channel of Redisson's announcements of a release.
	UnlockChannel() string
	// Force removes the lock, regardless of the owner.
	Force(ctx context.Context) (bool, error)
	// Inspect reads the lock.
	Inspect(ctx context.Context) (lua.State, error)
}

// notPlain begins the Key of every kind but the plain lock. No name has an empty hash tag.
const notPlain = "{}"

// Options are those of an attempt; the same for all attempts of an owner.
type Options struct {
	Wait   bool       // the caller waits after a refusal
	Spare  int64      // fencing tokens to reserve beside the owner's own, for hand-offs
	Ticket lua.Ticket // how the owner stands in the server's queue; zero: not at all
}

// Count is a hold count. Only kinds with shared holds have both fields.
type Count struct{ Exclusive, Shared int }

// Renewal is a request to extend a lease, and the server for the request.
type Renewal struct {
	RDB redis.UniversalClient
	lua.Renewal
	Heard  func(err error, took time.Duration)         // of a share: gets the server's answer; else nil
	Retake func(ctx context.Context, held func() bool) // of a share: takes the share again for an owner still holding the lock, if the server is free and does not know of the share; else nil
}

// Events must not block: the reading goroutine of the connection calls them.
type Events struct {
	Message  func(payload string) // a message to one waiter
	Released func()               // a message to all waiters: the lock has been released
	Changed  func()               // the subscription was lost, or confirmed
}

// Subscription is the subscription of a lock's waiters.
type Subscription interface {
	Live() bool // confirmed by the server
	Close()
}

// Server is one Redis, as a client of package rlock sees it.
type Server struct {
	ID       string // of the client; names its channels
	RDB      redis.UniversalClient
	Scripts  lua.Runner      // of requests with a waiting caller
	Trailed  request.Carrier // of attempts with a command behind each script
	Hub      *pubsub.Hub
	Log      *slog.Logger
	Channels *Channels

	Closed     func() error                                                       // the error of an attempt after the client was closed, final; nil before
	Owner      func() string                                                      // names a new grant
	Background func(func())                                                       // runs a function in a goroutine; the client's Close waits for the goroutine
	Sweep      func(k Kind, owner string, lease time.Duration, late, likely bool) // releases the orphan of an owner, if any, in the background; late: not yet, as the request may still arrive; likely: the server has something of the owner, so a refusal is not the end
	Sleep      func(ctx context.Context, d time.Duration) (ok bool)               // ends with ctx, or when the client closes

	waiting   waiting // for quorum locks whose host this is
	redirects redirects
	asked     atomic.Int64 // requests of quorum locks under way
	overdue   atomic.Int64 // of the requests asked: answer not awaited by the poll
	silent    atomic.Bool  // the last ended request got no answer in time
	failing   atomic.Int64 // when the first unanswered request since the newest answer was made, in nanoseconds since 1970; 0 if none
	down      atomic.Bool  // the log was told: the server does not answer
	young     atomic.Bool  // the log was told: the server is not counted yet
	answered  atomic.Int64 // when the newest answer came, or the first request under way was made; in nanoseconds since 1970
}

// address is the server's name in errors and in the log.
func (s *Server) address() string {
	switch rdb := s.RDB.(type) {
	case *redis.Client:
		return rdb.Options().Addr
	case *redis.ClusterClient:
		return strings.Join(rdb.Options().Addrs, ",")
	}
	return s.ID
}

// MaxAttempt bounds a single attempt, regardless of the time-outs in the client underneath.
const MaxAttempt = 2 * time.Second

// Classify is the function Classify for a request of the server's client. That client must know a cluster
// as one to be sent to the right node.
func (s *Server) Classify(err error) (o request.Outcome, final bool) {
	o, final = Classify(err)
	if _, alone := s.RDB.(*redis.Client); alone && !final {
		reply, ok := errors.AsType[redis.Error](err)
		final = ok && request.HasCode(reply, "MOVED", "ASK")
	}
	return o, final
}

// Classify reads the error of a request. final means: repeating the request would not help.
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
