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

// RW has the keys and the owner of one acquisition of a read/write lock. The data is the same as for Redisson's
// RReadWriteLock. The hash has a field `mode`. The hold counts of an owner are in two fields, named `owner` and
// `owner:write`, where owner stands for its name. Each read hold has a key of its own with a TTL. The name of
// an owner must not end in `:write`.
//
// The scripts use the keys of other owners' read holds without declaring them. In a cluster, the keys of read
// holds are in the slot of the lock.
type RW struct {
	Grant         // with the Queue [QueueOfRW] and the Channel [UnlockChannelRW]
	Holds  string // the beginning of the keys of read holds, which is followed by the owner
	Shared bool   // true for reading; only AskRW uses it
}

// QueueOfRW returns the name of the queue of a read/write lock. It is different from the queue of a plain lock,
// so if a name is used for both kinds by mistake, each kind keeps its own queue.
func QueueOfRW(key string) string { return Own("rlock_rwqueue", key) }

// UnlockChannelRW returns the name of the channel on which releases of a read/write lock are published for the
// waiters of Redisson.
func UnlockChannelRW(key string) string { return Related("redisson_rwlock", key) }

// GrantChannelRW returns the name of the channel on which a client receives grants of the queue of a read/write
// lock, see [ReadMessages].
func GrantChannelRW(key, client string) string { return Own("rlock_rwchannel", key) + ":" + client }

// hold names the key of the n-th read hold.
func (g RW) hold(n int) string { return g.Holds + g.Owner + ":rwlock_timeout:" + strconv.Itoa(n) }

// AskRW acquires the lock for g.Owner if the lock permits it and no other owner is ahead in the queue. A writer
// needs a free lock, and a reader can join other readers. If AskRW does not acquire the lock, g.Owner gets a
// ticket, or keeps its ticket and place if it already has one, as in [Ask]. An owner that does not want a
// ticket acquires the lock only if no owner is queued. A reader whose lease is over does not keep other owners
// out. If the lock is free but other owners are ahead in the queue, AskRW grants the lock to them.
//
// If g.Owner is a reader, Token in [Reply] is the token of the latest writer. Writer in Reply is set if only a
// waiting writer keeps the reader out.
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

// CountRW sets the numbers of write holds and read holds of g.Owner, which must not both be 0, and extends its
// leases to at least the given length. A negative number of reads counts as 0. If a writer is left with read
// holds only, it becomes a reader, and the readers at the head of the queue acquire the lock, as in
// [ReleaseRW]. [ErrNotOwner] means that g.Owner does not hold the lock, or that it holds the lock for reading
// only and writes is not 0.
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

// ReleaseRW ends the grant of g.Owner, and removes its ticket and the tickets of e. It passes the lock on to as
// many owners at the head of the queue as can hold it together. If no owner is queued, the release is published
// on the unlock channel. Message in [Released] is for waiters of the same client. ErrNotOwner means that
// g.Owner did not hold the lock. After ErrNotOwner, an earlier delivery of the same request may have released
// the lock, and may have granted it to waiters of the same client. ReleaseRW uses only Tickets and Evict of e.
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

// RenewalRW returns a renewal of a lease of g, for [Renew]. The script declares the key of the read hold,
// because some servers require this, except while a cluster slot moves.
func RenewalRW(g RW, lease time.Duration) Renewal {
	return Renewal{Grant: g.Grant, Lease: lease, other: &rwRenewScript, keys: []string{g.hold(1)}, args: []any{g.Holds}}
}

// ForceReleaseRW removes the lock, whichever owners hold it, and passes the lock on to the next owners in the
// queue. As with [ForceRelease], do not repeat it if its outcome is not known.
func ForceReleaseRW(ctx context.Context, r Runner, g RW) (bool, error) {
	keys := append(make([]string, 0, 3), g.Key, g.Queue)
	if g.Counter != "" {
		keys = append(keys, g.Counter)
	}
	answer, err := rwForceScript.runApart(ctx, r, g, nil, keys, g.ChannelKind.Publish(), g.Channel, g.Holds)
	return answer.done, err
}

var errMode = errors.New("neither read nor write")

// InspectRW reads the state of the lock of g. It does not use g.Owner. A reader that has died is shown until a
// writer wants the lock.
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
