package rlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/lua"
)

// Join lets this process work under a lock that another process holds. The holder passes on the text
// that [Hold.Proof] returns, for example in an environment variable, a header or a message. Join asks
// Redis, in one round trip, whether the owner in the proof holds the lock now. If that owner does, Join
// returns a context that owns the lock.
//
// proof can consist of several proofs, separated by spaces or commas. Proofs of other locks are
// ignored. Several proofs can be for a lock of this name, for example on different servers. If several
// of their owners hold this lock, the last proof counts.
//
// Under the returned context, nested lock calls of this lock do not wait, and send nothing to Redis.
// The methods Token and Owner of the returned hold return what they return for the holder. Until
// returns the end of the lease as far as this process knows. Unlock ends the returned context and sends
// nothing to Redis.
//
// Only the holder renews and releases the lock, and its Unlock does not wait for processes that have
// joined. So the holder must wait for the joined processes before it unlocks: for the response to its
// request, or until the child process has exited. The joined client asks Redis after each third of the
// lease whether the owner still holds the lock, and sooner if little of the lease is left. The returned
// context ends with a [*LostError] as its cause in these cases:
//
//   - If the holder has unlocked the lock, or a user has removed it, the context ends when the joined
//     client asks the next time, within a third of the lease. Until then, another client may already
//     hold the lock.
//   - If the holder has died, or Redis no longer answers this process, the context ends before another
//     client can acquire the lock.
//
// If Join returns an error, you do not own the lock, and the returned context is ctx:
//
//   - [ErrNotHeld] means that the owner in the proof no longer holds the lock.
//   - [ErrInvalidOption] means that the text is not a proof of this lock, or that this lock cannot be
//     joined. Read/write locks, quorum locks and locks made [WithReplicas] cannot be joined. A lock
//     made [WithFencing] needs a proof with a fencing token.
//   - [ErrUnavailable] and [ErrClosed] mean the same as for [Lock.Lock]. Join repeats its request as
//     Lock does, as long as ctx allows.
//
// [Trace] and [Stats] count a Join as a nested call, not as an acquisition. If a joined hold is lost,
// the loss is reported, and counted in Losses of [Stats].
func (l *Lock) Join(ctx context.Context, proof string) (context.Context, *Hold, error) {
	return l.joinHolder(ctx, proof)
}

var (
	errCannotJoin = errors.New("only plain and fair locks can be joined")
	errNoReplicas = errors.New("WithReplicas, but a proof does not tell on how many replicas the hold is: join by a lock without it")
	errProofNoTok = errors.New("WithFencing, but the hold was taken without: its proof has no token")
	errNoEnd      = errors.New("the lease has no end on the server, so that nothing shows that its holder is alive")
)

// joinHolder is Join.
func (l *Lock) joinHolder(ctx context.Context, text string) (held context.Context, hold *Hold, err error) {
	call := l.starts(ctx)
	wait := call.ctx
	defer func() { err = call.ends(ctx, hold, err) }()
	if err := l.begin(); err != nil {
		return ctx, nil, err
	}
	defer l.client.done()
	if ctx.Err() != nil {
		return ctx, nil, tooLate(l.name, ctx)
	}
	wire, proofs, err := l.joinable(text)
	if err != nil {
		return ctx, nil, &lockError{l.name, ErrInvalidOption, err}
	}
	held, hold, err = l.tryToJoin(ctx, wait, wire, proofs[0])
	for _, p := range proofs[1:] {
		if !errors.Is(err, ErrNotHeld) {
			break
		}
		var other error
		if held, hold, other = l.tryToJoin(ctx, wait, wire, p); !errors.Is(other, ErrNotHeld) {
			err = other
		}
	}
	return held, hold, err
}

// tryToJoin joins by one proof.
func (l *Lock) tryToJoin(ctx, wait context.Context, wire kind.Joinable, p proof) (context.Context, *Hold, error) {
	for tries := 1; ; tries++ {
		held, hold, err := l.askToJoin(ctx, wait, wire, p)
		if !errors.Is(err, errLate) || tries == lateJoins || wait.Err() != nil {
			return held, hold, err
		}
	}
}

// joinable reads proofs, and reports whether a hold of the lock can be joined by one of them.
func (l *Lock) joinable(text string) (kind.Joinable, []proof, error) {
	wire, ok := l.wire.(kind.Joinable)
	if !ok {
		return nil, nil, errCannotJoin
	}
	proofs, err := readProofs(l.key, text)
	if l.terms.fenced {
		proofs = slices.DeleteFunc(proofs, func(p proof) bool { return p.token == 0 })
	}
	switch {
	case err != nil:
	case len(proofs) == 0:
		err = errProofNoTok
	case l.terms.replicas.n > 0:
		err = errNoReplicas
	}
	return wire, proofs, err
}

// lateJoins is how often a join asks if the answers come too late, as the first does while a connection
// is made.
const lateJoins = 3

// askToJoin asks the server once, repeated only without an answer.
func (l *Lock) askToJoin(ctx, wait context.Context, wire kind.Joinable, p proof) (context.Context, *Hold, error) {
	a := send(wait, l, l.policy, func(ctx context.Context, r lua.Runner) (time.Duration, error) {
		return wire.Confirm(ctx, r, p.owner)
	}, nil)
	switch {
	case errors.Is(a.Err, lua.ErrNotOwner):
		return ctx, nil, &lockError{l.name, ErrNotHeld, fmt.Errorf("the proof is of %s, which holds it no longer: %w; whoever gives a proof away must hold the lock until the other side is done", p.owner, errHolderEnded)}
	case a.Err != nil:
		return ctx, nil, a.Err
	case a.Value < 0:
		return ctx, nil, &lockError{l.name, ErrUnavailable, errNoEnd}
	}
	// The joined lock has the key of l, for l to nest, but nothing of the joined lock is sent, passed on or
	// queued for. Its lease is the holder's, and decides the rhythm of the questions and the early end, even
	// if a nested hold of the holder has a longer lease.
	joined := &Lock{
		client: l.client, name: l.name, terms: terms{lease: p.lease},
		kind: l.kind, joined: true, queues: &l.client.joins, group: l.group, counters: l.counters,
	}
	joined.use(wire.Joined())
	o := &candidate{lock: joined, name: p.owner}
	joined.queues.mu.Lock()
	g, err := o.grant(a.Sent, a.Value, p.token, run{}) // the rest of the lease
	joined.queues.mu.Unlock()
	if err != nil {
		return ctx, nil, joined.tooLate(err)
	}
	held, hold, err := g.take(ctx, joined, false)
	if err != nil {
		g.forgo()
	}
	return held, hold, err
}
