package janitor

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/internal/request"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.Dials) }

const lease = 30 * time.Second

var errSilent = errors.New("no answer")

// host is a client with a janitor, and a server.
type host struct {
	Janitor
	*place
	start time.Time
	takes time.Duration // an answer
	open  sync.WaitGroup
}

// place is a server that answers unless it is silent.
type place struct {
	mu     sync.Mutex // guards what follows
	silent bool
	held   []bool                     // what Hold was called with
	sent   map[string][]time.Duration // releases, by owner
	inside int                        // releases under way
	most   int                        // at once
}

// Hold is called with the janitor's mutex held.
func (p *place) Hold(on bool) { p.held = append(p.held, on) }

func newPlace() *place { return &place{sent: make(map[string][]time.Duration)} }

func newHost() *host {
	h := &host{place: newPlace(), start: time.Now()}
	h.Hosting = Hosting{
		Begin: func() { h.open.Add(1) }, End: h.open.Done,
		Classify: func(err error) (request.Outcome, bool) {
			if err != nil {
				return request.Unknown, false
			}
			return request.Answered, true
		},
	}
	return h
}

// left is what an owner has left on the server.
func (h *host) left(owner string) Leftover { return h.leftOn(h.place, owner) }

func (h *host) leftOn(p *place, owner string) Leftover {
	return Leftover{Owner: owner, Server: p, Lease: lease, Release: func(context.Context) error {
		p.mu.Lock()
		p.sent[owner] = append(p.sent[owner], time.Since(h.start))
		p.inside++
		p.most = max(p.most, p.inside)
		silent := p.silent
		p.mu.Unlock()
		time.Sleep(h.takes)
		p.mu.Lock()
		p.inside--
		p.mu.Unlock()
		if silent {
			return errSilent
		}
		return nil
	}}
}

func (p *place) answers(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = !yes
}

func seconds(all ...int) (list []time.Duration) {
	for _, n := range all {
		list = append(list, time.Duration(n)*time.Second)
	}
	return list
}

// One owner has one job, however often it is asked for before it is due, and what may arrive later
// is looked for again and again.
func TestFakeTimeOneJobForAnOwner(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		h := newHost()
		h.takes = time.Second
		for range 10 {
			h.SweepAgain(h.left("me:1"))
			h.put(h.left("me:1"), h.start.Add(time.Second), h.start.Add(lease), false)
		}
		h.open.Wait()
		require.Equal(t, seconds(1, 3, 4, 6, 10, 18, 32), h.sent["me:1"])
		require.Empty(t, h.jobs)
		require.Empty(t, h.parts)
		require.Empty(t, h.held)
	})
}

// An answer that comes while an owner is being released says that there is something left: that
// release may have been done before. Another one follows at once, not only when late requests
// have arrived.
func TestFakeTimeLeftWhileItIsReleased(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		h := newHost()
		h.takes = 150 * time.Millisecond
		h.Sweep(h.left("me:1"), time.Now().Add(lease)) // no answer in time
		h.SweepAgain(h.left("me:1"))
		time.Sleep(100 * time.Millisecond)
		h.Sweep(h.left("me:1"), time.Now().Add(lease)) // the answer
		h.open.Wait()
		require.Equal(t, []time.Duration{0, h.takes}, h.sent["me:1"][:2])
		for i, after := range seconds(1, 2, 4, 8, 16, 30) {
			require.Equal(t, 2*h.takes+after, h.sent["me:1"][2+i])
		}
		require.Empty(t, h.jobs)
		require.Empty(t, h.parts)
	})
}

// A short lease does not make requests arrive sooner, nor a long one later.
func TestFakeTimeArrivalAfterAnyLease(t *testing.T) {
	for lease, want := range map[time.Duration][]time.Duration{100 * time.Millisecond: seconds(1, 2), 24 * time.Hour: seconds(1, 2, 3, 5, 9, 17, 33, 61)} {
		redistest.Bubble(t, func(t *testing.T) {
			h := newHost()
			left := h.left("me:1")
			left.Lease = lease
			h.SweepAgain(left)
			h.open.Wait()
			require.Equal(t, want, h.sent["me:1"])
		})
	}
}

