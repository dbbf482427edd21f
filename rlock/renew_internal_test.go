package rlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/watchdog"
)

// elsewhere is a fake whose renewals go to a server of its own.
type elsewhere struct {
	*fake
	key string
	rdb *redis.Client
}

func (e elsewhere) Key() string { return e.key }

func (e elsewhere) Renewals(owner string, lease time.Duration) []kind.Renewal {
	return []kind.Renewal{{RDB: e.rdb, Renewal: lua.Renewal{Grant: lua.Grant{Key: e.key, Owner: owner}, Lease: lease}}}
}

// renewing is a server that answers renewals with 1 or 0, or not at all if answer is nil.
func renewing(answer any) redis.Hook {
	return redistest.Answers(func(ctx context.Context, cmds ...redis.Cmder) error {
		if answer == nil {
			return hang(ctx)
		}
		for _, cmd := range cmds {
			cmd.(interface{ SetVal(any) }).SetVal(answer)
		}
		return nil
	})
}

// hooked returns a client whose answers come from a hook.
func hooked(t *testing.T, h redis.Hook) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	rdb.AddHook(h)
	return rdb
}

// A lock that was removed on one node is lost as soon as that has said so, also while
// another hangs that is asked in the same batch.
func TestFakeTimeLossBesideANodeThatHangs(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, _, f := newFake(t)
		var held []context.Context
		var due []watchdog.Renewal[*grant]
		for key, answer := range map[string]any{"gone": int64(0), "there": int64(1), "hangs": nil} {
			l := c.NewLock(key)
			l.use(elsewhere{f, key, hooked(t, renewing(answer))})
			ctx, hold, err := l.Lock(t.Context())
			require.NoError(t, err)
			defer func() { _ = hold.Unlock(ctx) }()
			held = append(held, ctx)
			due = append(due, watchdog.Renewal[*grant]{Key: hold.grant, Duration: l.terms.lease, Before: l.terms.lease})
		}
		start, done := time.Now(), make(chan []error, 1)
		go func() { done <- c.renew(within(t, 5*time.Second), due) }()
		synctest.Wait()
		for i, d := range due {
			require.Equal(t, d.Key.lock.key == "gone", held[i].Err() != nil, d.Key.lock.key)
		}
		errs := <-done
		require.Equal(t, 5*time.Second, time.Since(start))
		for i, d := range due {
			require.Equal(t, d.Key.lock.key != "there", errs[i] != nil)
			require.Equal(t, d.Key.lock.key == "gone", errs[i] == watchdog.ErrRefused)
		}
	})
}

// slowRenewing is a server that answers each pipeline of renewals after a while, whatever
// its context says, and counts how many there are at a time.
type slowRenewing struct {
	takes atomic.Int64 // a time.Duration

	mu        sync.Mutex
	now, most int
}

func newSlowRenewing(takes time.Duration) *slowRenewing {
	s := new(slowRenewing)
	s.takes.Store(int64(takes))
	return s
}

func (s *slowRenewing) hook() redis.Hook {
	return redistest.Answers(func(_ context.Context, cmds ...redis.Cmder) error {
		s.add(1)
		defer s.add(-1)
		time.Sleep(time.Duration(s.takes.Load()))
		for _, cmd := range cmds {
			cmd.(interface{ SetVal(any) }).SetVal(int64(1))
		}
		return nil
	})
}

func (s *slowRenewing) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now += n
	s.most = max(s.most, s.now)
}

func (s *slowRenewing) seen() (now, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now, s.most
}

// spread is a fake whose renewals go to several servers.
type spread struct {
	*fake
	parts []elsewhere
}

func (s spread) Key() string { return s.parts[0].key }

func (s spread) Renewals(owner string, lease time.Duration) (all []kind.Renewal) {
	for _, p := range s.parts {
		all = append(all, p.Renewals(owner, lease)...)
	}
	return all
}

