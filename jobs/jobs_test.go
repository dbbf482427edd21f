package jobs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/jobs"
	"github.com/go-rlock/rlock/rlock"
)

// count returns the commands that a call of Do sends, without those of scripts.
func count(t *testing.T, m *redistest.Monitor, job *jobs.Job, runs bool) (n int) {
	t.Helper()
	m.Commands()
	ran, err := job.Do(t.Context(), nothing)
	require.NoError(t, err)
	require.Equal(t, runs, ran)
	for _, c := range m.Commands() {
		if c.Client != "lua" {
			n++
		}
	}
	return n
}

func TestRoundTrips(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		opts      []jobs.Option
		won, lost int
	}{
		{"at most once", nil, 3, 1},
		{"at least once", []jobs.Option{jobs.AtLeastOnce()}, 5, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			hour := jobs.Every(time.Hour)
			a, b := host(t, s.Addr()), host(t, s.Addr())
			_, err := jobs.New(a, "warm", hour, c.opts...).Do(t.Context(), nothing) // the server learns the scripts
			require.NoError(t, err)
			_, err = jobs.New(b, "warm", hour, c.opts...).Newest(t.Context()) // has a connection
			require.NoError(t, err)
			job, other := jobs.New(a, "j", hour, c.opts...), jobs.New(b, "j", hour, c.opts...)
			m := s.Monitor(t)
			require.Equal(t, c.won+1, count(t, m, job, true), "the first call also asks for the time")
			require.Equal(t, c.lost+1, count(t, m, other, false), "the same")
			require.Equal(t, c.lost, count(t, m, other, false))
			require.NoError(t, s.Client(t).Del(t.Context(), "rlock_companion:{j}").Err())
			require.Equal(t, c.won, count(t, m, other, true))
		})
	}
}

func child(args []string) {
	rdb := redis.NewClient(&redis.Options{Addr: args[0]})
	locks, err := rlock.New(rdb, &rlock.Options{LeaseTime: 300 * ms})
	if err != nil {
		panic(err)
	}
	var opts []jobs.Option
	if args[1] == "least" {
		opts = append(opts, jobs.AtLeastOnce())
	}
	fmt.Println(jobs.New(locks, "j", jobs.Every(time.Second), opts...).Run(context.Background(), func(ctx context.Context, fire time.Time) error {
		field := strconv.FormatInt(fire.UnixMilli(), 10)
		rdb.HIncrBy(ctx, "began", field, 1)
		time.Sleep(10 * ms)
		if rand.IntN(8) == 0 {
			self, _ := os.FindProcess(os.Getpid())
			_ = self.Kill()
			select {}
		}
		rdb.HIncrBy(ctx, "ended", field, 1)
		return nil
	}))
}

// Five processes, each of which kills itself in one of eight runs. A new one takes the place of a dead one.
func TestHostsThatKillThemselves(t *testing.T) {
	redistest.Long(t, "a run for each of 36 seconds")
	for _, mode := range []string{"most", "least"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			rdb := s.Client(t)
			begin := time.Now().Add(2 * time.Second)
			last := begin.Add(36 * time.Second)
			end := last.Add(3 * time.Second)
			var died atomic.Int64
			var hosts sync.WaitGroup
			for range 5 {
				hosts.Go(func() {
					for time.Now().Before(end) {
						c := redistest.Spawn(t, "host", s.Addr(), mode)
						if _, crashed := errors.AsType[*exec.ExitError](c.Wait(time.Until(end))); crashed {
							died.Add(1)
						}
						c.Kill()
					}
				})
			}
			hosts.Wait()
			began, ended := rdb.HGetAll(t.Context(), "began").Val(), rdb.HGetAll(t.Context(), "ended").Val()
			want, ran, repeated, cut, endedTwice := 0, 0, 0, 0, 0
			for at := jobs.Every(time.Second).Next(begin); at.Before(last); at = jobs.Every(time.Second).Next(at) {
				field := strconv.FormatInt(at.UnixMilli(), 10)
				want++
				switch {
				case began[field] == "":
					continue
				case began[field] != "1":
					repeated++
				}
				ran++
				if ended[field] == "" {
					cut++
				} else if ended[field] != "1" {
					endedTwice++
				}
			}
			t.Logf("%d fires, %d ran, %d begun again, %d never finished, %d finished twice; %d hosts died", want, ran, repeated, cut, endedTwice, died.Load())
			require.Positive(t, died.Load())
			require.Equal(t, want, ran)
			require.Zero(t, endedTwice)
			if mode == "most" {
				require.Zero(t, repeated)
			} else {
				require.Zero(t, cut)
			}
		})
	}
}

