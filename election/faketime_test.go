package election_test

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/election"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
	"github.com/go-rlock/rlock/rlocktest"
)

// far returns an end of conn from which each way takes half of rtt.
func far(conn net.Conn, rtt time.Duration) net.Conn {
	near, end := net.Pipe()
	relay := func(dst, src net.Conn) {
		type packet struct {
			data []byte
			due  time.Time
		}
		under := make(chan packet, 1000)
		go func() {
			defer close(under)
			for {
				data := make([]byte, 4096)
				n, err := src.Read(data)
				if err != nil {
					return
				}
				under <- packet{data[:n], time.Now().Add(rtt / 2)}
			}
		}()
		go func() {
			defer func() { _ = dst.Close() }()
			for p := range under {
				time.Sleep(time.Until(p.due))
				_, _ = dst.Write(p.data) // if that has gone, src goes as well
			}
		}()
	}
	relay(conn, end)
	relay(end, conn)
	return near
}

// What calls cost in round trips and nothing else: the clock stands still while this machine computes. The clients
// have some connections from the start, as they have in a process that has run for a while: one may be busy with a
// probe, and a new one takes two round trips.
//
// A change of leader takes three: the note of the resignation, the unlock with its message, and the first value of the
// next leader. It takes up to one more if the next leader has just asked for the lock, as it does every 5 s or so,
// because it waits for that answer:
//
//	b asks                    the request arrives after the unlock of a
//	b hears that it has it    and waits for the answer, which says so too
func TestFakeTimeRoundTrips(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		const rtt = 20 * time.Millisecond
		server := rlocktest.NewServer(t)
		process := func() *rlock.Client {
			rdb := server.Client(func(o *redis.Options) {
				dial := o.Dialer
				o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
					conn, err := dial(ctx, network, addr)
					if err != nil {
						return nil, err
					}
					return far(conn, rtt), nil
				}
			})
			var pings sync.WaitGroup
			for range 5 {
				pings.Go(func() { require.NoError(t, rdb.Ping(t.Context()).Err()) })
			}
			pings.Wait()
			return locksOn(t, rdb, nil)
		}
		a, b := election.New(process(), "e", "a"), election.New(process(), "e", "b")
		trips := func(what func()) float64 {
			began := time.Now()
			what()
			return float64(time.Since(began)) / float64(rtt)
		}
		held, term := campaign(t, t.Context(), a) // the server learns the scripts
		require.NoError(t, term.Resign(held))
		require.InDelta(t, 2, trips(func() { held, term = campaign(t, t.Context(), a) }), 0.01)
		require.InDelta(t, 0, trips(func() { require.NoError(t, a.IsLeader(t.Context())) }), 0.01)
		require.InDelta(t, 1, trips(func() { require.NoError(t, term.Proclaim(held, "x")) }), 0.01)
		_, err := b.Leader(t.Context())
		require.NoError(t, err)
		require.InDelta(t, 1, trips(func() { _, err = b.Leader(t.Context()) }), 0.01)
		require.NoError(t, err)

		type won struct {
			held context.Context
			term *election.Term
			at   time.Time
		}
		var took []float64
		n := 400
		if testing.Short() {
			n = 60
		}
		for range n {
			next := make(chan won)
			go func() {
				held, term, err := b.Campaign(t.Context())
				require.NoError(t, err)
				next <- won{held, term, time.Now()}
			}()
			time.Sleep(10*time.Second + rand.N(10*time.Second)) // while b waits it asks and sends probes, and a renews
			began := time.Now()
			go func() { require.NoError(t, term.Resign(held)) }()
			w := <-next
			took = append(took, float64(w.at.Sub(began))/float64(rtt))
			time.Sleep(5 * rtt) // the resignation has returned
			held, term, a, b = w.held, w.term, b, a
		}
		require.NoError(t, term.Resign(held))
		slices.Sort(took)
		t.Logf("from Resign to the context of the next leader, in round trips: p50 %.2f, p99 %.2f, longest %.2f", took[n/2], took[n*99/100-1], took[n-1])
		require.InDelta(t, 3, took[n*9/10], 0.01)
		require.LessOrEqual(t, took[n-1], 4.01)
	})
}
