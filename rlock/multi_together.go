package rlock

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// together returns the longest run of next members for one script: on one server, and as far as this
// client knows, none held or waited for by its goroutines.
func together(held context.Context, next []*Lock) []*Lock {
	n := 0
	for n < len(next) {
		l := next[n]
		p, ok := l.wire.(*kind.Plain)
		if !ok || !p.Joint() || l.client != next[0].client || holdIn(held, l) != nil || l.queues.busy(l) || l.queues.holder(l) != nil {
			break
		}
		if n > 0 && (l.key == next[n-1].key || !sameSlot(l.client, l.key, next[0].key)) {
			break
		}
		n++
	}
	return next[:n]
}

// sameSlot reports whether keys are known to be on one server, or in one cluster slot.
func sameSlot(c *Client, a, b string) bool {
	_, single := c.server.RDB.(*redis.Client) // a client of another type may be a cluster's
	return single && !c.slotted.Load() || hashTag(a) == hashTag(b)
}

// learnsSlots reports whether err is the first sign that a single server, or a proxy, looks at the slots
// of keys as a cluster does.
func (c *Client) learnsSlots(err error) bool {
	reply, ok := errors.AsType[redis.Error](err)
	return ok && request.HasCode(reply, "CROSSSLOT") && c.slotted.CompareAndSwap(false, true)
}

// hashTag is the part of a key that decides its slot. checkName has refused names whose braces make no
// hash tag.
func hashTag(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		key, _, _ = strings.Cut(rest, "}")
	}
	return key
}

// takeTogether takes members by one script: all or, with an error, none; or none without an error if the
// server has refused keys in different slots, so that the next call takes fewer. busy is the index of the
// first member held by somebody else.
func (h *MultiHold) takeTogether(held, wait context.Context, run []*Lock, once bool) (busy int, _ context.Context, err error) {
	first := run[0]
	c := first.client
	if err := first.begin(); err != nil {
		return 0, held, err
	}
	defer c.done()
	wait, stop := h.whileHeld(held, wait)
	defer stop()
	if wait.Err() != nil {
		return 0, held, tooLate(first.name, wait)
	}
	p := first.retries()
	p.Leaves = true
	grants, wanted := make([]*grant, len(run)), make([]lua.Wanted, len(run))
	for i, l := range run {
		p.Attempt = min(p.Attempt, l.bound()) // an answer must not come too late for any member
		grants[i] = l.newAttempt()
		wanted[i] = lua.Wanted{Grant: l.wire.(*kind.Plain).Of(grants[i].owner), Lease: l.terms.lease}
	}
	if p.Once = once; once {
		p.Total = p.Attempt
	}
	done, acquired := 0, false
	defer func() {
		for _, g := range grants[done:] { // after a panic: see send
			g.abandon(acquired)
		}
	}()
	a := send(wait, first, p, func(ctx context.Context, r lua.Runner) (lua.ReplyAll, error) {
		return lua.AcquireAll(ctx, r, wanted)
	}, func(r lua.ReplyAll, err error) {
		for _, g := range grants {
			g.late(lua.Reply{Acquired: r.Acquired}, err)
		}
	})
	acquired = a.Err == nil && a.Value.Acquired
	if err = a.Err; err == nil && !acquired {
		busy, err = a.Value.Busy, run[a.Value.Busy].refusal(a.Value.Holder, a.Value.TTL)
	}
	for i, g := range grants {
		note(g, a)
		if err == nil {
			g.token = a.Value.Tokens[i]
			var part *Hold
			if held, part, err = g.start(held, run[i]); err == nil {
				h.holds = append(h.holds, part)
				done++
				continue
			}
		}
		done++
		g.abandon(acquired)
	}
	if c.learnsSlots(err) { // nothing was taken: the caller tries again, with fewer
		err = nil
	}
	return busy, held, err
}

// takeOne takes a single member. Its requests have the values of wait.
func (h *MultiHold) takeOne(held, wait context.Context, member *Lock, once bool) (_ context.Context, err error) {
	if held.Err() != nil {
		return held, tooLate(member.name, held)
	}
	wait, stop := h.whileHeld(held, wait)
	defer stop()
	var part *Hold
	if once {
		held, part, err = member.tryLock(held, wait, false)
	} else {
		held, part, err = member.lock(held, wait, false)
	}
	if err == nil {
		h.holds = append(h.holds, part)
	}
	return held, err
}

// whileHeld returns the context of a request for further members: wait, ended also by the loss of a part,
// or by the closing of a part's client, as Close waits for that part.
func (h *MultiHold) whileHeld(held, wait context.Context) (_ context.Context, stop func()) {
	if len(h.holds) == 0 {
		return wait, func() {}
	}
	waiting, cancel := context.WithCancelCause(wait)
	leave := context.AfterFunc(held, func() {
		if why := context.Cause(held); errors.Is(why, ErrLeaseLost) || errors.Is(why, ErrClosed) { // for any other cause wait ends by itself
			cancel(why)
		}
	})
	return waiting, func() {
		leave()
		cancel(nil)
	}
}

// whileOpen returns the context of the requests for all members: wait, ended also, if the members have
// several clients, by the closing of any client: a request knows only its own.
func (m *MultiLock) whileOpen(wait context.Context) (_ context.Context, stop func()) {
	first := m.members[0].client
	if !slices.ContainsFunc(m.members, func(l *Lock) bool { return l.client != first }) {
		return wait, func() {}
	}
	open, cancel := context.WithCancelCause(wait)
	var watched []*Client
	for _, l := range m.members {
		if slices.Contains(watched, l.client) {
			continue
		}
		watched = append(watched, l.client)
		first.background(func() {
			select {
			case <-l.client.closing:
				cancel(l.isClosed())
			case <-open.Done():
			}
		})
	}
	return open, func() { cancel(nil) }
}

// closed is the error of a call that cannot have all members, because a member's client has closed; nil
// if all are open.
func (m *MultiLock) closed() error {
	for _, l := range m.members {
		if l.client.closed.Load() {
			return l.isClosed()
		}
	}
	return nil
}
