package rlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// NewMultiLock returns a lock that consists of other locks, of any kinds and clients: held when all
// members are. A failure leaves nothing. A member may be a multi lock, replaced by its members.
//
// The members are waited for in the order of their keys, whatever the order given, and only while the
// members before are held: overlapping sets never wait for each other. (Locks with the same key go by the
// address of their server as known to the client, quorum locks by the addresses of all their servers,
// then as given; there, a writer comes before its reader. Processes that know a server by different
// addresses, or by none, as a cluster, have to give such locks in the same order.) Free plain members of
// one client are taken in one script, all or none, unless they are in different slots of a cluster: three
// uncontended plain locks are one round trip. Fair members are taken alone, as other clients may queue.
// Losing a member during the wait for another starts all over. Under a context that owns a lost member,
// the error is [ErrLeaseLost]; after the close of any member's client, [ErrClosed].
//
// When a member cannot be had, the taken members are unlocked before the call returns; if the call's
// context ends meanwhile, the unlocking goes on in the background. TryLock waits for the unlocking, on a
// silent server for as long as UnlockTimeout.
//
// The returned context descends from the contexts of all members and ends when any member is lost, with
// that member's [*LostError]; the other members are kept until Unlock, which releases all at once and
// joins the errors. Below the context each member re-enters, alone or in another multi lock; a lock given
// twice is held twice. Options, owners and tokens are the members': the Hold has no owner or token, but
// locking a fenced member below tells the member's token. HoldCount is the least of the members'.
//
// Inspect, ForceUnlock and UnlockOwner are [ErrInvalidOption], as a server has nothing but the members.
// So is every method if there are no members, a member is nil or invalid, or two clients of one
// connection, or of one address, stand for the same key, and so would wait for each other.
func NewMultiLock(locks ...*Lock) *Lock {
	l := noLock("", multiKind)
	var m multi
	for _, member := range locks {
		if member == nil {
			l.refuse(errors.New("a member of the multi lock is nil"))
			return l
		}
		if member.members != nil {
			m = append(m, member.members...)
		} else {
			part := *member
			part.part = true
			m = append(m, &part)
		}
		if member.err != nil {
			l.err = member.err
		}
	}
	if l.err != nil {
		return l
	}
	if len(m) == 0 {
		l.refuse(errors.New("a multi lock without members"))
		return l
	}
	slices.SortStableFunc(m, canonical)
	names := make([]string, len(m))
	for i, member := range m {
		names[i] = member.name
		for _, other := range m[:i] {
			if member.client != other.client && member.key == other.key && member.sameServers(other) {
				l.refuse(fmt.Errorf("two clients of one server have the lock %s, and would wait for each other: use locks of one client", quote(member.name)))
			}
		}
	}
	l.client, l.name, l.members, l.queues = m[0].client, strings.Join(names, ","), m, m[0].queues
	return l
}

// canonical is the order of waiting for members, the same in all processes.
func canonical(a, b *Lock) int {
	switch order := cmp.Or(strings.Compare(a.slot, b.slot), slices.Compare(a.addresses(), b.addresses())); {
	case order != 0 || a.terms.shared == b.terms.shared:
		return order
	case a.terms.shared:
		return 1
	}
	return -1
}

// sameServers reports whether two locks are known to be on the same servers.
func (l *Lock) sameServers(other *Lock) bool {
	at := l.addresses()
	known := !slices.ContainsFunc(at, func(a string) bool { return a == "" || strings.HasPrefix(a, "FailoverClient ") }) // Sentinels' clients all have that address
	return l.client.server.RDB == other.client.server.RDB || known && slices.Equal(at, other.addresses())
}

// addresses names the known servers of a lock, in the same order in all processes.
func (l *Lock) addresses() []string {
	at := []string{l.client.address()}
	for _, c := range l.peers {
		at = append(at, c.address())
	}
	slices.Sort(at)
	return at
}

// address names the client's server, if known.
func (c *Client) address() string {
	if rdb, ok := c.server.RDB.(*redis.Client); ok {
		return rdb.Options().Addr + " " + strconv.Itoa(rdb.Options().DB)
	}
	return ""
}

// multi are the members of a multi lock, in canonical order. The lock has no key of its own.
type multi []*Lock

var errMembers = errors.New("a multi lock has no data of its own on a server: inspect or unlock its members")

// lockMembers waits for all members, as long as wait allows.
func (l *Lock) lockMembers(ctx, wait context.Context) (context.Context, *Hold, error) {
	for {
		held, hold, err := l.takeMembers(ctx, wait, false)
		if (errors.Is(err, ErrLeaseLost) || errors.Is(err, errLate)) && ctx.Err() == nil && wait.Err() == nil && !l.members.lostIn(ctx) {
			continue // a member was lost while others were waited for
		}
		return held, hold, err
	}
}

