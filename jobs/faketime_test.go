package jobs_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/jobs"
	"github.com/go-rlock/rlock/rlock"
	"github.com/go-rlock/rlock/rlocktest"
)

// Each host has a scheduler that calls Do at each fire by its own clock, for an hour. The clocks differ,
// and the schedulers are late by a random time.
func TestFakeTimeAnHourOfDo(t *testing.T) {
	minute := jobs.Every(time.Minute)
	for _, c := range []struct {
		name     string
		clocks   []time.Duration // how far ahead that of each host is
		jitter   time.Duration   // up to that, in both directions
		schedule jobs.Schedule
		phases   bool // the hosts call at any moment between two fires
		want     int
	}{
		{"five hosts, ±5 s", []time.Duration{-5 * time.Second, -2500 * ms, 0, 2500 * ms, 5 * time.Second}, 10 * ms, minute, false, 60},
		{"one host, ±2 ms", []time.Duration{0}, 2 * ms, minute, false, 60},
		{"five hosts, at any moment", make([]time.Duration, 5), 2 * ms, minute, true, 60},
		{"cron, five hosts, ±5 s", []time.Duration{-5 * time.Second, -2500 * ms, 0, 2500 * ms, 5 * time.Second}, 10 * ms, minutes{0, 7, 30}, false, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				s := rlocktest.NewServer(t)
				var f fires
				begin := time.Now().Truncate(time.Hour).Add(time.Hour - 30*time.Second)
				end := begin.Add(time.Hour)
				var hosts sync.WaitGroup
				for _, ahead := range c.clocks {
					job := jobs.New(s.Locks(nil), "report", c.schedule)
					phase := time.Duration(0)
					if c.phases {
						phase = rand.N(time.Minute)
					}
					hosts.Go(func() {
						for at := c.schedule.Next(begin); at.Before(end); at = c.schedule.Next(at) {
							late := rand.N(2*c.jitter) - c.jitter
							time.Sleep(time.Until(at.Add(phase - ahead + late)))
							_, err := job.Do(t.Context(), func(ctx context.Context, fire time.Time) error {
								f.add(fire)
								time.Sleep(10 * ms)
								return ctx.Err()
							})
							if err != nil {
								t.Error(err)
							}
						}
					})
				}
				hosts.Wait()
				require.Zero(t, f.twice())
				require.Equal(t, c.want, f.between(begin, end))
			})
		})
	}
}

const ms = time.Millisecond

// Run sleeps by the clock of the server.
func TestFakeTimeAnHourOfRun(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		s := rlocktest.NewServer(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		var f fires
		begin := time.Now().Truncate(time.Hour).Add(time.Hour - 30*time.Second)
		time.Sleep(time.Until(begin))
		var hosts sync.WaitGroup
		for range 5 {
			job := jobs.New(s.Locks(nil), "report", jobs.Every(time.Minute))
			hosts.Go(func() {
				err := job.Run(ctx, func(_ context.Context, fire time.Time) error {
					f.add(fire)
					if late := time.Since(fire); late < 0 || late > 5*ms {
						t.Errorf("began %v after the fire", late)
					}
					time.Sleep(time.Second)
					return nil
				})
				if err != errOver {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Hour)
		cancel(errOver)
		hosts.Wait()
		require.Zero(t, f.twice())
		require.Equal(t, 60, f.between(begin, time.Now()))
	})
}

var errOver = errors.New("the hour is over")

// A server that is away at the fire: Run claims the fire when it is back, and no other.
func TestFakeTimeRunAfterAnOutage(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		s := rlocktest.NewServer(t)
		ctx, cancel := context.WithCancel(t.Context())
		begin := time.Now().Truncate(time.Hour)
		var ran []time.Duration
		var host sync.WaitGroup
		host.Go(func() {
			job := jobs.New(s.Locks(nil), "report", jobs.Every(time.Hour))
			_ = job.Run(ctx, func(_ context.Context, fire time.Time) error {
				ran = append(ran, fire.Sub(begin), time.Since(begin).Truncate(time.Minute))
				return nil
			})
		})
		time.Sleep(30 * time.Minute) // 0:30
		s.Hang()
		time.Sleep(3*time.Hour + 10*time.Minute) // 3:40: the fires of 1, 2 and 3 h were missed
		s.Heal()
		time.Sleep(30 * time.Minute) // 4:10
		cancel()
		host.Wait()
		require.Equal(t, []time.Duration{3 * time.Hour, 3*time.Hour + 40*time.Minute, 4 * time.Hour, 4 * time.Hour}, ran)
	})
}

