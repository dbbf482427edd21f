package rlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/trace"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// MultiLock combines several locks. You hold a multi lock when you hold all of its members. It has no
// state of its own, and its methods are safe for concurrent use. See [NewMultiLock].
type MultiLock struct {
	name    string  // of the members, with commas between
	members []*Lock // in canonical order
	err     error   // why no method works

	group    *group    // that of all members, or none; of the client of the first member, as are the counters
	counters *counters // for the calls of the multi lock
}

// NewMultiLock returns a lock that combines other locks, which can be of any kind and of several
// clients. A lock call acquires either all members or none. To combine a multi lock with further locks, pass its
// [MultiLock.Members].
//
// The members are acquired in the order of their keys, whatever the order of the arguments. A call
// that waits for a member holds only members before it in this order. So calls with overlapping sets of
// members never deadlock. Locks that have the same key on different servers are ordered by the address
// of the server as the client knows it. A quorum lock is ordered by the addresses of all its servers.
// Of the two sides of a read/write lock, the writer comes first. If processes know a server by
// different addresses, or do not know its address, as in a cluster, all processes must pass such locks
// in the same order.
//
// Lock acquires up to 1,024 free plain members together, in one or two round trips. Up to 128 members
// on one server, or in one slot of a cluster, are acquired by one script, and the scripts are sent to
// all servers at the same time. If one script is refused, the members that the other scripts have
// acquired are released, and Lock waits for the members in the order above. So Lock can hold a free
// member for a moment while another member is held by another client. TryLock sends its scripts one
// after the other, in the order above. So if two TryLocks of the same members run at the same time, one
// of them succeeds. Each fair member takes a round trip of its own, because other clients may be queued
// for it. If a member is lost while Lock waits for another one, Lock starts again from the beginning.
//
// If a member cannot be acquired, the call unlocks the others before it returns. If the call's context
// ends in the meantime, it returns, and the others are unlocked in the background. TryLock waits until
// the others are unlocked. If a server does not respond, it waits for up to the UnlockTimeout of the
// client.
//
// The returned context owns all members. When a member is lost, the context ends with that member's
// [*LostError], and the other members stay held until Unlock. Under this context, each member can be
// locked again without waiting, alone or in another multi lock. If you pass a lock twice, it is held
// twice. Options, owners and tokens belong to the members.
//
// Every method returns [ErrInvalidOption] if there are no members, if a member is nil or invalid, or if
// two members with the same key belong to different clients with the same connection or address. Such
// members would wait for each other. If ctx owns a member that was lost, the error is [ErrLeaseLost].
// After the client of a member was closed, the error is [ErrClosed].
func NewMultiLock(locks ...*Lock) *MultiLock {
	m := &MultiLock{members: slices.Clone(locks)} // also if refused: a multi lock of the same members is refused as well
	refuse := func(why error) *MultiLock {
		m.err = &lockError{"", ErrInvalidOption, why}
		return m
	}
	for _, member := range locks {
		switch {
		case member == nil:
			return refuse(errors.New("a member of the multi lock is nil"))
		case member.err != nil:
			m.err = member.err
			return m
		}
	}
	if len(locks) == 0 {
		return refuse(errors.New("a multi lock without members"))
	}
	slices.SortStableFunc(m.members, canonical)
	names := make([]string, len(m.members))
	for i, member := range m.members {
		names[i] = member.name
		for j := i - 1; j >= 0 && m.members[j].slot == member.slot; j-- { // sorted: only neighbours may have the same key
			if other := m.members[j]; member.client != other.client && member.key == other.key && member.sameServers(other) {
				return refuse(fmt.Errorf("two clients of one server have the lock %s, and would wait for each other: use locks of one client", quote(member.name)))
			}
		}
	}
	m.name = strings.Join(names, ",")
	first := m.members[0]
	m.group, m.counters = first.group, first.counters
	if slices.ContainsFunc(m.members, func(l *Lock) bool { return l.group.name != first.group.name }) {
		m.group = &first.client.groups.none
		m.counters = &m.group.counters[0]
	}
	return m
}

// Name returns the names of the members, separated by commas.
func (m *MultiLock) Name() string { return m.name }

// Members returns the members in the order in which they are acquired. To make a multi lock of these
// members and a further lock, write
//
//	rlock.NewMultiLock(append(others.Members(), further)...)
func (m *MultiLock) Members() []*Lock { return slices.Clone(m.members) }

// Lock acquires all members, and waits for them as [Lock.Lock] does.
func (m *MultiLock) Lock(ctx context.Context) (context.Context, *MultiHold, error) {
	return m.lock(ctx, ctx, false)
}

