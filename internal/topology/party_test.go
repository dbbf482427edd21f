package topology

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-rlock/rlock/rlock"
)

// subject is a lock that the party uses.
type subject struct {
	name       string
	replicas   int  // with WithReplicas
	bystander  bool // on servers to which nothing happens
	lingerings int  // of its goroutines, how many hold it for long
}

func (s subject) options() []rlock.LockOption {
	opts := []rlock.LockOption{rlock.WithFencing()}
	if s.replicas > 0 {
		opts = append(opts, rlock.WithReplicas(s.replicas, 200*time.Millisecond))
	}
	return opts
}

// stay is what one goroutine has seen of one grant.
type stay struct {
	lock, owner string
	from, to    time.Time // as long as it believed in the lock
	until       time.Time // the end of the trusted window, as it was at to
	lost        bool      // it was told that it is lost
	unknown     bool      // Unlock got no answer
}

// vigil is one wait for a lock, be it that it was given up at the end.
type vigil struct {
	lock     string
	from, to time.Time
	granted  bool
}

// party are goroutines of several clients that lock and unlock all the time.
type party struct {
	ctx      context.Context
	stop     context.CancelFunc
	done     sync.WaitGroup
	subjects []subject

	mu     sync.Mutex // guards what follows
	stays  []stay
	vigils []vigil
	looks  map[place][]look
}

// members of a party are so many clients.
const members = 4

// newParty starts. lock returns what one of the clients uses; longest is how long
// the lingerings hold it at most.
func newParty(t *testing.T, longest time.Duration, subjects []subject, lock func(member int, s subject) *rlock.Lock) *party {
	p := &party{subjects: subjects, looks: make(map[place][]look)}
	p.ctx, p.stop = context.WithCancel(context.Background())
	for n := range members {
		for _, s := range subjects {
			mu, stay := lock(n, s), 30*time.Millisecond
			if n < s.lingerings {
				stay = longest
			}
			p.done.Go(func() { p.use(t, mu, s.name, stay) })
		}
	}
	t.Cleanup(p.end)
	return p
}

// end returns when everything is unlocked.
func (p *party) end() {
	p.stop()
	p.done.Wait()
}

// use is what a goroutine of the party does.
func (p *party) use(t *testing.T, mu *rlock.Lock, name string, longest time.Duration) {
	for p.ctx.Err() == nil {
		began := time.Now()
		held, hold, err := mu.Lock(p.ctx)
		from := time.Now()
		p.mu.Lock()
		p.vigils = append(p.vigils, vigil{name, began, from, err == nil})
		p.mu.Unlock()
		if err != nil {
			pause(p.ctx, 50*time.Millisecond)
			continue
		}
		select {
		case <-held.Done():
		case <-time.After(rand.N(longest)):
		}
		st := stay{lock: name, owner: hold.Owner(), from: from, to: time.Now(), until: hold.Until()}
		st.lost = errors.Is(context.Cause(held), rlock.ErrLeaseLost)
		err = hold.Unlock(held)
		st.lost = st.lost || errors.Is(err, rlock.ErrLeaseLost)
		st.unknown = err != nil && !st.lost
		assert.True(t, err == nil || st.lost || errors.Is(err, rlock.ErrUnavailable), "%v", err)
		p.mu.Lock()
		p.stays = append(p.stays, st)
		p.mu.Unlock()
		pause(p.ctx, rand.N(60*time.Millisecond))
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