// What was missed while no host was there: the next host runs the newest fire, but not if it is too late; and
// nothing if the job has never run.
func TestFakeTimeMissed(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		s := rlocktest.NewServer(t)
		begin := time.Now().Truncate(time.Hour)
		lives := func(d time.Duration, opts ...jobs.Option) (ran []time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			job := jobs.New(s.Locks(nil), "report", jobs.Every(time.Hour), opts...)
			require.ErrorIs(t, job.Run(ctx, func(_ context.Context, fire time.Time) error {
				ran = append(ran, fire.Sub(begin))
				return nil
			}), context.DeadlineExceeded)
			return ran
		}
		time.Sleep(30 * time.Minute)
		require.Equal(t, []time.Duration{time.Hour}, lives(time.Hour)) // until 1:30
		time.Sleep(2 * time.Hour)                                      // 3:30
		require.Equal(t, []time.Duration{3 * time.Hour}, lives(10*time.Minute))
		time.Sleep(2 * time.Hour) // 5:40
		require.Empty(t, lives(time.Minute, jobs.WithLate(30*time.Minute)))
		ran, err := jobs.New(s.Locks(nil), "report", jobs.Every(time.Hour), jobs.WithLate(30*time.Minute)).Do(t.Context(), nothing)
		require.NoError(t, err)
		require.False(t, ran)
		ran, err = jobs.New(s.Locks(nil), "report", jobs.Every(time.Hour)).Do(t.Context(), nothing)
		require.NoError(t, err)
		require.True(t, ran)
	})
}

// How near the next fire must be for a call to mean it.
func TestFakeTimeEarly(t *testing.T) {
	for _, c := range []struct {
		period, before time.Duration
		opts           []jobs.Option
		next           bool
	}{
		{time.Hour, 9 * time.Second, nil, true},
		{time.Hour, 11 * time.Second, nil, false},
		{time.Hour, 11 * time.Second, []jobs.Option{jobs.WithEarly(time.Minute)}, true},
		{time.Hour, 31 * time.Minute, []jobs.Option{jobs.WithEarly(time.Hour)}, false}, // half a period
		{time.Hour, ms, []jobs.Option{jobs.WithEarly(0)}, false},
		{4 * time.Second, 1900 * ms, nil, true},
		{4 * time.Second, 2100 * ms, nil, false},
	} {
		redistest.Bubble(t, func(t *testing.T) {
			s := rlocktest.NewServer(t)
			job := jobs.New(s.Locks(nil), "report", jobs.Every(c.period), c.opts...)
			next := time.Now().Truncate(time.Hour).Add(time.Hour)
			time.Sleep(time.Until(next.Add(-c.before)))
			fire, err := job.Claim(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.next, fire.Equal(next), "%+v: %v", c, fire)
		})
	}
}

// The hosts other than the holder wait until the next fire, and one of them repeats the run of a host that
// loses its lock and does nothing more, as if it had died.
func TestFakeTimeAtLeastOnce(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		s := rlocktest.NewServer(t)
		var began, ended []time.Duration
		var mu sync.Mutex // guards began and ended
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		var hosts sync.WaitGroup
		for range 3 {
			job := jobs.New(s.Locks(nil), "report", jobs.Every(time.Hour), jobs.AtLeastOnce())
			hosts.Go(func() {
				_ = job.Run(ctx, func(ctx context.Context, fire time.Time) error {
					mu.Lock()
					began = append(began, fire.Sub(start))
					mu.Unlock()
					select {
					case <-time.After(10 * time.Minute):
						mu.Lock()
						ended = append(ended, fire.Sub(start))
						mu.Unlock()
						return nil
					case <-ctx.Done():
						<-over
						return ctx.Err()
					}
				})
			})
		}
		time.Sleep(time.Hour + 5*time.Minute)
		synctest.Wait()
		s.Evict("report")
		time.Sleep(2 * time.Hour)
		cancel()
		close(over)
		hosts.Wait()
		require.Equal(t, []time.Duration{time.Hour, time.Hour, 2 * time.Hour, 3 * time.Hour}, began)
		require.Equal(t, []time.Duration{time.Hour, 2 * time.Hour}, ended[:2])
	})
}