// What is done to the requests of one host, while another has an untouched network.
func TestRequestsTwiceLostAndLate(t *testing.T) {
	t.Parallel()
	scripts := netfault.Command("evalsha", "eval")
	for _, c := range []struct {
		name string
		hook redis.Hook
		rule func(*netfault.Proxy)
	}{
		{"all sent twice", redistest.SendTwice(), nil},
		{"replies lost", nil, func(p *netfault.Proxy) { p.CutRandom(0.3, 1, scripts) }},
		{"requests late", nil, func(p *netfault.Proxy) { p.LateRandom(0.3, 0, 300*ms, 1, scripts) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			p := netfault.New(t, s.Addr())
			rdb := redis.NewClient(&redis.Options{Addr: p.Addr()})
			if c.hook != nil {
				rdb.AddHook(c.hook)
			}
			if c.rule != nil {
				c.rule(p)
			}
			period := jobs.Every(100 * ms)
			var f fires
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			var hosts sync.WaitGroup
			for _, locks := range []*rlock.Client{host(t, s.Addr()), locks(t, rdb, nil)} {
				hosts.Go(func() {
					if err := jobs.New(locks, "j", period).Run(ctx, f.note); !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
				})
			}
			hosts.Wait()
			t.Logf("%d fires, %d twice", len(f.ran), f.twice())
			require.Zero(t, f.twice())
			require.Positive(t, len(f.ran))
		})
	}
}

// The run of one fire lasts until after the next fire.
func TestOverlap(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	period := jobs.Every(100 * ms)
	a, b := jobs.New(host(t, s.Addr()), "j", period), jobs.New(host(t, s.Addr()), "j", period)
	_, run, err := a.Begin(t.Context())
	require.NoError(t, err)
	redistest.Eventually(t, "the next fire", func() bool {
		ran, err := b.Do(t.Context(), nothing)
		require.False(t, ran)
		if err != nil {
			require.ErrorIs(t, err, jobs.ErrRunning)
			require.ErrorIs(t, err, rlock.ErrNotAcquired)
		}
		return err != nil
	})
	require.NoError(t, run.End(t.Context()))
	redistest.Eventually(t, "the one after that", func() bool {
		ran, err := b.Do(t.Context(), nothing)
		require.NoError(t, err)
		return ran
	})
}

func TestUnavailable(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	job := jobs.New(host(t, s.Addr()), "j", jobs.Every(time.Hour))
	_, err := job.Newest(t.Context())
	require.NoError(t, err)
	s.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 300*ms)
	defer cancel()
	ran, err := job.Do(ctx, nothing)
	require.False(t, ran)
	require.ErrorIs(t, err, rlock.ErrUnavailable)
	require.ErrorContains(t, err, `"j"`)
	require.ErrorIs(t, job.Run(ctx, nothing), context.DeadlineExceeded)
	s.Restart()
}

