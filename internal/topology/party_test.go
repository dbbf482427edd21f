package topology

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/go-rlock/rlock/rlock"
)

// subject is a lock that the party uses.
type subject struct {
	name       string
	replicas   int  // with WithReplicas
	bystander  bool // on servers to which nothing happens
	lingerings int  // of its goroutines, how many hold it for longer than a lease
}

// stay is what one goroutine has seen of one grant.
type stay struct {
	lock     string
	replicas bool
	from, to time.Time // as long as it believed in the lock
	until    time.Time // the end of the trusted window, as it was at to
	lost     bool      // it was told that it is lost
	unknown  bool      // Unlock got no answer
}

// vigil is one wait for a lock.
type vigil struct {
	lock     string
	from, to time.Time
}

// party are goroutines of several clients that lock and unlock all the time.
type party struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex // guards what follows
	stays   []stay
	vigils  []vigil
	samples map[string][]look
}

// look is what one question from outside found: who holds the lock, "" if nobody.
type look struct {
	call, ret time.Time
	owner     string
}

// newParty starts. dial makes a connection like an application's, one for each
// client; watch one that gives up quickly.
func newParty(t *testing.T, lease time.Duration, subjects []subject, dial func() redis.UniversalClient, watch redis.UniversalClient) *party {
	ctx, cancel := context.WithCancel(context.Background())
	p := &party{stop: cancel, samples: make(map[string][]look)}
	for range 4 {
		c := clientOn(t, dial(), &rlock.Options{LeaseTime: lease})
		for _, s := range subjects {
			opts := []rlock.LockOption{rlock.WithFencing()}
			if s.replicas > 0 {
				opts = append(opts, rlock.WithReplicas(s.replicas, 200*time.Millisecond))
			}
			mu := c.NewLock(s.name, opts...)
			longest := 30 * time.Millisecond
			if s.lingerings > 0 {
				longest = 2 * lease
			}
			s.lingerings--
			p.done.Go(func() { p.use(ctx, t, mu, s, longest) })
		}
	}
	p.done.Go(func() { p.watch(ctx, watch, subjects) })
	t.Cleanup(p.end)
	return p
}

// end returns when everything is unlocked.
func (p *party) end() {
	p.stop()
	p.done.Wait()
}

// use is what a goroutine of the party does.
func (p *party) use(ctx context.Context, t *testing.T, mu *rlock.Lock, s subject, longest time.Duration) {
	for ctx.Err() == nil {
		began := time.Now()
		held, hold, err := mu.Lock(ctx)
		if err != nil {
			pause(ctx, 50*time.Millisecond)
			continue
		}
		from := time.Now()
		p.mu.Lock()
		p.vigils = append(p.vigils, vigil{s.name, began, from})
		p.mu.Unlock()
		select {
		case <-held.Done():
		case <-time.After(rand.N(longest)):
		}
		st := stay{lock: s.name, replicas: s.replicas > 0, from: from, to: time.Now(), until: hold.Until()}
		st.lost = errors.Is(context.Cause(held), rlock.ErrLeaseLost)
		err = hold.Unlock(held)
		st.lost = st.lost || errors.Is(err, rlock.ErrLeaseLost)
		st.unknown = err != nil && !st.lost
		assert.True(t, err == nil || st.lost || errors.Is(err, rlock.ErrUnavailable), "%v", err)
		p.mu.Lock()
		p.stays = append(p.stays, st)
		p.mu.Unlock()
		pause(ctx, rand.N(60*time.Millisecond))
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// watch looks at all locks again and again.
func (p *party) watch(ctx context.Context, rdb redis.UniversalClient, subjects []subject) {
	for ctx.Err() == nil {
		for _, s := range subjects {
			l := look{call: time.Now()}
			fields, err := rdb.HKeys(ctx, s.name).Result()
			l.ret = time.Now()
			if l.owner = "?"; err == nil {
				l.owner = ""
				if len(fields) > 0 {
					l.owner = fields[0]
				}
			}
			p.mu.Lock()
			p.samples[s.name] = append(p.samples[s.name], l)
			p.mu.Unlock()
		}
		pause(ctx, 15*time.Millisecond)
	}
}

// slept returns how long somebody waited at most while the lock was free on the
// master that answers, between from and to. The grants of others that come and go
// between two looks end such a time as well.
func (p *party) slept(name string, from, to time.Time) (longest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var grants []time.Time
	for _, v := range p.vigils {
		if v.lock == name {
			grants = append(grants, v.to)
		}
	}
	came := func(from, to time.Time) bool {
		return slices.ContainsFunc(grants, func(g time.Time) bool { return from.Before(g) && g.Before(to) })
	}
	for _, v := range p.vigils {
		if v.lock != name || v.to.Before(from) || v.from.After(to) {
			continue
		}
		var since time.Time
		for _, l := range p.samples[name] {
			switch {
			case l.call.Before(v.from) || l.call.Before(from):
				continue
			case l.ret.After(v.to):
			case l.owner != "":
				since = time.Time{}
				continue
			case since.IsZero(), came(since, l.call):
				since = l.ret
				continue
			default:
				longest = max(longest, l.call.Sub(since))
				continue
			}
			if !since.IsZero() && !came(since, v.to) {
				longest = max(longest, v.to.Sub(since))
			}
			break
		}
	}
	return longest
}