// A late claim has no effect: nobody would run its fire.
func TestFakeTimeLateClaim(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		s := rlocktest.NewServer(t)
		a := jobs.New(s.Locks(nil), "report", jobs.Every(time.Hour))
		_, err := a.Claim(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)))
		_, err = a.Newest(t.Context()) // the clock is fresh: the claim is what hangs
		require.NoError(t, err)
		s.Hang()
		_, err = a.Claim(t.Context())
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		time.Sleep(time.Minute)
		s.Heal() // the requests are executed now
		time.Sleep(time.Second)
		ran, err := jobs.New(s.Locks(nil), "report", jobs.Every(time.Hour)).Do(t.Context(), nothing)
		require.NoError(t, err)
		require.True(t, ran)
	})
}

// A host whose work on an old fire was held up does not claim it after a later one.
func TestLateHost(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		s := rlocktest.NewServer(t)
		slow := jobs.New(s.Locks(nil), "report", jobs.Every(time.Hour), jobs.WithEarly(0))
		early := jobs.New(s.Locks(nil), "report", jobs.Every(time.Hour), jobs.WithEarly(time.Hour))
		time.Sleep(50 * time.Minute)
		fire, err := early.Claim(t.Context())
		require.NoError(t, err)
		require.True(t, fire.After(time.Now()))
		_, err = slow.Claim(t.Context())
		require.ErrorIs(t, err, jobs.ErrClaimed)
	})
}

// An answer that took 2 s says less of the clock than the one before, which took no time.
func TestFakeTimeSlowAnswer(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		s := rlocktest.NewServer(t)
		begin := time.Now().Truncate(time.Hour)
		job := jobs.New(s.Locks(nil), "report", jobs.Every(10*time.Second), jobs.WithEarly(0))
		time.Sleep(time.Until(begin.Add(time.Hour)))
		_, err := job.Newest(t.Context())
		require.NoError(t, err)
		s.Hang()
		time.AfterFunc(1900*ms, s.Heal)
		_, err = job.Newest(t.Context()) // the server answered at its end: half of the way is 950 ms too much
		require.NoError(t, err)
		time.Sleep(time.Until(begin.Add(time.Hour + 10*time.Second - 500*ms)))
		fire, err := job.Claim(t.Context())
		require.NoError(t, err)
		require.Equal(t, begin.Add(time.Hour).UnixMilli(), fire.UnixMilli())
	})
}

// The only host loses its lock in a run: it repeats the fire itself.
func TestFakeTimeAtLeastOnceAlone(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		s := rlocktest.NewServer(t)
		ctx, cancel := context.WithCancel(t.Context())
		var began []time.Time
		var host sync.WaitGroup
		host.Go(func() {
			_ = jobs.New(s.Locks(nil), "report", jobs.Every(time.Hour), jobs.AtLeastOnce()).Run(ctx, func(ctx context.Context, fire time.Time) error {
				if began = append(began, fire); len(began) == 1 {
					s.Evict("report")
					<-ctx.Done()
				}
				return ctx.Err()
			})
		})
		time.Sleep(time.Hour + 30*time.Minute)
		cancel()
		host.Wait()
		require.Len(t, began, 2)
		require.True(t, began[0].Equal(began[1]))
	})
}