// crowd are holds of a client, each with a part of its lease on each of the servers.
func crowd(t *testing.T, c *Client, f *fake, name string, n int, servers ...*slowRenewing) (due []watchdog.Renewal[*grant]) {
	var clients []*redis.Client
	for _, s := range servers {
		clients = append(clients, hooked(t, s.hook()))
	}
	for i := range n {
		l := c.NewLock(name + strconv.Itoa(i))
		s := spread{fake: f}
		for _, rdb := range clients {
			s.parts = append(s.parts, elsewhere{f, l.name, rdb})
		}
		l.use(s)
		ctx, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = hold.Unlock(ctx) })
		due = append(due, watchdog.Renewal[*grant]{Key: hold.grant, Duration: l.terms.lease, Before: l.terms.lease})
	}
	return due
}

// alone renews one hold by a batch of its own.
func alone(t *testing.T, c *Client, d watchdog.Renewal[*grant], patience time.Duration) error {
	return c.renew(within(t, patience), []watchdog.Renewal[*grant]{d})[0]
}

// However many batches are due, a server is sent few at a time, so that they need none of
// the connections that the application may have taken. All are answered.
func TestFakeTimeRenewalsThatCrowd(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, _, f := newFake(t)
		s := newSlowRenewing(10 * time.Millisecond)
		start := time.Now()
		var all sync.WaitGroup
		for _, d := range crowd(t, c, f, "crowd", 60, s) {
			all.Go(func() { assert.NoError(t, alone(t, c, d, time.Second)) })
		}
		all.Wait()
		_, most := s.seen()
		require.Equal(t, 4, most)
		require.Equal(t, 150*time.Millisecond, time.Since(start))
	})
}

// A server that hangs keeps its places until the contexts of its pipelines end, also if
// go-redis keeps the pipelines for longer. Another server has places of its own.
func TestFakeTimeRenewalsBesideACrowd(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, _, f := newFake(t)
		hangs := newSlowRenewing(time.Minute)
		crowded, other := crowd(t, c, f, "hangs", 20, hangs), crowd(t, c, f, "well", 1, newSlowRenewing(0))
		start := time.Now()
		var sent, waited sync.WaitGroup
		for _, d := range crowded[:4] {
			sent.Go(func() { _ = alone(t, c, d, time.Second) })
		}
		synctest.Wait()
		for _, d := range crowded[4:] {
			waited.Go(func() { assert.Equal(t, request.ErrCrowded, alone(t, c, d, time.Second/2)) })
		}
		synctest.Wait()
		now, _ := hangs.seen()
		require.Equal(t, 4, now)
		require.NoError(t, alone(t, c, other[0], time.Second))
		require.Zero(t, time.Since(start))

		waited.Wait()
		require.Equal(t, time.Second/2, time.Since(start))
		hangs.takes.Store(0)
		require.NoError(t, alone(t, c, crowded[4], time.Second))
		require.Equal(t, time.Second, time.Since(start))
		sent.Wait()
		require.Equal(t, time.Minute, time.Since(start))
	})
}

// A slow server of a quorum is sent all renewals, though the others' answers are enough.
func TestFakeTimeRenewalsOfAQuorumThatCrowd(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, _, f := newFake(t)
		slow := newSlowRenewing(time.Second)
		for _, d := range crowd(t, c, f, "quorum", 20, slow, newSlowRenewing(0), newSlowRenewing(0)) {
			require.NoError(t, alone(t, c, d, 5*time.Second))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		_, most := slow.seen()
		require.GreaterOrEqual(t, most, 20, "and copies of some")
	})
}

