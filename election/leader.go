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

// Leader is who leads. The zero value is no leader.
type Leader struct {
	Value string // given to New, or to Proclaim
	Owner string // of the lock: see [rlock.Hold.Owner]
	Term  int64  // number of the term, at least 1; 0: no process leads
}

//go:embed leader.lua
var leaderSource string

var leaderScript = companion.NewScript(leaderSource)

// Leader asks Redis who leads, in one round trip. [ErrNoLeader]: no process leads, or the new leader does not
// work yet. [rlock.ErrUnavailable]: Redis did not respond within the lease, at least 5 s, or until
// ctx ended.
//
// The answer may be outdated when it arrives, so do not use it to decide whether this process leads: use the
// context of the leader, or [Election.IsLeader].
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

// Observe returns an iterator over the leaders: the present one first, then each new one, each new value, and the
// zero Leader when no process leads. It ends when ctx ends, or when the loop does.
//
//	for leader, err := range e.Observe(ctx) {
//
// If changes follow each other faster than the loop takes them, it gets only the newest, and terms
// never go back. A change is known after one message and one round trip, the death of a leader when its lease
// is over. If a message is lost, the next read finds the change, within the lease or within 5 s.
//
// An error that matches [rlock.ErrUnavailable] says that the leader is not known now, and the iterator
// continues. After any other error it ends. All observers of a client share one connection. An idle observer reads about
// once in a lease.
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
