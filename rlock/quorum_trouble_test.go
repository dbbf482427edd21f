package rlock_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// quorumLines are what the log says of the servers of a quorum lock.
func quorumLines(log *logBuffer) (lines []string) {
	for line := range strings.Lines(log.String()) {
		if _, text, ok := strings.Cut(line, "rlock: quorum: "); ok {
			text, _, _ = strings.Cut(text, `"`)
			lines = append(lines, text)
		}
	}
	return lines
}

// The log tells of a server that does not answer once, whether calls ask it or only renewals, and once
// when it answers again.
func TestFakeTimeQuorumTellsOfAServerInTrouble(t *testing.T) {
	for name, fault := range map[string]func(*fakeRedis){
		"silent":  func(f *fakeRedis) { f.deafUp.Store(true) },
		"refuses": func(f *fakeRedis) { f.SetError("LOADING Redis is loading the dataset in memory") },
	} {
		for _, renewals := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				redistest.Bubble(t, func(t *testing.T) {
					var log logBuffer
					var all []*fakeRedis
					var clients []*rlock.Client
					for _, id := range []string{"x", "y", "z"} {
						f := newFakeRedis(t)
						runs(f, id, 31*time.Second)
						f.late.Store(int64(time.Millisecond)) // a renewal that is not sent before the others are answered is not sent at all
						all, clients = append(all, f), append(clients, f.client(t, &rlock.Options{Logger: log.logger()}))
					}
					mu := rlock.NewQuorumLock("a", clients)
					work := func() {
						if renewals {
							time.Sleep(2 * time.Minute)
							return
						}
						for range 100 {
							held, hold := lock(t, t.Context(), mu)
							require.NoError(t, hold.Unlock(held))
							time.Sleep(100 * time.Millisecond)
						}
					}
					held, hold := lock(t, t.Context(), mu)
					if !renewals {
						require.NoError(t, hold.Unlock(held))
					}
					work()
					require.Empty(t, quorumLines(&log))
					fault(all[2])
					work()
					synctest.Wait()
					require.Equal(t, []string{"server 127.0.0.1:1 does not answer: 2 of 3 left"}, quorumLines(&log))
					all[2].cutAll()
					all[2].heal()
					runs(all[2], "z", time.Hour)
					work()
					synctest.Wait()
					require.Equal(t, "server 127.0.0.1:1 answers again", strings.Join(quorumLines(&log)[1:], "|"))
					if renewals {
						require.NoError(t, hold.Unlock(held))
					}
				})
			})
		}
	}
}

// Where too few answer, the error says how many, and which do not.
func TestFakeTimeQuorumErrorCountsServers(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		all, _, mu := fakeServers(t)
		for _, f := range all[:2] {
			f.SetError("LOADING Redis is loading the dataset in memory")
		}
		_, _, err := mu.TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		require.ErrorContains(t, err, "1 of 3 servers answered, 2 are needed: 127.0.0.1:1: LOADING")
		require.NotContains(t, err.Error(), "\n")
		for _, f := range all[:2] {
			f.SetError("")
			f.deafUp.Store(true)
		}
		_, _, err = mu.TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		require.ErrorContains(t, err, "1 of 3 servers answered, 2 are needed: 127.0.0.1:1: no answer")
	})
}

// The log says for how long a server is not counted that has just started.
func TestFakeTimeQuorumTellsOfAYoungServer(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		var log logBuffer
		var clients []*rlock.Client
		for n, id := range []string{"x", "y", "z"} {
			f := newFakeRedis(t)
			runs(f, id, 31*time.Second-time.Duration(n/2)*10*time.Second)
			clients = append(clients, f.client(t, &rlock.Options{Logger: log.logger()}))
		}
		mu := rlock.NewQuorumLock("a", clients)
		for range 3 {
			require.NoError(t, mu.Do(t.Context(), func(context.Context) error { return nil }))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []string{"server 127.0.0.1:1 has just started, and may have forgotten who holds a lock: it is not counted for another 10s"}, quorumLines(&log))
	})
}