// All hosts are down for days: the first host that is back runs the newest missed fire, however short the time from
// the fire before the outage to the next one was.
func TestFakeTimeMissedForDays(t *testing.T) {
	for _, c := range []struct {
		name        string
		schedule    jobs.Schedule
		from, until time.Duration // no host lives
		want        time.Duration // the newest missed fire
	}{
		{"daily, for 60 days", jobs.Every(24 * time.Hour), 36 * time.Hour, 61 * 24 * time.Hour, 61 * 24 * time.Hour},
		{"at 9 and 17, from 12 for 68 hours", hours{9, 17}, 12 * time.Hour, 80 * time.Hour, 65 * time.Hour},
	} {
		redistest.Bubble(t, func(t *testing.T) {
			s := rlocktest.NewServer(t)
			begin := time.Now().Truncate(24 * time.Hour)
			lives := func(until time.Duration) (ran []time.Duration) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Until(begin.Add(until)))
				defer cancel()
				err := jobs.New(s.Locks(nil), "report", c.schedule).Run(ctx, func(_ context.Context, fire time.Time) error {
					ran = append(ran, fire.Sub(begin))
					return nil
				})
				require.ErrorIs(t, err, context.DeadlineExceeded)
				return ran
			}
			require.Len(t, lives(c.from), 1)
			time.Sleep(time.Until(begin.Add(c.until)))
			require.Equal(t, []time.Duration{c.want}, lives(c.until+10*time.Minute), c.name)
		})
	}
}

// hangAfter makes a server hang when it has answered the first script of a client, and heals it later.
type hangAfter struct {
	server *rlocktest.Server
	first  sync.Once
	heal   time.Duration
}

func (*hangAfter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *hangAfter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && strings.HasPrefix(cmd.Name(), "eval") {
			h.first.Do(func() {
				h.server.Hang()
				time.AfterFunc(h.heal, h.server.Heal)
			})
		}
		return err
	}
}

func (*hangAfter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// The server hangs when a new host has read the clock, and has not read the newest fire yet: the host reads it later,
// and runs the fire that was missed.
func TestFakeTimeNewestNotAnswered(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		s := rlocktest.NewServer(t)
		hour := jobs.Every(time.Hour)
		_, err := jobs.New(s.Locks(nil), "report", hour).Claim(t.Context())
		require.NoError(t, err)
		begin := time.Now().Truncate(time.Hour)
		time.Sleep(time.Until(begin.Add(2*time.Hour + 30*time.Minute)))
		rdb := s.Client()
		rdb.AddHook(&hangAfter{server: s, heal: 5 * time.Minute})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
		defer cancel()
		var ran []time.Duration
		err = jobs.New(locks(t, rdb, nil), "report", hour).Run(ctx, func(_ context.Context, fire time.Time) error {
			ran = append(ran, fire.Sub(begin))
			return nil
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, []time.Duration{2 * time.Hour}, ran)
	})
}

// A host shuts down in a run. With AtLeastOnce, the other host repeats the fire at once, unless the work has come to
// its end and the host could note that. Without AtLeastOnce, no host repeats the fire.
func TestFakeTimeShutdown(t *testing.T) {
	least := []jobs.Option{jobs.AtLeastOnce()}
	own := errors.New("half of the report is there")
	for _, c := range []struct {
		name    string
		opts    []jobs.Option
		closes  bool // the client, instead of ending the context of Run
		returns func(context.Context) error
		again   bool
	}{
		{"at least once", least, false, context.Context.Err, true},
		{"at least once, client closed", least, true, context.Context.Err, true},
		{"at least once, an error of its own", least, false, func(context.Context) error { return own }, true},
		{"at least once, finished", least, false, func(context.Context) error { return nil }, false},
		{"at least once, done, client closed", least, true, func(context.Context) error { return nil }, true}, // it cannot be noted
		{"at most once", nil, false, context.Context.Err, false},
		{"at most once, client closed", nil, true, context.Context.Err, false},
	} {
		redistest.Bubble(t, func(t *testing.T) {
			s := rlocktest.NewServer(t)
			begin := time.Now().Truncate(time.Hour)
			var mu sync.Mutex // guards fires and begun
			var fires, begun []time.Duration
			var stops [2]func()
			first := make(chan int, 1)
			var hosts sync.WaitGroup
			for i := range stops {
				client := s.Locks(nil)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stops[i] = cancel
				if c.closes {
					stops[i] = func() { require.NoError(t, client.Close(t.Context())) }
				}
				hosts.Go(func() {
					err := jobs.New(client, "report", jobs.Every(time.Hour), c.opts...).Run(ctx, func(ctx context.Context, fire time.Time) error {
						mu.Lock()
						fires, begun = append(fires, fire.Sub(begin)), append(begun, time.Since(begin).Truncate(time.Second))
						n := len(fires)
						mu.Unlock()
						if n > 1 {
							return nil
						}
						first <- i
						<-ctx.Done()
						return c.returns(ctx)
					})
					want := context.Canceled
					if c.closes {
						want = rlock.ErrClosed
					}
					if !errors.Is(err, want) {
						t.Error(c.name, err)
					}
				})
			}
			i := <-first
			time.Sleep(5 * time.Minute)
			stops[i]()
			time.Sleep(10 * time.Minute)
			mu.Lock()
			if c.again {
				require.Equal(t, []time.Duration{time.Hour, time.Hour}, fires, c.name)
				require.Equal(t, []time.Duration{time.Hour, time.Hour + 5*time.Minute}, begun, c.name)
			} else {
				require.Equal(t, []time.Duration{time.Hour}, fires, c.name)
			}
			mu.Unlock()
			stops[1-i]()
			hosts.Wait()
		})
	}
}