// Requests of several callers share a script, and the server refuses it because the user
// has no right to one of the keys. Each caller still gets the answer to its own request,
// and the client does not try a shared script again at once.
func TestRefusedCompany(t *testing.T) {
	srv := redistest.Start(t)
	require.NoError(t, srv.Client(t).Do(t.Context(), "acl", "setuser", "app", "on", "nopass", "~mine:*", "~rlock_queue:{mine:*", "&*", "+@all").Err())
	rdb := srv.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "none" })
	c, err := New(rdb, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close(context.Background())) }()
	joint := new(atomic.Int32) // scripts for several calls
	rdb.AddHook(redistest.Sees(func(_ context.Context, cmd redis.Cmder) {
		if len(cmd.Args()) > 8 { // a release has as many
			joint.Add(1)
		}
	}))
	round := func() {
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				held, hold, err := c.NewLock("mine:" + strconv.Itoa(i)).Lock(t.Context())
				if assert.NoError(t, err) {
					assert.NoError(t, hold.Unlock(held))
				}
			})
			wg.Go(func() {
				_, _, err := c.NewLock("yours:" + strconv.Itoa(i)).Lock(t.Context())
				assert.ErrorIs(t, err, ErrUnavailable)
				assert.ErrorContains(t, err, "NOPERM")
			})
		}
		wg.Wait()
	}
	for range 10 {
		round()
	}
	require.NotZero(t, joint.Load(), "they were asked, and refused")
	before := joint.Load()
	round()
	require.LessOrEqual(t, joint.Load(), before+1, "what sweeps leftovers learns it for itself, and on a busy machine late")
}

// While more is left behind than a slow server can release, nobody asks for another lock.
// Whoever has one locks and unlocks it as always, also nested.
func TestNestedWhileOthersAreHeldBack(t *testing.T) {
	t.Parallel()
	c, err := New(redistest.Start(t).Client(t), nil)
	require.NoError(t, err)
	mu := c.NewLock("a")
	held, hold, err := mu.Lock(t.Context())
	require.NoError(t, err)
	c.scripts.Server("b").Hold(true)
	_, _, err = c.NewLock("b", WithLeaseTime(time.Second)).TryLock(t.Context())
	require.ErrorIs(t, err, ErrUnavailable)
	inner, nested, err := mu.TryLock(held)
	require.NoError(t, err)
	require.NoError(t, nested.Unlock(inner))
	state, err := mu.Inspect(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]int64{hold.Owner(): 1}, state.Holds, "the server was told")
	require.NoError(t, hold.Unlock(held))
	c.scripts.Server("b").Hold(false)
	require.NoError(t, c.Close(t.Context()))
}

// serverError is an error that a server has answered.
type serverError string

func (r serverError) Error() string { return string(r) }
func (serverError) RedisError()     {}

// Servers of all versions tell of a missing right in a script, each in its own words.
func TestAdviceForMissingRights(t *testing.T) {
	single := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { require.NoError(t, single.Close()) }()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer func() { require.NoError(t, cluster.Close()) }()
	of := func(rdb redis.UniversalClient) *Lock { return &Lock{client: &Client{server: kind.Server{RDB: rdb}}} }
	l := of(single)
	for _, text := range []string{
		"NOPERM this user has no permissions to run the 'evalsha' command",
		"ERR The user executing the script can't run this command or subcommand script: 1f, on @user_script:53.",
		"ERR Error running script (call to f_1f): @user_script:108: @user_script: 108: The user executing the script can't run this command or subcommand",
		"@user_script: 108: The user executing the script can't access at least one of the keys mentioned in the command arguments",
		"ERR ACL failure in script: User u has no permissions to run the 'hmget' command script: a4ca2a55, on @user_script:53.",
	} {
		require.ErrorContains(t, l.advise(serverError(text)), "(the ACL user lacks a right: rlock doctor", text)
		for kind, says := range map[kindNumber]string{fairKind: "(fair locks need", readKind: "(read/write locks need", writeKind: "(read/write locks need"} {
			l := of(single)
			l.kind = kind
			require.ErrorContains(t, l.advise(serverError(text)), says, text)
		}
	}
	moved := serverError("MOVED 15495 127.0.0.1:7804")
	require.ErrorContains(t, l.advise(moved), "rlock with --cluster")
	require.Equal(t, moved, of(cluster).advise(moved), "it does know")
	require.NotContains(t, l.advise(serverError("ERR something else")).Error(), "ACL")
}

