package election

import (
	"context"
	_ "embed"
	"sync/atomic"
	"time"

	"github.com/go-rlock/rlock/internal/companion"
	"github.com/go-rlock/rlock/rlock"
)

// Term is one leadership of this process. Its methods are safe for concurrent use.
type Term struct {
	e    *Election
	hold *rlock.Hold
	held context.Context
	seq  atomic.Int64 // of the newest request with a value
}

// Number returns the number of the term. It is the fencing token of the lock, and is greater than the numbers
// of all earlier terms. Send it along with every write, and have the resource reject smaller numbers.
func (t *Term) Number() int64 { return t.hold.Token() }

// Until returns the time until which this process leads if the lease is never renewed again. See
// [rlock.Hold.Until].
func (t *Term) Until() time.Time { return t.hold.Until() }

// Proof returns a text that lets another process work under this term. That process passes the text to
// [rlock.Lock.Join].
func (t *Term) Proof() string { return t.hold.Proof() }

//go:embed proclaim.lua
var proclaimSource string

//go:embed resign.lua
var resignSource string

var (
	proclaimScript = companion.NewScript(proclaimSource)
	resignScript   = companion.NewScript(resignSource)

	// live has package rlock find out that the lock was lost, and end the context of the hold.
	live = rlock.NewScript("return 1")
)

// Proclaim changes the value of the leader, which can have up to 64 KiB, and notifies the observers. If several
// calls run at the same time, the value of the call that began last stays. Proclaim takes one round trip.
//
// [rlock.ErrLeaseLost] means that this process no longer leads: Proclaim has not changed the value, and the
// context of the term has ended. After [rlock.ErrUnavailable] the value may have changed, or may still change
// while this process leads.
func (t *Term) Proclaim(ctx context.Context, value string) error {
	if err := t.e.check(value); err != nil {
		return err
	}
	_, err := t.proclaim(ctx, t.seq.Add(1), value)
	return err
}

// proclaim sends a value. The first request of a term, with seq 0, begins the term, and its wait reports whether
// a former leader may still work.
func (t *Term) proclaim(ctx context.Context, seq int64, value string) (wait bool, err error) {
	delayed := 0
	if seq == 0 && t.e.delay > 0 {
		delayed = 1
	}
	data := t.e.data
	reply, err := data.RunHeld(ctx, proclaimScript, t.hold.Owner(), t.Number(), seq, value, delayed, data.Publish(), data.Channel())
	if err != nil {
		return false, err
	}
	if reply == nil {
		if _, err := live.Run(context.WithoutCancel(ctx), t.hold, nil); err != nil {
			return false, err
		}
		return false, t.e.errorf(rlock.ErrUnavailable, "the lock was lost, and is there again") // by a failover, or by hand
	}
	return reply == int64(1), nil
}

const (
	resignWait = time.Second         // for the note of a resignation; the unlock after it has its own time
	resignKept = 30 * 24 * time.Hour // the note
)

// Resign ends the term, and the next candidate leads. Call it when all work of the leader has ended, because
// the next leader begins at once. Resign works even if ctx has ended, because it uses only the values of ctx. A
// nil ctx has no values. Resign takes two round trips, and returns within 1 s plus the client's UnlockTimeout.
//
// Call Resign after a loss too, so that the next leader need not wait for its takeover delay. This has no effect
// if the next candidate has acquired the lock before the call, for example because the lock was deleted.
//
// The errors are the errors of [rlock.Hold.Unlock]:
//
//   - [rlock.ErrLeaseLost] means that the leadership was lost before the call.
//   - [rlock.ErrUnavailable] means that Redis did not respond. The next candidate leads when the lease ends, or
//     earlier.
//   - [rlock.ErrNotHeld] means that this term had already ended. If this process leads again in a later term,
//     that term continues.
func (t *Term) Resign(ctx context.Context) error {
	if ctx == nil { // a panic would leave a renewed lock, and nobody to resign
		ctx = context.Background()
	}
	t.e.term.CompareAndSwap(t, nil)
	// The note must be there before the lock is free, or the next leader waits for its takeover delay. Without
	// the note the next leader is only later, so an error of the note does not matter.
	note, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignWait)
	defer cancel()
	data := t.e.data
	_, _ = data.Run(note, resignScript, t.hold.Owner(), resignKept.Milliseconds(), data.Publish(), data.Channel())
	return t.hold.Unlock(ctx)
}
