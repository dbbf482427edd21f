package election

import (
	"context"
	_ "embed"
	"errors"
	"iter"
	"strconv"
	"time"

	"github.com/go-rlock/rlock/internal/companion"
	"github.com/go-rlock/rlock/rlock"
)

// Leader describes the leader of an election. The zero value means that no process leads.
type Leader struct {
	Value string // the value that was passed to New or Proclaim
	Owner string // the owner of the lock, see [rlock.Hold.Owner]
	Term  int64  // number of the term, at least 1; 0 means that no process leads
}

//go:embed leader.lua
var leaderSource string

var leaderScript = companion.NewScript(leaderSource)

// Leader reads from Redis who leads, in one round trip. [ErrNoLeader] means that no process leads, or that the
// new leader has not begun its work yet. [rlock.ErrUnavailable] means that Redis did not respond before ctx
// ended, or for as long as the lease lasts (at least 5 s).
//
// The result may be outdated when it arrives, so do not use it to decide whether this process leads. To decide
// that, use the context of the leader, or [Election.IsLeader].
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	l, _, err := e.look(ctx)
	if err == nil && l.Term == 0 {
		err = e.errorf(ErrNoLeader, "nobody holds the lock, or its holder does not work yet")
	}
	return l, err
}

// look returns the leader, and the TTL of the lock: negative if there is none.
func (e *Election) look(ctx context.Context) (Leader, time.Duration, error) {
	if e.err != nil {
		return Leader{}, 0, e.err
	}
	reply, err := e.data.RunHeld(ctx, leaderScript)
	if err != nil {
		return Leader{}, 0, err
	}
	words := reply.([]any)
	ttl := time.Duration(words[0].(int64)) * time.Millisecond
	if len(words) == 1 {
		return Leader{}, ttl, nil
	}
	term, err := strconv.ParseInt(words[2].(string), 10, 64)
	if err != nil {
		return Leader{}, 0, e.errorf(rlock.ErrKeyConflict, "key %q: %v", e.data.Key(), err)
	}
	return Leader{Owner: words[1].(string), Term: term, Value: words[3].(string)}, ttl, nil
}

const (
	lookEach  = 5 * time.Second       // without a message: one may have been lost
	lookAgain = time.Second           // without a subscription
	lookAfter = 10 * time.Millisecond // the end of the leader's lease
)

// Observe returns an iterator over the leaders. It yields the present leader first, then each new leader and
// each new value. While no process leads, it yields the zero [Leader]. The iteration ends when ctx ends.
//
//	for leader, err := range e.Observe(ctx) {
//
// If changes come faster than the loop takes them, the loop gets only the newest change. The term numbers that
// the loop gets never decrease. A new leader, a new value or a resignation is announced by a message, and the
// iterator then reads the state in one round trip. If a leader dies, the iterator notices it when the lease of
// that leader ends. If a message is lost, the iterator notices the change within 5 s, because it reads the
// state on a timer as well.
//
// An error that matches [rlock.ErrUnavailable] means that it is not known now who leads, and the iteration
// continues. After any other error, the iteration ends. All observers of a client share one connection. If
// nothing changes, each iterator reads the state every 5 s, or once per lease if the lease is shorter.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		if e.err != nil {
			yield(Leader{}, e.err)
			return
		}
		wake := make(chan struct{}, 1)
		woken := func() {
			select {
			case wake <- struct{}{}:
			default:
			}
		}
		s := e.data.Subscribe(func(string) { woken() }, woken)
		defer s.Close()
		var shown Leader
		known := false // shown is what the loop believes
		newest := int64(0)
		for ctx.Err() == nil {
			heard := s.Live() // before the look, or a message between the two would be missed
			l, ttl, err := e.look(ctx)
			wait := lookEach
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				known = false
				if !yield(Leader{}, err) || !errors.Is(err, rlock.ErrUnavailable) {
					return
				}
				wait = lookAgain
			case l.Term != 0 && l.Term < newest: // from a former master
				wait = lookAgain
			default:
				newest = max(newest, l.Term)
				if changed := !known || l != shown; changed {
					known, shown = true, l
					if !yield(l, nil) {
						return
					}
				}
				if !heard {
					wait = lookAgain
				} else if ttl > 0 {
					wait = min(wait, ttl+lookAfter)
				}
			}
			select {
			case <-wake:
			case <-time.After(wait):
			case <-ctx.Done():
			}
		}
	}
}