// refusing lets Redis refuse all scripts of a client while it is set.
type refusing struct{ atomic.Bool }

type noPerm struct{}

func (noPerm) Error() string {
	return "NOPERM User host has no permissions to run the 'evalsha' command"
}
func (noPerm) RedisError() {}

func (*refusing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *refusing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if r.Load() && strings.HasPrefix(cmd.Name(), "eval") {
			cmd.SetErr(noPerm{})
			return noPerm{}
		}
		return next(ctx, cmd)
	}
}

func (r *refusing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !r.Load() {
			return next(ctx, cmds)
		}
		for _, cmd := range cmds {
			cmd.SetErr(noPerm{})
		}
		return noPerm{}
	}
}

// A Redis user that Run has worked with loses its rights: Run goes on if the user has them again within 5 s, and
// returns otherwise. If the user has no rights when Run begins, Run returns at once.
func TestFakeTimeRunRefused(t *testing.T) {
	for _, opts := range [][]jobs.Option{nil, {jobs.AtLeastOnce()}} {
		redistest.Bubble(t, func(t *testing.T) {
			s := rlocktest.NewServer(t)
			var r refusing
			rdb := s.Client()
			rdb.AddHook(&r)
			begin := time.Now().Truncate(time.Minute)
			for _, at := range []time.Duration{110, 124, 170} { // on, off, on
				time.AfterFunc(at*time.Second, func() { r.Store(!r.Load()) })
			}
			defer r.Store(false)
			var ran []time.Duration
			err := jobs.New(locks(t, rdb, nil), "report", jobs.Every(time.Minute), opts...).Run(t.Context(), func(_ context.Context, fire time.Time) error {
				ran = append(ran, fire.Sub(begin))
				return nil
			})
			require.ErrorIs(t, err, rlock.ErrRefused)
			require.Equal(t, []time.Duration{time.Minute, 2 * time.Minute}, ran)
			require.InDelta(t, 185, time.Since(begin).Seconds(), 1)

			again := time.Now() // the user has no rights yet
			require.ErrorIs(t, jobs.New(locks(t, rdb, nil), "report", jobs.Every(time.Minute), opts...).Run(t.Context(), nothing), rlock.ErrRefused)
			require.Zero(t, time.Since(again))
		})
	}
}

// Run says in the log that it cannot do its work, once for each outage.
func TestFakeTimeRunLogs(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		s := rlocktest.NewServer(t)
		var log bytes.Buffer
		client := s.Locks(&rlock.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Hour)
		defer cancel()
		for _, at := range []time.Duration{90, 330} { // minutes
			time.AfterFunc(at*time.Minute, s.Hang)
			time.AfterFunc((at+90)*time.Minute, s.Heal)
		}
		require.ErrorIs(t, jobs.New(client, "report", jobs.Every(time.Hour)).Run(ctx, nothing), context.DeadlineExceeded)
		require.NoError(t, client.Close(t.Context()))
		require.Equal(t, 2, strings.Count(log.String(), "keeps trying"), log.String())
		require.Contains(t, log.String(), "job=report")
	})
}
