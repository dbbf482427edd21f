package rlocktest_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-rlock/rlock/election"
	"github.com/go-rlock/rlock/idempotency"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/once"
	"github.com/go-rlock/rlock/rlock"
	"github.com/go-rlock/rlock/rlocktest"
)

// Tests of code that stands on packages election and once.

// The first leader loses its lock, and an observer sees the next one.
func TestTheNextLeader(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		server := rlocktest.NewServer(t)
		var working atomic.Int64
		for _, host := range []string{"a", "b"} {
			e := election.New(server.Locks(nil), "scheduler", host, election.WithTakeoverDelay(15*time.Second))
			go func() {
				_ = e.Run(t.Context(), func(ctx context.Context, _ *election.Term) error {
					if working.Add(1) != 1 {
						t.Error("two leaders")
					}
					<-ctx.Done()
					time.Sleep(4 * time.Second) // to stop
					working.Add(-1)
					return ctx.Err()
				})
			}()
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		leaders := make(chan election.Leader, 10)
		go func() {
			for leader, err := range election.New(server.Locks(nil), "scheduler", "").Observe(ctx) {
				if err != nil {
					t.Error(err)
				}
				leaders <- leader
			}
		}()
		leader := func() election.Leader {
			for l := range leaders {
				if l.Term != 0 {
					return l
				}
			}
			return election.Leader{}
		}
		first := leader()
		time.Sleep(10 * time.Minute)
		if len(leaders) > 0 {
			t.Error("the leader has changed")
		}

		server.Evict("scheduler")
		start := time.Now()
		next := leader()
		if next.Term <= first.Term {
			t.Errorf("term %d after %d", next.Term, first.Term)
		}
		if d := time.Since(start); d > time.Minute {
			t.Errorf("nobody led for %v", d)
		}
		cancel()
		synctest.Wait()
	})
}

// A silent server: the context of the leader ends before another candidate can lead.
func TestLeaderStopsWhileTheServerIsSilent(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		server := rlocktest.NewServer(t)
		e := election.New(server.Locks(nil), "scheduler", "a")
		held, term, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		server.Hang()
		start := time.Now()
		<-held.Done()
		if d := time.Since(start); d > rlock.DefaultLeaseTime || e.IsLeader(t.Context()) == nil {
			t.Errorf("stopped after %v", d)
		}
		server.Heal()
		if err := term.Resign(held); !errors.Is(err, rlock.ErrLeaseLost) {
			t.Error(err)
		}
	})
}

// Many callers on three hosts ask for the rate each second. It is fetched once a minute.
func TestARateEachMinute(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		server := rlocktest.NewServer(t)
		var fetched atomic.Int64
		var callers sync.WaitGroup
		end := time.Now().Add(10 * time.Minute)
		for range 3 { // hosts
			rates := once.New(server.Locks(nil), once.Options{TTL: time.Minute})
			for range 5 {
				callers.Go(func() {
					for ; time.Now().Before(end); time.Sleep(time.Second) {
						rate, err := rates.Do(t.Context(), "rate:EUR", func(context.Context) ([]byte, error) {
							time.Sleep(2 * time.Second)
							return strconv.AppendInt(nil, fetched.Add(1), 10), nil
						})
						if err != nil || string(rate) != strconv.FormatInt(fetched.Load(), 10) {
							t.Errorf("rate %s of %d, %v", rate, fetched.Load(), err)
						}
					}
				})
			}
		}
		callers.Wait()
		if n := fetched.Load(); n != 10 {
			t.Errorf("fetched %d times", n)
		}
	})
}

// A request that is repeated on another host, while the first is in progress and later.
func TestARepeatedRequest(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		server := rlocktest.NewServer(t)
		paid := 0
		host := func() http.Handler {
			guard := idempotency.New(server.Locks(nil), idempotency.Options{Scope: func(*http.Request) string { return "alice" }})
			return guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				paid++
				time.Sleep(time.Minute)
				w.WriteHeader(http.StatusCreated)
			}))
		}
		send := func(h http.Handler) int {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/payments", nil)
			r.Header.Set("Idempotency-Key", `"1"`)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Code
		}
		a, b := host(), host()
		first := make(chan int)
		go func() { first <- send(a) }()
		time.Sleep(30 * time.Second)
		if code := send(b); code != http.StatusConflict {
			t.Errorf("in progress: %d", code)
		}
		if code := <-first; code != http.StatusCreated {
			t.Errorf("first: %d", code)
		}
		if code := send(b); code != http.StatusCreated || paid != 1 {
			t.Errorf("repeated: %d, paid %d times", code, paid)
		}
	})
}