// A server that stands still may execute an old request when it goes on, however long that takes:
// a job ends with an answer. After half a minute one attempt a second is made, and the first
// answer brings all the others.
func TestFakeTimeTriesUntilThereIsAnAnswer(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		const owners = 100
		h := newHost()
		h.answers(false)
		for n := range owners {
			h.Sweep(h.left(strconv.Itoa(n)), time.Now().Add(lease))
		}
		attempts := func() (n int) {
			h.place.mu.Lock()
			defer h.place.mu.Unlock()
			for _, sent := range h.sent {
				n += len(sent)
			}
			return n
		}
		time.Sleep(lease)
		require.Greater(t, attempts(), int(lease/maxRetry)/2)
		time.Sleep(lease)
		before := attempts()
		time.Sleep(100 * lease)
		require.InDelta(t, 100*lease/slowRetry, attempts()-before, 2)

		h.answers(true)
		began := time.Now()
		h.open.Wait()
		require.Less(t, time.Since(began), slowRetry+maxRetry)
		for owner, sent := range h.sent {
			require.Greater(t, sent[len(sent)-1], 102*lease, owner)
		}
		require.Len(t, h.sent, owners)
		require.Empty(t, h.parts)
	})
}

// A client that closes, and a refusal, are not waited for longer than the lease.
func TestFakeTimeEndsWithTheLease(t *testing.T) {
	for name, refuses := range map[string]bool{"closing": false, "refused": true} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				h := newHost()
				h.answers(false)
				if refuses {
					h.Classify = func(error) (request.Outcome, bool) { return request.NotExecuted, true }
				}
				left := h.left("me:1")
				left.Likely = true
				h.Sweep(left, time.Now().Add(lease))
				if !refuses {
					h.Flush()
				}
				h.open.Wait()
				require.Greater(t, len(h.sent["me:1"]), int(lease/time.Second))
				require.InDelta(t, lease, time.Since(h.start), float64(time.Second))
			})
		})
	}
}

// A release is sent once even when the lease is over, as the key may have lost its TTL;
// but if the client closes, not to a server that is silent.
func TestFakeTimeTooLate(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		h := newHost()
		h.Sweep(h.left("me:1"), time.Now().Add(-time.Second))
		h.open.Wait()
		require.Len(t, h.sent["me:1"], 1)

		h.answers(false)
		h.Sweep(h.left("me:2"), time.Now().Add(time.Second))
		time.Sleep(100 * time.Millisecond)
		h.Sweep(h.left("me:3"), time.Now().Add(-time.Second))
		h.Flush()
		h.open.Wait()
		require.Greater(t, len(h.sent["me:2"]), 1)
		require.Empty(t, h.sent["me:3"])
		require.InDelta(t, 1100*time.Millisecond, time.Since(h.start), float64(3*maxRetry))
	})
}

// While the server is silent a few try, requests that may leave more are held back, and
// the first answer brings all the others.
func TestFakeTimeBacklog(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		const owners = 1000
		h := newHost()
		h.takes = time.Millisecond
		h.answers(false)
		for n := range owners {
			h.Sweep(h.left(strconv.Itoa(n)), time.Now().Add(lease))
		}
		time.Sleep(time.Second)
		require.Equal(t, []bool{true}, h.held)
		h.place.mu.Lock()
		h.most = 0
		h.place.mu.Unlock()
		time.Sleep(time.Second)
		h.place.mu.Lock()
		require.Positive(t, h.most)
		require.LessOrEqual(t, h.most, maxProbes)
		h.place.mu.Unlock()

		h.answers(true)
		began := time.Now()
		h.open.Wait()
		require.Less(t, time.Since(began), 2*maxRetry)
		require.Greater(t, h.most, maxProbes)
		require.LessOrEqual(t, h.most, maxReleases)
		require.Equal(t, []bool{true, false}, h.held)
		require.Len(t, h.sent, owners)
	})
}

