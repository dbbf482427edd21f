package lua

import (
	"context"
	_ "embed"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed rw.lua
var rwSource string

//go:embed rwread.lua
var rwReadSource string

//go:embed rwwrite.lua
var rwWriteSource string

//go:embed rwcount.lua
var rwCountSource string

//go:embed rwrelease.lua
var rwReleaseSource string

//go:embed rwrenew.lua
var rwRenewSource string

//go:embed rwforce.lua
var rwForceSource string

var (
	rwReadScript    = newScript("read", rwSource+tokenSource+rwReadSource, 1)
	rwWriteScript   = newScript("write", rwSource+tokenSource+rwWriteSource, 1)
	rwCountScript   = newScript("read/write count", announceSource+rwSource+rwCountSource, 0)
	rwReleaseScript = newScript("read/write release", announceSource+rwSource+rwReleaseSource, 0)
	rwRenewScript   = newScript("read/write renew", rwSource+rwRenewSource, 0)
	rwForceScript   = newScript("read/write force", announceSource+rwSource+rwForceSource, 0)
)

// RW names one acquisition of a read/write lock, for reading or writing. The
// data is that of Redisson's RReadWriteLock: the hash has a field `mode`, the
// hold counts of an owner are in the fields `owner` and `owner:write`, and each
// read hold has a key with a TTL of its own. An owner that ends in `:write` would
// be taken for another's.
//
// The scripts touch the keys of other owners' read holds, which they cannot
// declare. They are in the slot of the lock.
type RW struct {
	Grant
	Intent string // key that a waiting writer keeps new readers out with
	Holds  string // what the keys of read holds begin with; the owner follows
}

// hold names the key of the n-th read hold.
func (g RW) hold(n int) string { return g.Holds + g.Owner + ":rwlock_timeout:" + strconv.Itoa(n) }

// AcquireRead takes the lock for reading, if nobody holds it for writing or says
// that it waits to. Token is that of the newest writer. It is otherwise as
// [Acquire].
func AcquireRead(ctx context.Context, r Runner, g RW, lease time.Duration) (Reply, error) {
	keys := []string{g.Key, g.Intent, g.hold(1)}
	if g.Counter != "" {
		keys = append(keys, g.Counter)
	}
	answer, err := rwReadScript.run(ctx, r, keys, millis(lease), g.Owner, g.Holds)
	if err != nil {
		return Reply{}, err
	}
	reply, err := answer.granted(true)
	reply.Writer = !answer.done && answer.int(3) == 1
	return reply, err
}

// AcquireWrite takes the lock for writing, if nobody holds it. Readers whose
// leases are over do not. With an intent, a refusal by readers keeps new ones out
// for so long, and Leftover says so: until g.Owner acquires or is released, or
// somebody else ceases to write. It is otherwise as [Acquire].
func AcquireWrite(ctx context.Context, r Runner, g RW, lease, intent time.Duration) (Reply, error) {
	keys := []string{g.Key, g.Intent}
	if g.Counter != "" {
		keys = append(keys, g.Counter)
	}
	answer, err := rwWriteScript.run(ctx, r, keys, millis(lease), g.Owner, g.Holds, intent.Milliseconds())
	if err != nil {
		return Reply{}, err
	}
	reply, err := answer.granted(true)
	reply.Leftover = !answer.done && answer.int(3) == 1
	return reply, err
}

// runApart runs the script once more, with its first key alone, if a server has only some
// of the keys as their slot moves. The others are found where they are together with it.
// The first error is returned if that does not do: what is there may be together soon.
func (s *script) runApart(ctx context.Context, r Runner, keys []string, args ...any) (reply, error) {
	answer, err := s.run(ctx, r, keys, args...)
	if !redis.HasErrorPrefix(err, slotMoves) {
		return answer, err
	}
	if answer, again := s.run(ctx, r, keys[:1], args...); again == nil || !elsewhere(again) {
		return answer, again
	}
	return answer, err
}

// elsewhere tells of an error that a key of a script is not there because the slot moves: as
// most servers put it, or Redis 8.
func elsewhere(err error) bool {
	return strings.Contains(err.Error(), "non local key") || strings.Contains(err.Error(), "undeclared keys were accessed during rehashing")
}

// CountRW makes writes and reads the hold counts of g.Owner, which are not both 0, and extends
// its leases to at least the given one. Less than 0 reads are none. A writer left with reads
// only has become one reader among others, which is announced. [ErrNotOwner]: there is no such
// grant, or it is for reading and writes is not 0.
func CountRW(ctx context.Context, r Runner, g RW, lease time.Duration, writes, reads int) error {
	reads = max(reads, 0)
	keys := make([]string, 0, 2+reads)
	keys = append(keys, g.Key, g.Intent)
	for n := range reads {
		keys = append(keys, g.hold(n+1))
	}
	return owned(rwCountScript.runApart(ctx, r, keys, millis(lease), g.Owner, g.Holds, writes, reads, g.ChannelKind.publish(), g.Channel, g.Intent))
}

// ReleaseRW ends all that g.Owner holds, takes back its intent, and announces
// what concerns others. ErrNotOwner: g.Owner held nothing.
func ReleaseRW(ctx context.Context, r Runner, g RW) (Released, error) {
	answer, err := rwReleaseScript.runApart(ctx, r, []string{g.Key, g.Intent, g.hold(1)}, g.Owner, g.Holds, g.ChannelKind.publish(), g.Channel, g.Intent)
	if err := owned(answer, err); err != nil {
		return Released{}, err
	}
	return Released{PublishErr: g.refusal(answer.text(2))}, nil
}

// RenewalRW is a lease of g to extend by [Renew]. The key of a read hold is declared for
// servers that insist on that, and left out while a cluster slot moves.
func RenewalRW(g RW, lease time.Duration) Renewal {
	return Renewal{Grant: g.Grant, Lease: lease, other: &rwRenewScript, keys: []string{g.hold(1)}, args: []any{g.Holds}}
}

// ForceReleaseRW removes the lock, whoever holds it, and any intent. It is
// otherwise as [ForceRelease].
func ForceReleaseRW(ctx context.Context, r Runner, g RW) (bool, error) {
	answer, err := rwForceScript.runApart(ctx, r, []string{g.Key, g.Intent}, g.ChannelKind.publish(), g.Channel, g.Intent)
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