// lostIn reports whether ctx owns a lost grant of a member. Under such a context that member cannot be
// taken.
func (m multi) lostIn(ctx context.Context) bool {
	return slices.ContainsFunc(m, func(l *Lock) bool {
		in := holdIn(ctx, l)
		return in != nil && in.grant.lossOrNil() != nil
	})
}

// takeMembers takes the members in order, several by one script where possible. once says not to wait.
func (l *Lock) takeMembers(ctx, wait context.Context, once bool) (held context.Context, _ *Hold, err error) {
	m, all := l.members, &Hold{parts: &team{lock: l}}
	held = ctx
	var refusal *NotAcquiredError // the newest refusal with the holder of a member
	defer func() {
		if err != nil {
			held, err = ctx, cmp.Or(m.closed(), refusal.inform(err))
		}
		if len(all.parts.holds) < len(m) { // also after a panic: see send
			all.abandon(m[0].client, wait)
		}
	}()
	if err := m.closed(); err != nil {
		return held, nil, err
	}
	open, stop := m.whileOpen(wait)
	defer stop()
	for limit := len(m); len(all.parts.holds) < len(m); {
		next := m[len(all.parts.holds):limit]
		if run := together(held, next); len(run) > 1 {
			var busy int
			busy, held, err = all.takeTogether(held, open, run, once)
			if err == nil {
				continue
			}
			refused, ok := err.(*NotAcquiredError)
			if !ok || once {
				return held, nil, err
			}
			if refused.Holder != "" {
				refusal = refused
			}
			if busy > 0 {
				limit = len(all.parts.holds) + busy
				continue
			}
		}
		if held, err = all.takeOne(held, open, m[len(all.parts.holds)], once); err != nil {
			return held, nil, err
		}
		limit = len(m)
	}
	all.parts.began = time.Now()
	return held, all, nil
}

// takeOne takes a single member. Its requests have the values of wait.
func (h *Hold) takeOne(held, wait context.Context, member *Lock, once bool) (context.Context, error) {
	if held.Err() != nil {
		return held, member.tooLate(held)
	}
	wait, stop := h.whileHeld(held, wait)
	defer stop()
	take := member.lock
	if once {
		take = member.tryLock
	}
	inner, part, err := take(held, wait)
	if err == nil {
		h.parts.holds = append(h.parts.holds, part)
	}
	return inner, err
}

// abandon unlocks the parts, and waits for the unlocking no longer than wait allows.
func (h *Hold) abandon(c *Client, wait context.Context) {
	if len(h.parts.holds) == 0 {
		return
	}
	done := make(chan struct{})
	c.background(func() {
		defer close(done)
		_ = h.unlockParts(context.WithoutCancel(wait)) // their leases end all the same
	})
	select {
	case <-done:
	case <-wait.Done():
	}
}

// team is the holds of a multi lock's members.
type team struct {
	lock  *Lock
	holds []*Hold
	began time.Time   // when all members were held
	over  atomic.Bool // unlocked
}

// unlockAll is the Unlock of a multi lock. A second call is an error.
func (h *Hold) unlockAll(ctx context.Context) []error {
	t := h.parts
	if !t.over.CompareAndSwap(false, true) {
		return []error{&lockError{t.lock.name, ErrNotHeld, nil}}
	}
	errs := h.unlockParts(ctx)
	if t.counts() {
		t.countReleased(ctx, joined(errs))
	}
	return errs
}

// counts reports whether the multi lock is an acquisition of its own: not if ctx owned all members
// before.
func (t *team) counts() bool {
	return slices.ContainsFunc(t.holds, func(part *Hold) bool { return part.parent == nil })
}

// countReleased notes the end of the multi lock.
func (t *team) countReleased(ctx context.Context, err error) {
	o := OutcomeReleased
	switch {
	case errors.Is(err, ErrLeaseLost):
		o = OutcomeLost
	case err != nil:
		o = OutcomeUnavailable
	}
	t.lock.countReleased(ctx, 1, Release{Outcome: o, Held: time.Since(t.began)})
}

// unlockParts unlocks all parts at once, and returns the errors.
func (h *Hold) unlockParts(ctx context.Context) []error {
	errs := make([]error, len(h.parts.holds))
	var wg sync.WaitGroup
	for i, part := range h.parts.holds {
		wg.Go(func() { errs[i] = part.Unlock(ctx) })
	}
	wg.Wait()
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// joined is the error of several. A single error is unchanged, so that it is equal to the context's
// cause.
func joined(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// untilParts is the earliest end of the members' trusted windows.
func (h *Hold) untilParts() time.Time {
	until := h.parts.holds[0].Until()
	for _, part := range h.parts.holds[1:] {
		if t := part.Until(); t.Before(until) {
			until = t
		}
	}
	return until
}

func (m multi) holdCount(ctx context.Context) int {
	n := m[0].HoldCount(ctx)
	for _, member := range m[1:] {
		n = min(n, member.HoldCount(ctx))
	}
	return n
}
