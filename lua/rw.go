package lua

import (
	"context"
	_ "embed"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed rw.lua
var rwSource string

//go:embed batch.lua
var batchSource string

//go:embed rwask_fast.lua
var rwAskFastSource string

//go:embed rwask.lua
var rwAskSource string

//go:embed rwcount.lua
var rwCountSource string

//go:embed rwrelease_fast.lua
var rwReleaseFastSource string

//go:embed rwrelease.lua
var rwReleaseSource string

//go:embed rwrenew.lua
var rwRenewSource string

//go:embed rwforce.lua
var rwForceSource string

// serving is what the scripts of read/write locks that know a queue begin with, behind token.lua.
func serving() string { return announceSource + queueSource + rwSource + batchSource }

var (
	rwAskScript     = newScript("read/write ask", tokenSource+rwAskFastSource+serving()+rwAskSource, 1)
	rwCountScript   = newScript("read/write count", tokenSource+serving()+nothingSource+rwCountSource, 0)
	rwReleaseScript = newScript("read/write release", rwReleaseFastSource+tokenSource+serving()+nothingSource+rwReleaseSource, 0)
	rwRenewScript   = newScript("read/write renew", nothingSource+rwSource+rwRenewSource, 0)
	rwForceScript   = newScript("read/write force", tokenSource+serving()+rwForceSource, 0)
)

// RW names one acquisition of a read/write lock. The data is that of Redisson's
// RReadWriteLock: the hash has a field `mode`, the hold counts of an owner are in the
// fields `owner` and `owner:write`, and each read hold has a key with a TTL of its own.
// No owner ends in `:write`.
//
// The scripts touch the keys of other owners' read holds, undeclared. These keys are in
// the slot of the lock.
type RW struct {
	Grant         // Queue as [QueueOfRW], Channel as [UnlockChannelRW]
	Holds  string // the beginning of the keys of read holds; the owner follows
	Shared bool   // for reading; only AskRW looks at it
}

// QueueOfRW names the queue of a read/write lock. The name is not that of a plain lock's queue:
// a name used for both kinds by mistake leaves each kind its tickets.
func QueueOfRW(key string) string { return Own("rlock_rwqueue", key) }

// UnlockChannelRW is the channel of releases for Redisson's waiters of a read/write lock.
func UnlockChannelRW(key string) string { return Related("redisson_rwlock", key) }

// GrantChannelRW is the channel of a client for the grants by the queue of a read/write
// lock: see [ReadMessages].
func GrantChannelRW(key, client string) string { return Own("rlock_rwchannel", key) + ":" + client }

// hold names the key of the n-th read hold.
func (g RW) hold(n int) string { return g.Holds + g.Owner + ":rwlock_timeout:" + strconv.Itoa(n) }

// AskRW takes the lock for g.Owner if the lock admits the owner and nobody was there before:
// a writer if the lock is free, a reader also beside readers. Otherwise AskRW takes a ticket for
// g.Owner, or keeps the ticket in its place, as [Ask] does; without a ticket the owner enters
// only if nobody queues. Readers whose leases are over keep nobody out. A free lock goes to the
// tickets before the owner's.
//
// Token is that of the newest writer if g.Owner reads. Writer is set if only a waiting writer
// keeps the reader out.
func AskRW(ctx context.Context, r Runner, g RW, lease time.Duration, t Ticket) (Reply, error) {
	keys := append(make([]string, 0, 4), g.Key, g.Queue, g.hold(1))
	if g.Counter != "" {
		keys = append(keys, g.Counter)
	}
	claim, shared := int64(0), 0
	if t.Claim > 0 {
		claim = min(millis(t.Claim), MaxClaim.Milliseconds())
	}
	if g.Shared {
		shared = 1
	}
	answer, err := rwAskScript.run(ctx, r, keys, millis(lease), g.Owner, g.Holds, g.ChannelKind.Publish(), shared, claim, int(t.Hears))
	if err != nil {
		return Reply{}, err
	}
	reply, err := answer.granted(true)
	reply.Writer = !answer.done && answer.int(8) == 1
	if !answer.done && claim > 0 {
		reply.Place = answer.place()
		reply.Place.Mute = answer.int(9) == 1
		reply.Leftover = reply.Place.Held()
	}
	return reply, err
}

// runApart runs the script once more, with its first key alone, if a server has only some
// of the keys as their slot moves. The others are found where they are together with it, and the
// queue is served apart. The first error is returned if that does not do: what is there may be
// together soon.
func (s *script) runApart(ctx context.Context, r Runner, g RW, tickets, keys []string, args ...any) (reply, error) {
	answer, err := s.run(ctx, r, keys, args...)
	if !redis.HasErrorPrefix(err, slotMoves) {
		return answer, err
	}
	apart, again := s.run(ctx, r, keys[:1], args...)
	switch {
	case again != nil && elsewhere(again):
		return answer, err
	case again == nil:
		_ = ServeApart(ctx, r, g.Grant, tickets, true) // or whoever waits finds the lock free
	}
	return apart, again
}

// elsewhere reports whether a key of a script is not there because the slot moves: the error of
// most servers, or of Redis 8.
func elsewhere(err error) bool {
	return strings.Contains(err.Error(), "non local key") || strings.Contains(err.Error(), "undeclared keys were accessed during rehashing")
}

// CountRW makes writes and reads the hold counts of g.Owner, which are not both 0, and extends
// its leases to at least the given one. Less than 0 reads are none. A writer left with reads
// only has become one reader among others: readers at the head of the queue enter, as by
// [ReleaseRW]. [ErrNotOwner]: there is no such grant, or it is for reading and writes is not 0.
func CountRW(ctx context.Context, r Runner, g RW, lease time.Duration, writes, reads int) (Released, error) {
	reads = max(reads, 0)
	keys, counter := append(make([]string, 0, 3+reads), g.Key, g.Queue), 0
	if g.Counter != "" {
		keys, counter = append(keys, g.Counter), 3
	}
	for n := range reads {
		keys = append(keys, g.hold(n+1))
	}
	answer, err := rwCountScript.runApart(ctx, r, g, nil, keys, millis(lease), g.Owner, g.Holds, writes, reads, g.ChannelKind.Publish(), g.Channel, counter)
	if err = owned(answer, err); err != nil {
		return Released{}, err
	}
	return g.released(answer), nil
}

// ReleaseRW ends the grant of g.Owner and takes out its ticket and those of e, and passes the lock
// on: to the first tickets, as many as may have it together, or to everybody. Message is for waiters
// of the own client. ErrNotOwner: g.Owner held nothing; an earlier delivery may have released it,
// and granted the lock to waiters of its client. Of e only Tickets and Evict are looked at.
func ReleaseRW(ctx context.Context, r Runner, g RW, e Ending) (Released, error) {
	keys := append(make([]string, 0, 4), g.Key, g.Queue, g.hold(1))
	if g.Counter != "" {
		keys = append(keys, g.Counter)
	}
	evict := 0
	if e.Evict {
		evict = 1
	}
	answer, err := rwReleaseScript.runApart(ctx, r, g, append(slices.Clip(e.Tickets), g.Owner), keys, g.Owner, g.Holds, g.ChannelKind.Publish(), g.Channel, strings.Join(e.Tickets, " "), evict)
	if err != nil {
		return Released{}, err
	}
	return g.released(answer), owned(answer, nil)
}

// released reads the answer to a release, or to a downgrade.
func (g RW) released(answer reply) Released {
	return Released{PublishErr: g.refusal(answer.text(1)), Message: answer.text(2), More: answer.int(3) == 1}
}

// RenewalRW is a lease of g to extend by [Renew]. The key of a read hold is declared for
// servers that insist on that, and left out while a cluster slot moves.
func RenewalRW(g RW, lease time.Duration) Renewal {
	return Renewal{Grant: g.Grant, Lease: lease, other: &rwRenewScript, keys: []string{g.hold(1)}, args: []any{g.Holds}}
}

// ForceReleaseRW removes the lock, whoever holds it, and passes it on. It is otherwise as
// [ForceRelease].
func ForceReleaseRW(ctx context.Context, r Runner, g RW) (bool, error) {
	keys := append(make([]string, 0, 3), g.Key, g.Queue)
	if g.Counter != "" {
		keys = append(keys, g.Counter)
	}
	answer, err := rwForceScript.runApart(ctx, r, g, nil, keys, g.ChannelKind.Publish(), g.Channel, g.Holds)
	return answer.done, err
}

var errMode = errors.New("neither read nor write")

// InspectRW reads the lock of g; g.Owner is not used. A reader that died is shown
// until it is in the way of a writer.
func InspectRW(ctx context.Context, r Runner, g RW) (State, error) {
	answer, err := g.inspect(ctx, r)
	if err != nil {
		return State{}, err
	}
	shared, mode := make(map[string]int64), false
	s, err := answer.state(g.Key, func(s *State, name, value string) error {
		if name == "mode" {
			if mode = value == "read" || value == "write"; !mode {
				return errMode
			}
			return nil
		}
		n, err := strconv.ParseInt(value, 10, 64)
		owner, writes := strings.CutSuffix(name, ":write")
		s.Holds[owner] += n
		if !writes {
			shared[owner] = n
		}
		return err
	})
	switch {
	case err != nil:
		return State{}, err
	case !mode && len(s.Holds) == 1:
		return State{}, &ConflictError{Key: g.Key, Type: PlainLock}
	case !mode && len(s.Holds) > 0:
		return State{}, &ConflictError{Key: g.Key, Type: "hash without a mode"}
	}
	s.Shared = shared
	return s, nil
}