// TryLockFor is [MultiLock.Lock] with a limit for the wait, as in [Lock.TryLockFor].
func (m *MultiLock) TryLockFor(ctx context.Context, wait time.Duration) (context.Context, *MultiHold, error) {
	if wait <= 0 {
		return m.TryLock(ctx)
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return m.lock(ctx, waiting, false)
}

// TryLock makes one attempt to acquire all members, without waiting, as [Lock.TryLock] does.
func (m *MultiLock) TryLock(ctx context.Context) (context.Context, *MultiHold, error) {
	return m.lock(ctx, ctx, true)
}

// Do is [Lock.Do] for all members together.
func (m *MultiLock) Do(ctx context.Context, fn func(context.Context) error) error {
	held, hold, err := m.Lock(ctx)
	return hold.do(held, err, fn)
}

// DoFor is [Lock.DoFor] for all members together.
func (m *MultiLock) DoFor(ctx context.Context, wait time.Duration, fn func(context.Context) error) error {
	held, hold, err := m.TryLockFor(ctx, wait)
	return hold.do(held, err, fn)
}

// TryDo is [Lock.TryDo] for all members together.
func (m *MultiLock) TryDo(ctx context.Context, fn func(context.Context) error) error {
	held, hold, err := m.TryLock(ctx)
	return hold.do(held, err, fn)
}

// HoldCount returns the smallest [Lock.HoldCount] of the members.
func (m *MultiLock) HoldCount(ctx context.Context) int {
	if m.err != nil {
		return 0
	}
	n := m.members[0].HoldCount(ctx)
	for _, member := range m.members[1:] {
		n = min(n, member.HoldCount(ctx))
	}
	return n
}

// canonical is the order of waiting for members, the same in all processes.
func canonical(a, b *Lock) int {
	if order := strings.Compare(a.slot, b.slot); order != 0 {
		return order
	}
	return cmp.Or(slices.Compare(a.addresses(), b.addresses()), writerFirst(a, b))
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

// lock takes all members, and counts the call as one, for the client of the first member.
func (m *MultiLock) lock(ctx, wait context.Context, once bool) (held context.Context, hold *MultiHold, err error) {
	if m.err != nil {
		return ctx, nil, m.err
	}
	region := trace.StartRegion(wait, "rlock.acquire")
	defer region.End()
	c, n, began := m.members[0].client, m.counters, time.Now()
	n.kinds[multiKind].started.Add(1)
	wait = c.traceStart(wait, m.name, multiKind)
	defer func() {
		err = ownHolder(ctx, err)
		o, waited := nestedOutcome, time.Since(began)
		switch {
		case hold == nil:
			o = failure(err)
		case hold.counts():
			o = acquiredOutcome
		}
		n.called(multiKind, o, waited)
		if f := c.opts.Trace.Acquired; f != nil {
			c.observe(func() {
				f(wait, Acquisition{Lock: m.name, Kind: KindMulti, Outcome: o.name(), Waited: waited, Err: err, Group: m.group.name})
			})
		}
	}()
	if c.begin() != nil {
		return ctx, nil, &lockError{m.name, ErrClosed, nil}
	}
	defer c.done()
	if wait.Err() != nil {
		return ctx, nil, tooLate(m.name, wait)
	}
	for {
		held, hold, err = m.take(ctx, wait, once)
		again := !once && (errors.Is(err, ErrLeaseLost) || errors.Is(err, errLate)) // a member was lost while others were waited for
		if !again || ctx.Err() != nil || wait.Err() != nil || m.lostIn(ctx) {
			return held, hold, err
		}
	}
}

// lostIn reports whether ctx owns a lost grant of a member. Under such a context that member cannot be
// taken.
func (m *MultiLock) lostIn(ctx context.Context) bool {
	return slices.ContainsFunc(m.members, func(l *Lock) bool {
		in := holdIn(ctx, l)
		return in != nil && in.grant.lossOrNil() != nil
	})
}

// take takes the members in order, many at once where possible. once says not to wait.
//
// Nothing is waited for while members are held out of order: a refused attempt at several scripts is
// released first. After a refusal few scripts are sent at once, and twice as many with each success, so
// that the released members are not many more than the taken ones. Two callers that refuse each other
// both go on with fewer scripts, and at last with one member, for which one of them waits:
//
//	A takes a, B takes b     both want a and b
//	A is refused b, B is refused a
//	A and B release, and ask for a alone
//	A has a; B waits for a, and holds nothing
//	A takes b
func (m *MultiLock) take(ctx, wait context.Context, once bool) (held context.Context, _ *MultiHold, err error) {
	all := &MultiHold{lock: m}
	held = ctx
	var refusal *NotAcquiredError // the newest refusal with the holder of a member
	defer func() {
		if err != nil {
			held, err = ctx, cmp.Or(m.closed(), refusal.inform(err))
		}
		if len(all.holds) < len(m.members) { // also after a panic: see send
			all.abandon(wait)
		}
	}()
	if err := m.closed(); err != nil {
		return held, nil, err
	}
	open, stop := m.whileOpen(wait)
	defer stop()
	widest := maxTogether
	if once { // otherwise two such calls could refuse each other, and both fail
		widest = 1
	}
	for limit, most := len(m.members), widest; len(all.holds) < len(m.members); most = min(2*most, widest) {
		next := m.members[len(all.holds):min(limit, len(all.holds)+maxTogether)]
		if pieces := together(ctx, next, most); len(pieces) > 1 || len(pieces) == 1 && len(pieces[0]) > 1 {
			var busy int
			busy, held, err = all.takeTogether(held, open, pieces, once)
			if err == nil {
				continue
			}
			refused, ok := err.(*NotAcquiredError)
			if !ok && open.Err() != nil && !errors.Is(err, open.Err()) { // the release has taken the rest of the time
				err = pieces[0][0].givenUp(open, err)
			}
			if once || !ok && (len(pieces) == 1 || open.Err() != nil) {
				return held, nil, err
			}
			if ok && refused.Holder != "" {
				refusal = refused
			}
			limit, most = len(all.holds)+busy, 1
			continue
		}
		if held, err = all.takeOne(held, open, m.members[len(all.holds)], once); err != nil {
			return held, nil, err
		}
		limit = len(m.members)
	}
	all.began = time.Now()
	return held, all, nil
}

// MultiHold is one successful acquisition of a [MultiLock], and contains one hold of each member. Its
// methods are safe for concurrent use. It must not be copied. A call that fails returns a nil
// MultiHold, whose methods work like those of a nil [Hold].
type MultiHold struct {
	_        noCopy
	lock     *MultiLock
	holds    []*Hold
	began    time.Time   // when all members were held
	unlocked atomic.Bool // by the first Unlock
}

// Unlock unlocks all members at the same time, each as [Hold.Unlock] does, and joins their errors. A
// second call returns [ErrNotHeld].
func (h *MultiHold) Unlock(ctx context.Context) error {
	if h == nil { // the acquisition has failed
		return ErrNotHeld
	}
	return joined(h.unlock(ctx))
}

// Until returns the earliest [Hold.Until] of the members.
func (h *MultiHold) Until() time.Time {
	if h == nil {
		return time.Time{}
	}
	until := h.holds[0].Until()
	for _, part := range h.holds[1:] {
		if t := part.Until(); t.Before(until) {
			until = t
		}
	}
	return until
}

// Holds returns the holds of the members, in the order of [MultiLock.Members]. Use them to read owners,
// tokens and proofs. Unlock only the MultiHold, not the holds in it.
func (h *MultiHold) Holds() []*Hold {
	if h == nil {
		return nil
	}
	return slices.Clone(h.holds)
}

// do is [Hold.do].
func (h *MultiHold) do(held context.Context, failed error, fn func(context.Context) error) (err error) {
	if failed != nil {
		return failed
	}
	defer func() { err = withUnlock(err, h.unlock(held)...) }()
	return fn(held)
}

// counts reports whether the hold is an acquisition of its own: not if ctx owned all members before.
func (h *MultiHold) counts() bool {
	return slices.ContainsFunc(h.holds, func(part *Hold) bool { return part.parent == nil })
}

// unlock is Unlock with separate errors.
func (h *MultiHold) unlock(ctx context.Context) []error {
	if !h.unlocked.CompareAndSwap(false, true) {
		return []error{&lockError{h.lock.name, ErrNotHeld, nil}}
	}
	if ctx == nil { // see Hold.Unlock
		ctx = context.Background()
	}
	errs := h.unlockParts(ctx)
	if h.counts() {
		o, err := OutcomeReleased, joined(errs)
		switch {
		case errors.Is(err, ErrLeaseLost):
			o = OutcomeLost
		case err != nil:
			o = OutcomeUnavailable
		}
		h.lock.members[0].client.countReleased(ctx, h.lock.counters, multiKind, Release{Lock: h.lock.name, Outcome: o, Held: time.Since(h.began), Group: h.lock.group.name})
	}
	return errs
}

// unlockParts unlocks all parts at once, and returns the errors.
func (h *MultiHold) unlockParts(ctx context.Context) []error {
	errs := make([]error, len(h.holds))
	var wg sync.WaitGroup
	for i, part := range h.holds {
		wg.Go(func() { errs[i] = part.Unlock(ctx) })
	}
	wg.Wait()
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// joined is the error of several. A single error is unchanged, and so equal to the context's cause.
func joined(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// abandon unlocks the parts, and waits for the unlocking no longer than wait allows.
func (h *MultiHold) abandon(wait context.Context) {
	if len(h.holds) == 0 {
		return
	}
	done := make(chan struct{})
	h.lock.members[0].client.background(func() {
		defer close(done)
		_ = h.unlockParts(context.WithoutCancel(wait)) // without success the leases end all the same
	})
	select {
	case <-done:
	case <-wait.Done():
	}
}