// What fn returns, and what becomes of its fire.
func TestErrors(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	locks := host(t, s.Addr())
	broken := errors.New("the disk is full")
	for _, opts := range [][]jobs.Option{nil, {jobs.AtLeastOnce()}} {
		name := fmt.Sprint(len(opts))
		job := jobs.New(locks, name, jobs.Every(time.Hour), opts...)
		ran, err := job.Do(t.Context(), func(context.Context, time.Time) error { return broken })
		require.ErrorIs(t, err, broken)
		require.True(t, ran)
		ran, err = job.Do(t.Context(), nothing)
		require.NoError(t, err)
		require.False(t, ran, "an error is a result")

		job = jobs.New(locks, name+"panics", jobs.Every(time.Hour), opts...)
		require.Panics(t, func() { _, _ = job.Do(t.Context(), func(context.Context, time.Time) error { panic("help") }) })
		ran, err = job.Do(t.Context(), nothing)
		require.NoError(t, err)
		require.Equal(t, len(opts) == 1, ran, "a panic is not the end of the work")

		job = jobs.New(locks, name+"lost", jobs.Every(time.Hour), opts...)
		ran, err = job.Do(t.Context(), func(ctx context.Context, _ time.Time) error {
			require.NoError(t, s.Client(t).Del(ctx, name+"lost").Err())
			<-ctx.Done()
			return context.Cause(ctx)
		})
		require.True(t, ran)
		require.ErrorIs(t, err, rlock.ErrLeaseLost)
		require.Equal(t, 1, strings.Count(err.Error(), "lease lost"), "reported once: %v", err)
		ran, err = job.Do(t.Context(), nothing)
		require.NoError(t, err)
		require.Equal(t, len(opts) == 1, ran)

		job = jobs.New(locks, name+"ends", jobs.Every(time.Hour), opts...)
		ctx, cancel := context.WithCancel(t.Context())
		ran, err = job.Do(ctx, func(ctx context.Context, _ time.Time) error { cancel(); return ctx.Err() })
		require.True(t, ran)
		require.ErrorIs(t, err, context.Canceled)
		ran, err = job.Do(t.Context(), nothing)
		require.NoError(t, err)
		require.Equal(t, len(opts) == 1, ran, "work that was cut short is not finished")

		job = jobs.New(locks, name+"run", jobs.Every(50*ms), opts...)
		require.ErrorIs(t, job.Run(t.Context(), func(context.Context, time.Time) error { return broken }), broken)
	}
}