// What was left on a server that is silent delays nothing on another, and holds nobody
// back there.
func TestFakeTimeSilentBesideAnother(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		const owners = 1000
		h, other := newHost(), newPlace()
		h.takes = time.Millisecond
		h.answers(false)
		for n := range owners {
			h.Sweep(h.left(strconv.Itoa(n)), time.Now().Add(lease))
		}
		time.Sleep(time.Second)
		for n := range maxReleases - 1 {
			h.Sweep(h.leftOn(other, strconv.Itoa(n)+"b"), time.Now().Add(lease))
		}
		time.Sleep(maxReleases / maxProbes * h.takes)
		synctest.Wait()
		require.Len(t, other.sent, maxReleases-1)
		require.Empty(t, other.held)
		require.Equal(t, []bool{true}, h.held)
		h.Flush()
		h.open.Wait()
		require.Equal(t, []bool{true, false}, h.held)
		require.LessOrEqual(t, h.most, maxReleases)
		require.Empty(t, h.parts)
		require.Zero(t, h.busy)
	})
}

// A server that refuses is asked again while it is likely to have something, also when the
// client closes, and nobody else waits for that.
func TestFakeTimeRefused(t *testing.T) {
	for _, tt := range []struct {
		name           string
		likely, closes bool
	}{{"likely", true, false}, {"likely, and closing", true, true}, {"perhaps nothing", false, false}} {
		t.Run(tt.name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				h := newHost()
				h.Classify = func(err error) (request.Outcome, bool) {
					if err != nil {
						return request.Unknown, true
					}
					return request.Answered, true
				}
				h.answers(false)
				left := h.left("me:1")
				left.Likely = tt.likely
				h.Sweep(left, time.Now().Add(lease))
				if tt.closes {
					h.Flush()
				}
				time.Sleep(5 * time.Second)
				h.answers(true)
				h.open.Wait()
				require.Empty(t, h.held)
				if tt.likely {
					require.Greater(t, len(h.sent["me:1"]), 5)
					require.Less(t, time.Since(h.start), 6*time.Second)
				} else {
					require.Len(t, h.sent["me:1"], 1)
				}
			})
		})
	}
}

// Flush does at once what waits for its time.
func TestFakeTimeFlush(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		h := newHost()
		h.SweepAgain(h.left("me:1"))
		time.Sleep(time.Second / 2)
		h.Flush()
		h.open.Wait()
		require.Equal(t, []time.Duration{time.Second / 2}, h.sent["me:1"])
	})
}

// Memory is bounded: what is forgotten ends with its lease.
func TestFakeTimeTooManyOwners(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		h := newHost()
		for n := range maxJobs + 10 {
			h.SweepAgain(h.left(strconv.Itoa(n)))
		}
		h.Janitor.mu.Lock()
		require.Len(t, h.jobs, maxJobs)
		h.Janitor.mu.Unlock()
		h.open.Wait()
		require.Len(t, h.sent, maxJobs)
	})
}

// A hook of the application ends the goroutine of an attempt. That counts as no answer.
func TestFakeTimeHookEndsAnAttempt(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		h := newHost()
		left := h.left("a")
		release, ended := left.Release, false
		left.Release = func(ctx context.Context) error {
			if !ended {
				ended = true
				runtime.Goexit()
			}
			return release(ctx)
		}
		h.Sweep(left, time.Now().Add(time.Hour))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, h.sent["a"], 1)
		h.open.Wait()
	})
}

// A server has more than maxProbes releases under way only while all servers together have fewer than maxReleases. So the
// end of a release on one server lets the jobs of the others start.
func TestFakeTimeRoomAmongAllServers(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		h := newHost()
		release := func(p *place, owner string, begun *atomic.Int64, takes time.Duration) {
			h.Sweep(Leftover{Owner: owner, Server: p, Lease: lease, Release: func(context.Context) error {
				begun.Add(1)
				time.Sleep(takes)
				return nil
			}}, time.Now().Add(lease))
			synctest.Wait()
		}
		var fast, slow atomic.Int64
		for n := range maxReleases - maxProbes {
			release(h.place, "a:"+strconv.Itoa(n), &fast, time.Second)
		}
		other := newPlace()
		for n := range maxReleases - 1 {
			release(other, "b:"+strconv.Itoa(n), &slow, time.Minute)
		}
		require.EqualValues(t, maxProbes, slow.Load())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.EqualValues(t, maxReleases-1, slow.Load())
		h.open.Wait()
	})
}