// However long a server is silent: it may have an old request to acquire, which it executes when it
// goes on.
func TestFakeTimeReleaseGoesOnUntilThereIsAnAnswer(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, l, f := newFake(t)
		held, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		var answers atomic.Bool
		f.onRelease = func(ctx context.Context, _ int) (lua.Released, error) {
			if answers.Load() {
				return lua.Released{}, nil
			}
			return lua.Released{}, hang(ctx)
		}
		require.ErrorIs(t, hold.Unlock(held), ErrUnavailable)
		require.Equal(t, DefaultUnlockTimeout, time.Since(f.start))
		sleepLong(time.Hour)
		at := f.times("release")
		require.Greater(t, at[len(at)-1], time.Hour-5*time.Second)
		answers.Store(true)
		sleepLong(5 * time.Second)
		require.Zero(t, c.active.Load(), "then it ends")
	})
}

// noRight is how a server refuses a user without rights.
type noRight struct{}

func (noRight) Error() string {
	return "NOPERM this user has no permissions to access one of the keys used as arguments"
}
func (noRight) RedisError() {}

var errCut = errors.New("the connection was cut")

// A release that the server refuses is repeated until it is allowed, or the lease is
// over, and keeps nobody waiting. What may never have been granted is not worth that.
func TestFakeTimeRefusedReleaseIsRepeated(t *testing.T) {
	const slack = 500 * time.Millisecond // between two attempts
	for name, tt := range map[string]struct {
		acquire error
		allowed time.Duration // when the right comes back
		close   time.Duration // 0: when all is over
		last    time.Duration // attempt to release, before slack has passed
	}{
		"the right comes back":     {nil, 5 * time.Second, 0, 5 * time.Second},
		"it does not":              {nil, time.Hour, 0, 30 * time.Second},
		"the client closes":        {nil, time.Hour, 5 * time.Second, 30 * time.Second},
		"it does before it ends":   {nil, 10 * time.Second, 5 * time.Second, 10 * time.Second},
		"the acquire was refused":  {noRight{}, time.Hour, 0, 30 * time.Second},
		"its answer was lost":      {errCut, time.Hour, 0, 31 * time.Second},
		"it was, and it is closed": {noRight{}, time.Hour, time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				c, l, f := newFake(t)
				f.onAcquire = func(_ context.Context, n int) (lua.Reply, error) {
					if tt.acquire == errCut && n > 1 {
						return lua.Reply{}, noRight{}
					}
					return lua.Reply{Acquired: tt.acquire == nil}, tt.acquire
				}
				f.onRelease = func(context.Context, int) (lua.Released, error) {
					if time.Since(f.start) < tt.allowed {
						return lua.Released{}, noRight{}
					}
					return lua.Released{}, nil
				}
				held, hold, err := l.Lock(t.Context())
				if tt.acquire == nil {
					require.NoError(t, err)
					require.ErrorIs(t, hold.Unlock(held), ErrUnavailable)
				} else {
					require.ErrorIs(t, err, ErrUnavailable)
				}
				require.InDelta(t, 0, time.Since(f.start), float64(10*time.Millisecond), "a caller is told at once")
				if tt.close > 0 {
					sleepLong(tt.close)
					require.NoError(t, c.Close(t.Context()))
				} else {
					sleepLong(time.Hour)
				}
				at := f.times("release")
				require.InDelta(t, tt.last, at[len(at)-1], float64(slack))
				require.Less(t, len(at), 200)
				require.Zero(t, c.active.Load(), "the janitor has ended")
			})
		})
	}
}