// Run goes on after it has lost a lock, and ends with the client.
func TestRunGoesOn(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer func() { _ = rdb.Close() }()
	locks, err := rlock.New(rdb, &rlock.Options{LeaseTime: 300 * ms})
	require.NoError(t, err)
	began := make(chan time.Time, 100)
	first := true
	ended := make(chan error)
	go func() {
		ended <- jobs.New(locks, "j", jobs.Every(50*ms)).Run(t.Context(), func(ctx context.Context, fire time.Time) error {
			began <- fire
			if first {
				first = false
				rdb.Del(ctx, "j")
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
	}()
	require.True(t, (<-began).Before(<-began))
	require.NoError(t, locks.Close(t.Context()))
	require.ErrorIs(t, <-ended, rlock.ErrClosed)
}

// Redis refuses the first request of Run: Run returns at once.
func TestRunRefused(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	require.NoError(t, s.Client(t).Do(t.Context(), "acl", "setuser", "host", "on", ">secret", "allkeys", "allchannels", "+@all", "-evalsha", "-eval").Err())
	for password, text := range map[string]string{"secret": "NOPERM", "wrong": "WRONGPASS"} {
		locks := locks(t, redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "host", Password: password}), nil)
		for _, opts := range [][]jobs.Option{nil, {jobs.AtLeastOnce()}} {
			err := jobs.New(locks, "j", jobs.Every(100*ms), opts...).Run(t.Context(), nothing)
			require.ErrorIs(t, err, rlock.ErrRefused)
			require.ErrorContains(t, err, text)
		}
	}
}

func TestInvalid(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	locks := host(t, s.Addr())
	hour := jobs.Every(time.Hour)
	m := s.Monitor(t)
	m.Commands()
	for text, job := range map[string]*jobs.Job{
		"name":                jobs.New(locks, "", hour),
		"at least 10ms":       jobs.New(locks, "j", jobs.Every(9*ms)),
		"jobs.Every(0s)":      jobs.New(locks, "j", jobs.Every(0)),
		"jobs.Every(-1h0m0s)": jobs.New(locks, "j", jobs.Every(-time.Hour)),
		"whole milliseconds":  jobs.New(locks, "j", jobs.Every(time.Second+1)),
		"counts from":         jobs.New(locks, "j", fromCall(time.Minute)),
		"is nil":              jobs.New(locks, "j", nil),
		"option is nil":       jobs.New(locks, "j", hour, nil),
		"negative":            jobs.New(locks, "j", hour, jobs.WithLate(-1)),
		"negative time":       jobs.New(locks, "j", hour, jobs.WithEarly(-1)),
		"lease":               jobs.New(locks, "j", hour, jobs.WithLease(-1)),
		"at least one":        jobs.New(locks, "j", hour, jobs.WithReplicas(0, ms)),
		"not later":           jobs.New(locks, "j", once(time.Now().Add(-time.Hour)).still()),
	} {
		_, do := job.Do(t.Context(), nothing)
		_, _, begin := job.Begin(t.Context())
		_, claim := job.Claim(t.Context())
		_, newest := job.Newest(t.Context())
		for _, err := range []error{do, begin, claim, newest, job.Run(t.Context(), nothing)} {
			require.ErrorIs(t, err, rlock.ErrInvalidOption)
			require.ErrorContains(t, err, text)
		}
	}
	require.Empty(t, m.Commands())
}

// still is a schedule whose Next is not later.
func (o once) still() stuck { return stuck(o) }

type stuck time.Time

func (s stuck) Next(time.Time) time.Time { return time.Time(s) }

// What is at the key already is not overwritten.
func TestKeyConflict(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	require.NoError(t, rdb.Set(t.Context(), "rlock_companion:{text}", "x", 0).Err())
	require.NoError(t, rdb.HSet(t.Context(), "rlock_companion:{leader}", "is", "leader").Err())
	require.NoError(t, rdb.HSet(t.Context(), "rlock_companion:{hash}", "fire", "1").Err())
	for _, name := range []string{"text", "leader", "hash"} {
		before := rdb.Dump(t.Context(), "rlock_companion:{"+name+"}").Val()
		for _, opts := range [][]jobs.Option{nil, {jobs.AtLeastOnce()}} {
			job := jobs.New(host(t, s.Addr()), name, jobs.Every(time.Hour), opts...)
			_, err := job.Do(t.Context(), nothing)
			require.ErrorIs(t, err, rlock.ErrKeyConflict)
			require.ErrorContains(t, err, name)
			require.ErrorIs(t, job.Run(t.Context(), nothing), rlock.ErrKeyConflict)
		}
		require.Equal(t, before, rdb.Dump(t.Context(), "rlock_companion:{"+name+"}").Val())
	}
}

func TestNamesWithBraces(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	locks := locks(t, redis.NewClient(&redis.Options{Addr: s.Addr()}), &rlock.Options{Prefix: "app:"})
	for _, name := range []string{"a{b}c", "{all}", "{a}{b}"} {
		job := jobs.New(locks, name, jobs.Every(time.Hour))
		ran, err := job.Do(t.Context(), nothing)
		require.NoError(t, err)
		require.True(t, ran, name)
		ran, err = job.Do(t.Context(), nothing)
		require.NoError(t, err)
		require.False(t, ran, name)
	}
	for _, name := range []string{"{", "{}x", "a}b"} { // as locks
		_, err := jobs.New(locks, name, jobs.Every(time.Hour)).Do(t.Context(), nothing)
		require.ErrorIs(t, err, rlock.ErrInvalidOption)
		require.ErrorContains(t, err, "cluster slot")
	}
}

// The newest fire counts, and the log has one warning.
func TestTwoSchedules(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for name, other := range map[string]jobs.Schedule{"shorter": jobs.Every(20 * ms), "longer": jobs.Every(10 * time.Second)} {
		var log bytes.Buffer
		a, err := rlock.New(s.Client(t), nil)
		require.NoError(t, err)
		b, err := rlock.New(s.Client(t), &rlock.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		one, two := jobs.New(a, name, jobs.Every(100*ms)), jobs.New(b, name, other)
		var f fires
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for ctx.Err() == nil {
			for _, job := range []*jobs.Job{one, two} {
				_, err := job.Do(t.Context(), f.note)
				require.NoError(t, err)
			}
			time.Sleep(10 * ms)
		}
		require.Zero(t, f.twice())
		require.NoError(t, errors.Join(a.Close(t.Context()), b.Close(t.Context())))
		require.Equal(t, 1, strings.Count(log.String(), "another schedule"), log.String())
		require.Contains(t, log.String(), "job="+name)
	}
}

// One schedule, and hosts that call at all moments: nothing is logged.
func TestOneSchedule(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var log bytes.Buffer
	var clients []*rlock.Client
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var hosts sync.WaitGroup
	for range 3 {
		c, err := rlock.New(s.Client(t), &rlock.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		clients = append(clients, c)
		job := jobs.New(c, "j", jobs.Every(20*ms))
		hosts.Go(func() {
			for ctx.Err() == nil {
				_, _ = job.Claim(ctx)
				time.Sleep(rand.N(30 * ms))
			}
		})
	}
	hosts.Wait()
	for _, c := range clients {
		require.NoError(t, c.Close(t.Context()))
	}
	require.Empty(t, log.String())
}

// The newest fire stays claimed until a year after the next fire, so a host that is back by then runs that fire.
func TestNoteStays(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	for name, c := range map[string]struct {
		schedule jobs.Schedule
		least    time.Duration
	}{
		"second": {jobs.Every(time.Second), 365 * 24 * time.Hour},
		"month":  {jobs.Every(30 * 24 * time.Hour), (30 + 365) * 24 * time.Hour},
		"once":   {once(time.Now().Add(time.Second)), 10 * 365 * 24 * time.Hour},
	} {
		fire, err := jobs.New(host(t, s.Addr()), name, c.schedule).Claim(t.Context())
		require.NoError(t, err)
		require.Greater(t, rdb.PTTL(t.Context(), "rlock_companion:{"+name+"}").Val(), c.least)
		newest, err := jobs.New(host(t, s.Addr()), name, c.schedule).Newest(t.Context())
		require.NoError(t, err)
		require.Equal(t, fire.UnixMilli(), newest.UnixMilli())
	}
}

func TestNewestBeforeTheFirst(t *testing.T) {
	t.Parallel()
	newest, err := jobs.New(host(t, redistest.Start(t).Addr()), "j", jobs.Every(time.Hour)).Newest(t.Context())
	require.NoError(t, err)
	require.True(t, newest.IsZero())
}

// A schedule without further fires.
func TestRunEndsWithTheSchedule(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var f fires
	require.NoError(t, jobs.New(host(t, s.Addr()), "j", once(time.Now().Add(200*ms))).Run(t.Context(), f.note))
	require.Len(t, f.ran, 1)
}

// The reply to a claim is lost, so it is repeated: the fire is this host's.
func TestRepeatedClaim(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := netfault.New(t, s.Addr())
	locks := host(t, p.Addr())
	job := jobs.New(locks, "j", jobs.Every(time.Hour))
	_, err := jobs.New(locks, "warm", jobs.Every(time.Hour)).Claim(t.Context()) // the server learns the script, or the reply that is lost is NOSCRIPT
	require.NoError(t, err)
	_, err = job.Newest(t.Context())
	require.NoError(t, err)
	p.CutReplies(1, netfault.Arg("rlock_companion:{j}"))
	ran, err := job.Do(t.Context(), nothing)
	require.NoError(t, err)
	require.True(t, ran)
	require.EqualValues(t, 1, p.Stats().RepliesCut)
}

// A host whose lock was deleted in its run, and that does not know it yet, does not note the fire as finished. Its
// work may have been cut short, so another host runs the fire again, and that run is the one that counts.
func TestFinishedByTheHolderOnly(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	hour := jobs.Every(time.Hour)
	a, b := jobs.New(host(t, s.Addr()), "j", hour, jobs.AtLeastOnce()), jobs.New(host(t, s.Addr()), "j", hour, jobs.AtLeastOnce())
	_, run, err := a.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Client(t).Del(t.Context(), "j").Err())
	require.ErrorIs(t, run.End(t.Context()), rlock.ErrLeaseLost)
	newest, err := b.Newest(t.Context())
	require.NoError(t, err)
	require.True(t, newest.IsZero(), "%v counts as finished", newest)
	ran, err := b.Do(t.Context(), nothing)
	require.NoError(t, err)
	require.True(t, ran)
	newest, err = a.Newest(t.Context())
	require.NoError(t, err)
	require.True(t, newest.Equal(run.Fire()))
}
