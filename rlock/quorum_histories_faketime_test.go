package rlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// frail is a server of a quorum lock that restarts, or stands still.
type frail struct {
	*fakeRedis
	mu    sync.Mutex // guards what follows
	run   int
	born  time.Time
	still chan struct{} // closed when the server goes on; nil if it does not stand still
}

func newFrail(t *testing.T, id int) *frail {
	f := &frail{fakeRedis: newFakeRedis(t), born: time.Now().Add(-time.Hour)}
	f.Server().SetPreHook(func(p *server.Peer, command string, args ...string) bool {
		f.mu.Lock()
		still := f.still
		f.mu.Unlock()
		if still != nil {
			<-still // it has got the request
		}
		if strings.EqualFold(command, "info") {
			f.mu.Lock()
			defer f.mu.Unlock()
			p.WriteBulk(fmt.Sprintf("# Server\r\nrun_id:%d-%d\r\nuptime_in_seconds:%d\r\n", id, f.run, int(time.Since(f.born).Seconds())))
			return true
		}
		return f.hook(p, command, args...)
	})
	return f
}

// restart loses the connections and, unless the data is kept, what was granted.
func (f *frail) restart(keeps bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.run, f.born = f.run+1, time.Now()
	f.cutAll()
	if !keeps {
		f.FlushAll()
	}
}

// stop makes the server stand still for a while. It executes then what it has got meanwhile.
func (f *frail) stop(d time.Duration) {
	still := make(chan struct{})
	f.mu.Lock()
	f.still = still
	f.mu.Unlock()
	time.Sleep(d)
	f.mu.Lock()
	f.still = nil
	f.mu.Unlock()
	close(still)
}

// trouble strikes one server after another for a while, never two at once.
func trouble(random *rand.Rand, all []*frail, lease, d time.Duration) {
	for began := time.Now(); time.Since(began) < d; {
		f := all[random.IntN(len(all))]
		switch random.IntN(4) {
		case 0, 1:
			f.restart(false)
		case 2:
			f.restart(true)
		default:
			f.jitter.Store(int64(time.Duration(random.IntN(3)) * lease / 3)) // requests and answers overtake one another
			f.stop(time.Duration(random.Int64N(int64(2 * lease))))
			f.jitter.Store(0)
		}
		time.Sleep(time.Duration(random.Int64N(int64(lease))))
	}
}

// history lets processes contend for a quorum lock while its servers restart and stand still. It returns
// how many grants there were, and how many restarts or stops holds have outlived.
func history(t *testing.T, seed uint64) (grants, outlived int) {
	const lease = 5 * time.Second
	random := rand.New(rand.NewPCG(seed, 0))
	var all []*frail
	for n := range 3 {
		all = append(all, newFrail(t, n))
	}
	var mu sync.Mutex // guards what follows
	var inside []context.Context
	over, workers := make(chan struct{}), sync.WaitGroup{}
	for range 3 {
		var clients []*rlock.Client
		for _, f := range all {
			clients = append(clients, f.client(t, &rlock.Options{LeaseTime: lease}))
		}
		l, own := rlock.NewQuorumLock("a", clients), rand.New(rand.NewPCG(random.Uint64(), 0))
		workers.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-time.After(time.Duration(own.Int64N(int64(time.Second)))):
				}
				held, hold, err := l.TryLockFor(t.Context(), time.Duration(own.Int64N(int64(2*lease))))
				if err != nil {
					continue
				}
				mu.Lock()
				if held.Err() == nil { // it may be over already
					for _, other := range inside {
						if other.Err() == nil {
							t.Errorf("seed %d: two holders", seed)
						}
					}
				}
				inside, grants = append(inside, held), grants+1
				mu.Unlock()
				began := time.Now()
				select {
				case <-held.Done():
				case <-time.After(time.Duration(own.Int64N(int64(4 * lease)))):
				}
				mu.Lock()
				if held.Err() == nil && time.Since(began) > 2*lease {
					outlived++
				}
				mu.Unlock()
				_ = hold.Unlock(held) // it may be lost
			}
		})
	}
	trouble(random, all, lease, 8*lease)
	close(over)
	workers.Wait()
	time.Sleep(2 * lease)
	synctest.Wait()
	return grants, outlived
}

// However the servers restart, empty or not, and stand still, there is one holder at a time.
func TestFakeTimeQuorumHistories(t *testing.T) {
	histories := 50
	switch {
	case os.Getenv("RLOCK_VERIFY") != "": // make verify
		histories = 1000
	case testing.Short():
		histories = 8
	}
	grants, outlived := 0, 0
	for n := range histories {
		redistest.Bubble(t, func(t *testing.T) {
			g, o := history(t, uint64(n))
			grants, outlived = grants+g, outlived+o
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d histories, %d grants, %d holds of more than two leases", histories, grants, outlived)
	require.Greater(t, grants, histories)
	require.Positive(t, outlived, "long holds")
}