// A refused attempt leaves nothing on the server, unless it has taken a ticket: that is
// taken back.
func TestFakeTimeCleanUpOfARefusedAttempt(t *testing.T) {
	for _, tickets := range []bool{true, false} {
		t.Run(fmt.Sprint("tickets ", tickets), func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				_, l, f := newFake(t)
				refusal := lua.Reply{TTL: time.Hour}
				if tickets {
					refusal.Place = lua.Place{Time: 1, First: true}
				}
				f.onAcquire = func(_ context.Context, n int) (lua.Reply, error) {
					if n == 1 { // asks without a ticket
						return lua.Reply{TTL: time.Hour}, nil
					}
					return refusal, nil
				}
				_, _, err := l.TryLock(t.Context())
				require.ErrorIs(t, err, ErrNotAcquired)
				synctest.Wait()
				require.Empty(t, f.calls("release"))
				_, _, err = l.Lock(within(t, 10*time.Second))
				require.ErrorIs(t, err, ErrNotAcquired)
				require.NotErrorIs(t, err, ErrUnavailable)
				sleepLong(time.Hour)
				if tickets {
					require.Equal(t, []time.Duration{10 * time.Second}, f.times("release"))
					require.Equal(t, f.calls("acquire")[1].owner, f.calls("release")[0].owner)
				} else {
					require.Empty(t, f.calls("release"))
				}
			})
		})
	}
}

func TestFakeTimeCloseSendsCleanUpsAtOnce(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, l, f := newFake(t)
		f.onAcquire = func(context.Context, int) (lua.Reply, error) { return lua.Reply{}, errors.New("EOF") }
		_, _, err := l.Lock(within(t, 100*time.Millisecond))
		require.ErrorIs(t, err, ErrUnavailable)
		sleepLong(500 * time.Millisecond)
		require.Equal(t, []time.Duration{100 * time.Millisecond}, f.times("release"))
		require.NoError(t, c.Close(t.Context()))
		require.Equal(t, []time.Duration{100 * time.Millisecond, 600 * time.Millisecond}, f.times("release"))
	})
}

// While Redis is silent, the goroutines of the clean-up do not grow with the
// number of callers that left something behind.
func TestFakeTimeCleanUpOfManyCallersIsBounded(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, _, f := newFake(t)
		f.onAcquire = func(ctx context.Context, _ int) (lua.Reply, error) { return lua.Reply{}, hang(ctx) }
		f.onRelease = func(ctx context.Context, _ int) (lua.Released, error) { return lua.Released{}, hang(ctx) }
		before := redistest.Goroutines()
		var all sync.WaitGroup
		for range 1000 {
			l := c.NewLock("a")
			l.use(f)
			all.Go(func() {
				_, _, err := l.TryLock(within(t, 100*time.Millisecond))
				assert.ErrorIs(t, err, ErrUnavailable)
			})
		}
		all.Wait()
		sleepLong(3 * time.Second) // the attempts to acquire have ended
		require.Less(t, redistest.Goroutines()-before, 400)
		f.mu.Lock()
		f.onRelease = nil
		f.mu.Unlock()
		sleepLong(time.Minute)
		require.Zero(t, c.active.Load(), "the janitor has ended")
	})
}

// A call leaves while the request is under way that takes its ticket. Whenever the ticket may be
// there, a release takes it out, also if an earlier attempt got no answer.
func TestFakeTimeTicketOfACallThatHasLeft(t *testing.T) {
	for _, doubt := range []bool{false, true} {
		redistest.Bubble(t, func(t *testing.T) {
			_, l, f := newFake(t)
			f.signal = live{}
			f.onAcquire = func(_ context.Context, n int) (lua.Reply, error) {
				refusal := lua.Reply{TTL: time.Hour, Holder: "d2k7m3o6n88ekjf0v0vg:1"}
				switch {
				case doubt && n == 1:
					return lua.Reply{}, errors.New("EOF")
				case n == 1, doubt && n == 2:
					return refusal, nil
				}
				time.Sleep(time.Second)
				refusal.Place = lua.Place{Time: 1, First: true, New: true}
				return refusal, nil
			}
			_, _, err := l.Lock(within(t, 500*time.Millisecond))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			sleepLong(time.Hour)
			owner := f.calls("acquire")[0].owner
			require.NotEmpty(t, f.ends)
			for _, end := range f.ends {
				require.Equal(t, []string{owner}, end.Tickets)
			}
		})
	}
}
