package election_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/election"
	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
)

// changes has two candidates lead in turn, and returns how long each change took, from Resign to the context of
// the next leader, in order. The clients have several connections from the start, as they have in a process that
// has run for a while: one connection may be busy with a probe, and a new one takes two round trips.
func changes(t *testing.T, addr string, n int, settle time.Duration) (took []time.Duration) {
	a, b := election.New(newLocks(t, addr, time.Minute), "e", "a"), election.New(newLocks(t, addr, time.Minute), "e", "b")
	for _, e := range []*election.Election{a, b} {
		held, term := campaign(t, t.Context(), e) // the server learns the scripts
		var calls sync.WaitGroup
		for range 5 {
			calls.Go(func() { _, _ = e.Leader(t.Context()) })
		}
		calls.Wait()
		require.NoError(t, term.Resign(held))
	}
	type won struct {
		held context.Context
		term *election.Term
		at   time.Time
		err  error
	}
	held, term := campaign(t, t.Context(), a)
	for range n {
		next := make(chan won, 1)
		go func() {
			held, term, err := b.Campaign(t.Context())
			next <- won{held, term, time.Now(), err}
		}()
		time.Sleep(settle) // b waits, and is subscribed
		began := time.Now()
		go func() { require.NoError(t, term.Resign(held)) }()
		w := <-next
		require.NoError(t, w.err)
		took = append(took, w.at.Sub(began))
		held, term, a, b = w.held, w.term, b, a
	}
	require.NoError(t, term.Resign(held))
	slices.Sort(took)
	return took
}

// The time on a real server. TestFakeTimeRoundTrips has the round trips, without what the machine adds.
func TestChangeOfLeader(t *testing.T) {
	redistest.Long(t, "140 changes")
	srv := redistest.Start(t)
	took := changes(t, srv.Addr(), 100, 200*time.Millisecond)
	t.Logf("without a delay: p50 %v, p99 %v", took[50], took[98])
	require.LessOrEqual(t, took[50], 20*time.Millisecond) // the p99 is that of an idle machine only

	const rtt = 100 * time.Millisecond // long beside what a loaded machine adds
	proxy := netfault.New(t, srv.Addr())
	proxy.Delay(rtt/2, rtt/2)
	took = changes(t, proxy.Addr(), 40, 6*rtt)
	t.Logf("with a round trip of %v: p50 %.2f round trips, longest %.2f", rtt, took[20].Seconds()/rtt.Seconds(), took[39].Seconds()/rtt.Seconds())
	require.LessOrEqual(t, took[20], rtt*7/2)
}

// Of 100 candidates in as many clients, each change concerns two.
func TestManyCandidates(t *testing.T) {
	redistest.Long(t, "100 clients")
	srv := redistest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	held, first := campaign(t, ctx, election.New(newLocks(t, srv.Addr(), 30*time.Second), "e", "first"))
	var campaigns sync.WaitGroup
	leads, resign := make(chan struct{}), make(chan struct{})
	for range 100 {
		e := election.New(newLocks(t, srv.Addr(), 30*time.Second), "e", "x")
		campaigns.Go(func() {
			held, term, err := e.Campaign(ctx)
			if err == nil {
				leads <- struct{}{}
				<-resign
				_ = term.Resign(held)
			}
		})
	}
	redistest.Eventually(t, "all wait", func() bool {
		return srv.Client(t).ZCard(t.Context(), "rlock_queue:{e}").Val() == 100
	})
	time.Sleep(8 * time.Second) // the early questions of all are over
	m := srv.Monitor(t)
	count := func() (n int) {
		for _, c := range m.Commands() {
			if c.Client != "lua" && strings.HasPrefix(c.Args[0], "eval") && !strings.Contains(strings.Join(c.Args, " "), "rlock-probe") && slices.ContainsFunc(c.Args, func(a string) bool { return a == "e" || a == "rlock_companion:{e}" }) {
				n++
			}
		}
		return n
	}
	began := time.Now()
	time.Sleep(4 * time.Second)
	idle := float64(count()) / time.Since(began).Seconds()
	const n = 50
	began = time.Now()
	require.NoError(t, first.Resign(held))
	for range n {
		<-leads
		resign <- struct{}{}
	}
	<-leads
	took := time.Since(began)
	each := (float64(count()) - idle*took.Seconds()) / (n + 1)
	t.Logf("%d changes in %v: %.2f requests each; while 100 wait, %.1f requests a second", n+1, took, each, idle)
	require.LessOrEqual(t, each, 4.0)
	cancel()
	close(resign)
	campaigns.Wait()
}
