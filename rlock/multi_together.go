package rlock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// maxTogether is how many members a call asks for at once: as many as one pipeline has requests, as each may
// be one, sent by a goroutine of its own. While one attempt lasts, 20,000 members in two hundred scripts
// would keep a slow server busy for longer than an answer may take.
const maxTogether = 1024

// together returns the longest run of next members that scripts may take: as far as this client knows,
// none is held or waited for by its goroutines. The run is cut into pieces, at most as many as most. A
// piece is on one server, or in one slot, and one script takes all of it or nothing.
func together(ctx context.Context, next []*Lock, most int) (pieces [][]*Lock) {
	for i, l := range next {
		p, ok := l.wire.(*kind.Plain)
		if !ok || !p.Joint() || holdIn(ctx, l) != nil || l.queues.busy(l) || i > 0 && l.key == next[i-1].key {
			break
		}
		last := len(pieces) - 1
		if last < 0 || len(pieces[last]) == lua.MaxParts || l.client != pieces[last][0].client || !sameSlot(l.client, l.key, pieces[last][0].key) {
			if len(pieces) == most {
				break
			}
			pieces, last = append(pieces, next[i:i]), last+1
		}
		pieces[last] = pieces[last][:len(pieces[last])+1]
	}
	return pieces
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

// piece is members for one script, and the answer.
type piece struct {
	run    []*Lock
	owners []candidate // one for each of run
	held   int         // so many of them have a grant
	answer request.Answer[lua.ReplyAll]
	busy   int // the first member of run held by somebody else
	err    error
	panics any // what a hook has panicked with
}

// ask asks for the members of a piece.
func (t *piece) ask(wait context.Context, p request.Policy) {
	first := t.run[0]
	if t.err = first.begin(); t.err != nil {
		return
	}
	defer first.client.done()
	t.err = &lockError{first.name, ErrUnavailable, request.ErrNoAnswer} // if a hook ends the goroutine
	p.Leaves, p.Stop = true, first.client.closing
	t.owners = make([]candidate, len(t.run))
	wanted := make([]lua.Wanted, len(t.run))
	for i, l := range t.run {
		t.owners[i].init(l).askedTogether(request.Unsettled{Doubt: true}, false) // if a hook ends the goroutine
		wanted[i] = lua.Wanted{Grant: l.wire.(*kind.Plain).Of(t.owners[i].name), Lease: l.terms.lease}
	}
	t.answer = send(wait, first, p, func(ctx context.Context, r lua.Runner) (lua.ReplyAll, error) {
		return lua.AcquireAll(ctx, r, wanted)
	}, func(r lua.ReplyAll, err error) {
		for i := range t.owners {
			t.owners[i].late(t.owners[i].name, lua.Reply{Acquired: r.Acquired}, err)
		}
	})
	if t.err = t.answer.Err; t.err == nil && !t.answer.Value.Acquired {
		t.busy = t.answer.Value.Busy
		t.err = t.run[t.busy].refusal(t.answer.Value.Holder, t.answer.Value.TTL)
	}
	for i := range t.owners {
		t.owners[i].askedTogether(t.answer.Unsettled, t.acquired())
	}
}

// acquired reports whether the server has granted the members.
func (t *piece) acquired() bool { return t.answer.Err == nil && t.answer.Value.Acquired }

// take takes the hold of the next member.
func (t *piece) take(held context.Context) (context.Context, *Hold, error) {
	l := t.run[t.held]
	g, err := l.enlist(&t.owners[t.held], t.answer.Sent, t.answer.Value.Tokens[t.held], 0)
	if err != nil {
		return held, nil, err
	}
	held, part, err := g.take(held, l, false)
	t.held++
	if err != nil {
		g.forgo()
	}
	return held, part, err
}

// policy is the policy of a request for the members of all pieces.
func (h *MultiHold) policy(pieces [][]*Lock, once bool) request.Policy {
	p := pieces[0][0].policy
	for _, run := range pieces {
		for _, l := range run {
			p.Attempt = min(p.Attempt, l.bound) // an answer must not come too late for any member
		}
	}
	if p.Once = once || len(pieces) > 1; p.Once {
		p.Total = p.Attempt
		return p
	}
	if len(h.holds) > 0 { // the call has been answered before: see asker.patient
		var denied time.Time
		p.Patient = func(err error) bool {
			if denied.IsZero() {
				denied = time.Now()
			}
			return !stays(err) && time.Since(denied) < patience
		}
	}
	return p
}

// takeTogether takes the members of all pieces: all or, with an error, none; or none without an error if
// the server has refused keys in different slots, so that the next call takes fewer. busy is the index of
// the first member that could not be had. Several pieces are asked for at once, for no longer than one
// attempt; the error of a further attempt, in order, counts.
func (h *MultiHold) takeTogether(held, wait context.Context, pieces [][]*Lock, once bool) (busy int, _ context.Context, err error) {
	wait, stop := h.whileHeld(held, wait)
	defer stop()
	if wait.Err() != nil {
		return 0, held, tooLate(pieces[0][0].name, wait)
	}
	p := h.policy(pieces, once)
	all := make([]piece, len(pieces))
	for i, run := range pieces {
		all[i].run = run
	}
	defer func() {
		for i := range all { // after a refusal, an error, or a panic: see send
			for rest := all[i].owners[all[i].held:]; len(rest) > 0; rest = rest[1:] {
				rest[0].withdraw()
			}
		}
	}()
	if len(all) == 1 {
		all[0].ask(wait, p)
	} else {
		var asked sync.WaitGroup
		for i := range all {
			asked.Go(func() {
				defer func() { all[i].panics = recover() }()
				all[i].ask(wait, p)
			})
		}
		asked.Wait()
	}
	before, taken, at := held, len(h.holds), 0
	for i := range all {
		t := &all[i]
		if t.panics != nil {
			panic(t.panics)
		}
		for t.err == nil && t.held < len(t.owners) {
			var part *Hold
			if held, part, t.err = t.take(held); t.err == nil {
				h.holds = append(h.holds, part)
			}
		}
		if t.err != nil && err == nil {
			busy, err = at+t.busy, t.err
		}
		at += len(t.run)
	}
	if err != nil && len(all) > 1 {
		(&MultiHold{lock: h.lock, holds: h.holds[taken:]}).abandon(wait)
		h.holds, held = h.holds[:taken:taken], before
	}
	if pieces[0][0].client.learnsSlots(err) { // nothing was taken: the caller tries again, with fewer
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
	call := member.client.calls.Get().(*waiter)
	*call = waiter{lock: member, ctx: wait, once: once, since: time.Now(), answered: len(h.holds) > 0}
	held, part, err = call.lockFor(held)
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
