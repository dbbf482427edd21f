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

// Join returns a context that owns the lock by the hold of another process, or of another part of this
// process, which has given its [Hold.Proof]: by an environment variable, a header, a message. Nothing
// crosses by itself. One round trip asks the server whether the owner in the proof holds the lock now.
// proof may be several, separated by spaces or commas; proofs of other locks are ignored. Several may be
// of this lock, as another server may have a lock of the same name: the last proof whose owner holds the
// lock counts.
//
// Under the returned context, Lock re-enters, and nested holds are counted in this process only: nothing
// of them is sent. Token, Owner and Until are the holder's, [Hold.Until] as far as known here. Unlock
// ends the context, and sends nothing either.
//
// The holder stays the holder. The holder alone renews the lock, and its Unlock releases the lock,
// whoever has joined: the holder must first wait for the answer to the request or the end of the child
// with the proof, as for goroutines under its context. A joined client asks the server at each third of
// the lease whether the lock is still held, and sooner if little of the lease is left. The context ends,
// with a [*LostError] as its cause:
//
//   - by the next such question, so within a third of the lease, if the holder has unlocked
//     the lock, or somebody has removed the lock. Somebody else may hold the lock by then.
//   - before anybody else can hold the lock, if the holder has died, or Redis answers this
//     process no more: at the end of a window like a grant's, counted from the moment before a
//     request was sent, and as long as the rest of the lease then.
//
// On an error nothing is held and the context passed in comes back: [ErrNotHeld] if the owner does not
// hold the lock any more, [ErrInvalidOption] for a text that is no proof of this lock, a proof without
// token for a lock [WithFencing], a lock [WithReplicas], as a proof says nothing of replicas, and for
// kinds without joining: read/write and quorum locks; [ErrUnavailable] and [ErrClosed] as by
// [Lock.Lock]. Join repeats its request as Lock does, as long as ctx allows.
//
// Joining is no acquisition: for [Trace] and [Stats] it is a call that ends as nested, and the loss of a
// joined hold is told and is among Stats.Losses.
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
		kind: l.kind, joined: true, queues: &l.client.joins,
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
