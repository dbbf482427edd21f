package rlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/rlock"
)

// requireInvalid calls every method of mu: each says what is wrong, and neither
// the server nor the key hears of it.
func requireInvalid(t *testing.T, send func(func()) []string, mu *rlock.Lock, wants ...string) {
	t.Helper()
	for method, call := range methods(mu) {
		require.Empty(t, send(func() {
			err := call(t.Context())
			require.ErrorIs(t, err, rlock.ErrInvalidOption, method)
			require.Less(t, len(err.Error()), 1000, "nobody can read that")
			for _, want := range wants {
				require.ErrorContains(t, err, want, method)
			}
		}), method)
	}
	require.Zero(t, mu.HoldCount(t.Context()))
}

func TestNilOption(t *testing.T) {
	srv := newServer(t)
	c := newClient(t, srv, nil)
	requireInvalid(t, func(f func()) []string { return sent(t, srv, f) }, c.NewLock("a", nil, rlock.WithFencing()), "an option is nil")
	guarded := rlock.GuardDo(func(string) *rlock.Lock { return c.NewLock("a") }, func(context.Context, string) error { return nil }, nil)
	require.ErrorIs(t, guarded(t.Context(), "x"), rlock.ErrInvalidOption)
}

func TestInvalidNames(t *testing.T) {
	srv := newServer(t)
	c := newClient(t, srv, nil)
	send := func(f func()) []string { return sent(t, srv, f) }
	for name, wants := range map[string][]string{
		"":    {"empty"},
		"{a":  {`"{a"`, "hash tag", "rename"},
		"a}b": {`"a}b"`, "'}'", "rename"},
		"{}x": {`"{}x"`, "hash tag", "rename"},
		"a{}b": {
			`"a{}b"`, "hash tag", "rename",
		},
		"{}{t}":                       {"hash tag", "rename"},
		"}{t}{":                       nil, // its tag is t
		strings.Repeat("x", 64<<10):   nil,
		strings.Repeat("x", 1+64<<10): {"65537", "65536"},
	} {
		label := name
		if len(label) > 20 {
			label = label[:20]
		}
		t.Run(label, func(t *testing.T) {
			mu := c.NewLock(name)
			if wants == nil {
				require.NoError(t, mu.Do(t.Context(), func(context.Context) error { return nil }))
				return
			}
			requireInvalid(t, send, mu, wants...)
		})
	}
	t.Run("empty name with prefix", func(t *testing.T) {
		mu := newClient(t, srv, &rlock.Options{Prefix: "p:"}).NewLock("")
		requireInvalid(t, send, mu, "empty")
	})
	t.Run("prefix and name together", func(t *testing.T) {
		prefixed := newClient(t, srv, &rlock.Options{Prefix: "{p"})
		requireInvalid(t, send, prefixed.NewLock("a"), `"a"`, "hash tag")
		require.NoError(t, prefixed.NewLock("}a").Do(t.Context(), func(context.Context) error { return nil }))
	})
}

func TestStrangeNames(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	c := newClient(t, srv, nil)
	for _, name := range []string{
		"a{b}c", "{t}x", "Schloß 🔒", "new\nline", "nul\x00", "\xff\xfe", " ", "a:b:", "mode", "*", "0", "-1",
		"redisson_lock__channel:x", "redisson_lock__channel:{x}", "redisson_lock_token:{x}", "{{a}}",
	} {
		t.Run(name, func(t *testing.T) {
			mu := c.NewLock(name, rlock.WithFencing())
			require.Equal(t, name, mu.Name())
			held, hold := lock(t, t.Context(), mu)
			_, nested := lock(t, held, mu)
			require.Equal(t, 2, holds(t, rdb, name), "the key is the name")
			state, err := mu.Inspect(held)
			require.NoError(t, err)
			require.Equal(t, name, state.Name)
			require.Equal(t, hold.Owner(), state.Owner())
			require.NoError(t, nested.Unlock(held))
			require.NoError(t, hold.Unlock(held))
		})
	}
	for _, key := range lockKeys(t, rdb) {
		require.True(t, strings.HasPrefix(key, "redisson_lock_token:"), "left behind: %q", key)
	}
}

// Whatever braces a name has, its key, channel and counter share a cluster slot,
// or it is refused. The names on the wire are those that the server sees.
func TestNamesShareSlot(t *testing.T) {
	srv := newServer(t)
	c := newClient(t, srv, nil)
	name := rapid.StringOfN(rapid.SampledFrom([]rune("{}{}ab:")), 1, 10, -1)
	rapid.Check(t, func(rt *rapid.T) {
		mu := c.NewLock(name.Draw(rt, "name"), rlock.WithFencing())
		m := srv.Monitor(t)
		defer m.Stop()
		err := mu.Do(t.Context(), func(context.Context) error { return nil })
		if err != nil {
			require.ErrorIs(rt, err, rlock.ErrInvalidOption)
			require.Empty(rt, m.Commands())
			return
		}
		var published bool
		slots := make(map[uint16]string)
		for _, cmd := range m.Commands() {
			switch verb := strings.ToLower(cmd.Args[0]); {
			case cmd.Client != "lua" || verb == "time":
			case verb == "publish":
				published = true
				fallthrough
			default:
				slots[slot(cmd.Args[1])] = cmd.Args[1]
			}
		}
		require.True(rt, published)
		require.Len(rt, slots, 1, "%v", slots)
	})
}

// slot is the cluster slot of a key, by the cluster specification.
func slot(key string) uint16 {
	if _, tag, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok = strings.Cut(tag, "}"); ok && tag != "" {
			key = tag
		}
	}
	var crc uint16 // XMODEM
	for _, b := range []byte(key) {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}

func TestSlot(t *testing.T) {
	require.Equal(t, uint16(0x31C3), slot("123456789"), "the specification's own example")
	require.Equal(t, slot("t"), slot("a{t}b{c}"))
}

func TestInvalidLeases(t *testing.T) {
	srv := newServer(t)
	c := newClient(t, srv, nil)
	const year = 365 * 24 * time.Hour
	for lease, want := range map[time.Duration]string{
		0:                       "at least 10ms",
		-time.Second:            "at least 10ms",
		10*time.Millisecond - 1: "at least 10ms",
		10*year + 1:             "at most 87600h",
		1<<63 - 1:               "at most 87600h",
		-1 << 63:                "at least 10ms",
	} {
		t.Run(lease.String(), func(t *testing.T) {
			mu := c.NewLock("a", rlock.WithLeaseTime(lease))
			requireInvalid(t, func(f func()) []string { return sent(t, srv, f) }, mu, `"a"`, lease.String(), want)
			if lease == 0 {
				return // the default
			}
			_, err := rlock.New(srv.Client(t), &rlock.Options{LeaseTime: lease})
			require.ErrorIs(t, err, rlock.ErrInvalidOption)
			require.ErrorContains(t, err, "LeaseTime")
			require.ErrorContains(t, err, want)
		})
	}
	t.Run("ten years", func(t *testing.T) {
		held, hold := lock(t, t.Context(), c.NewLock("long", rlock.WithLeaseTime(10*year)))
		require.Greater(t, srv.Client(t).PTTL(t.Context(), "long").Val(), 10*year-time.Minute)
		require.NoError(t, held.Err())
		require.NoError(t, hold.Unlock(held))
	})
	t.Run("inner lock of a valid outer one", func(t *testing.T) {
		held, hold := lock(t, t.Context(), c.NewLock("a"))
		_, _, err := c.NewLock("a", rlock.WithLeaseTime(0)).Lock(held)
		require.ErrorIs(t, err, rlock.ErrInvalidOption)
		require.NoError(t, hold.Unlock(held))
	})
}

// Options that cannot work, alone or together, are refused by each method of each kind, and nothing is sent.
func TestOptionsThatCannotWork(t *testing.T) {
	srv := newServer(t)
	c := newClient(t, srv, nil)
	impatient := clientOn(t, srv.Client(t, func(o *redis.Options) { o.ReadTimeout = 100 * time.Millisecond }), nil)
	plain := func(opts ...rlock.LockOption) *rlock.Lock { return c.NewLock("a", opts...) }
	polling := func(p rlock.Polling) *rlock.Lock { return plain(rlock.WithPolling(p)) }
	replicas := func(n int, wait time.Duration) *rlock.Lock { return plain(rlock.WithReplicas(n, wait)) }
	kept := func(opt rlock.LockOption) *rlock.Lock { return plain(rlock.WithRetention(1), opt) }
	type refused struct {
		mu   *rlock.Lock
		says string
	}
	all := map[string]refused{
		"first pause":   {polling(rlock.Polling{First: -1}), ""},
		"longest pause": {polling(rlock.Polling{Longest: -1}), ""},
		"tries":         {polling(rlock.Polling{Tries: -1}), ""},
		"longest first": {polling(rlock.Polling{First: 2 * time.Second, Longest: time.Second}), ""},

		"no replica":             {replicas(0, time.Second), ""},
		"less than no replica":   {replicas(-1, time.Second), ""},
		"no time":                {replicas(1, 0), ""},
		"too little time":        {replicas(1, time.Microsecond), ""},
		"too much time":          {replicas(1, 501*time.Millisecond), ""},
		"too much for the lease": {plain(rlock.WithReplicas(1, 200*time.Millisecond), rlock.WithLeaseTime(time.Second)), ""},
		"too much to read":       {impatient.NewLock("a", rlock.WithReplicas(1, 100*time.Millisecond)), "ReadTimeout"},

		"retention":               {plain(rlock.WithRetention(-1)), "negative"},
		"retention, fixed":        {kept(rlock.WithoutRenewal()), "WithoutRenewal"},
		"retention, replicated":   {kept(rlock.WithReplicas(1, time.Second)), "WithReplicas"},
		"retention, polling":      {kept(rlock.WithPolling(rlock.Polling{})), "WithPolling"},
		"retention of a fair one": {c.NewFairLock("a", rlock.WithRetention(1)), "the next in the queue"},
		"retention of a writer":   {c.NewRWLock("a", rlock.WithRetention(1)).Writer(), "only plain"},

		"time held, negative": {plain(rlock.WithMaxHold(-1)), "WithMaxHold: -1ns is negative"},
		"time held, short":    {plain(rlock.WithMaxHold(time.Millisecond)), "at least 10ms"},
		"progress, negative":  {c.NewFairLock("a", rlock.WithProgress(-1)), "WithProgress: -1ns is negative"},
		"progress, short":     {c.NewRWLock("a", rlock.WithProgress(1)).Reader(), "at least 10ms"},

		"hand-offs":              {plain(rlock.WithHandoff(-1, 0)), "WithHandoff"},
		"time of hand-offs":      {plain(rlock.WithHandoff(0, -1)), "WithHandoff"},
		"hand-offs of a fair":    {c.NewFairLock("a", rlock.WithHandoff(10, time.Second)), "WithHandoff"},
		"hand-offs of a writer":  {c.NewRWLock("a", rlock.WithHandoff(10, time.Second)).Writer(), "WithHandoff"},
		"hand-offs of a reader":  {c.NewRWLock("a", rlock.WithHandoff(10, time.Second)).Reader(), "WithHandoff"},
		"lease of a fair lock":   {c.NewFairLock("a", rlock.WithLeaseTime(time.Millisecond)), "at least 10ms"},
		"lease of a writer":      {c.NewRWLock("a", rlock.WithLeaseTime(time.Millisecond)).Writer(), "at least 10ms"},
		"lease of a reader":      {c.NewRWLock("a", rlock.WithLeaseTime(time.Millisecond)).Reader(), "at least 10ms"},
		"no name of a fair lock": {c.NewFairLock(""), "empty"},
		"name of a fair lock":    {c.NewFairLock("{a"), "hash tag"},
		"no name of a writer":    {c.NewRWLock("").Writer(), "empty"},
		"name of a reader":       {c.NewRWLock("{a").Reader(), "hash tag"},
	}
	require.Empty(t, sent(t, srv, func() {
		for name, tt := range all {
			for method, call := range methods(tt.mu) {
				err := call(t.Context())
				require.ErrorIs(t, err, rlock.ErrInvalidOption, "%s: %s", name, method)
				require.ErrorContains(t, err, tt.says, "%s: %s", name, method)
			}
		}
	}))
}

// labelled cannot be compared with another of its kind.
type labelled struct {
	redis.UniversalClient
	labels []string
}

func TestInvalidClients(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": srv.Addr()}})
	t.Cleanup(func() { require.NoError(t, ring.Close()) })
	unredirected := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{srv.Addr()}, MaxRedirects: -1})
	t.Cleanup(func() { require.NoError(t, unredirected.Close()) })
	pipeliner, err := rdb.AutoPipeline()
	require.NoError(t, err)
	t.Cleanup(func() { _ = pipeliner.Close() }) // closed with rdb as well
	async, err := srv.Client(t).AsyncAutoPipeline()
	require.NoError(t, err)
	t.Cleanup(func() { _ = async.Close() })
	for _, tt := range []struct {
		name  string
		rdb   redis.UniversalClient
		opts  *rlock.Options
		wants []string
	}{
		{"nil", nil, nil, []string{"nil"}},
		{"nil Client", (*redis.Client)(nil), nil, []string{"nil"}},
		{"nil ClusterClient", (*redis.ClusterClient)(nil), nil, []string{"nil"}},
		{"Ring", ring, nil, []string{"Ring", "ClusterClient"}},
		{"no redirections", unredirected, nil, []string{"MaxRedirects", "slot that moves"}},
		{"AutoPipeliner", pipeliner, nil, []string{"AutoPipeliner", "client underneath"}},
		{"not comparable", labelled{rdb, []string{"x"}}, nil, []string{"labelled", "pointer"}},
		{"AsyncAutoPipeliner", async, nil, []string{"AutoPipeliner", "client underneath"}},
		{"lease", rdb, &rlock.Options{LeaseTime: -1}, []string{"Options.LeaseTime", "-1ns"}},
		{"short lease", rdb, &rlock.Options{LeaseTime: time.Millisecond}, []string{"Options.LeaseTime", "1ms", "10ms"}},
		{"unlock timeout", rdb, &rlock.Options{UnlockTimeout: -time.Second}, []string{"Options.UnlockTimeout", "-1s", "negative"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Empty(t, sent(t, srv, func() {
				c, err := rlock.New(tt.rdb, tt.opts)
				require.Nil(t, c)
				require.ErrorIs(t, err, rlock.ErrInvalidOption)
				for _, want := range tt.wants {
					require.ErrorContains(t, err, want)
				}
			}))
		})
	}
}

// New sends nothing and keeps its own copy of the options.
func TestNew(t *testing.T) {
	srv := newServer(t)
	opts := &rlock.Options{Prefix: "p:", LeaseTime: time.Minute}
	var c *rlock.Client
	require.Empty(t, sent(t, srv, func() { c = newClient(t, srv, opts) }))
	opts.Prefix, opts.LeaseTime = "q:", -1
	_, hold := lock(t, t.Context(), c.NewLock("a"))
	require.Equal(t, hold.Owner(), onlyOwner(t, srv, "p:a"))
	require.NoError(t, hold.Unlock(t.Context()))
	require.Equal(t, rlock.Options{Prefix: "q:", LeaseTime: -1}, *opts)
}

// A key that is not a lock is left alone, and its type named.
func TestKeyConflict(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	c := newClient(t, srv, nil)
	ctx := t.Context()
	for kind, create := range map[string]func(key string) error{
		"string": func(key string) error { return rdb.Set(ctx, key, "v", 0).Err() },
		"list":   func(key string) error { return rdb.RPush(ctx, key, "v").Err() },
		"set":    func(key string) error { return rdb.SAdd(ctx, key, "v").Err() },
		"zset":   func(key string) error { return rdb.ZAdd(ctx, key, redis.Z{Member: "v"}).Err() },
		"stream": func(key string) error {
			return rdb.XAdd(ctx, &redis.XAddArgs{Stream: key, Values: []string{"f", "v"}}).Err()
		},
	} {
		require.NoError(t, create(kind))
		before := rdb.Dump(ctx, kind).Val()
		for method, call := range methods(c.NewLock(kind)) {
			t.Run(method+" "+kind, func(t *testing.T) {
				start := time.Now()
				err := call(ctx)
				require.ErrorIs(t, err, rlock.ErrKeyConflict)
				require.ErrorContains(t, err, `"`+kind+`"`, "the lock")
				require.ErrorContains(t, err, "a "+kind, "the type")
				require.Less(t, time.Since(start), 20*time.Second, "it will not change in the 30 s of a lease")
				require.Equal(t, before, rdb.Dump(ctx, kind).Val())
				require.Equal(t, time.Duration(-1), rdb.PTTL(ctx, kind).Val())
			})
		}
	}
}

// A hash is not a read/write lock only because it has a field named mode.
func TestInspectHashWithAnotherMode(t *testing.T) {
	srv := newServer(t)
	ctx := t.Context()
	rdb, mu := srv.Client(t), newClient(t, srv, nil).NewRWLock("a").Reader()
	for _, fields := range [][]any{{"mode", "dark"}, {"mode", "dark", "somebody:1", 1}, {"mode", ""}, {"mode", "Read"}, {"somebody:1", 1}} {
		require.NoError(t, rdb.HSet(ctx, "a", fields...).Err())
		_, err := mu.Inspect(ctx)
		require.ErrorIs(t, err, rlock.ErrKeyConflict, "%v", fields)
		require.NoError(t, rdb.Del(ctx, "a").Err())
	}
	_, err := mu.Inspect(ctx)
	require.NoError(t, err, "it is free")
}

// Leases are sent as whole milliseconds, in every script, and never as more than
// was asked for.
func TestLeaseOnTheWire(t *testing.T) {
	srv := newServer(t)
	m := srv.Monitor(t)
	mu := newClient(t, srv, nil).NewLock("a", rlock.WithLeaseTime(12_345*time.Millisecond+999*time.Microsecond))
	held, hold := lock(t, t.Context(), mu)
	_, nested := lock(t, held, mu)
	require.NoError(t, nested.Unlock(held))
	require.NoError(t, hold.Unlock(held))
	var pexpires []string
	for _, cmd := range m.Commands() {
		if strings.EqualFold(cmd.Args[0], "pexpire") {
			pexpires = append(pexpires, cmd.Args[2])
		}
	}
	require.Equal(t, "12345", pexpires[0])
	require.Len(t, pexpires, 3)
	for _, ms := range pexpires {
		require.Regexp(t, `^[0-9]+$`, ms)
	}
}

// The names a and {a} are two locks. By Redisson's rule their relatives would be the same,
// and the release of one would grant the other.
func TestNamesInBraces(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	type locks struct {
		held, wanted func(c *rlock.Client, name string) *rlock.Lock
	}
	plain := func(c *rlock.Client, name string) *rlock.Lock { return c.NewLock(name) }
	fenced := func(c *rlock.Client, name string) *rlock.Lock { return c.NewLock(name, rlock.WithFencing()) }
	fair := func(c *rlock.Client, name string) *rlock.Lock { return c.NewFairLock(name) }
	reader := func(c *rlock.Client, name string) *rlock.Lock { return c.NewRWLock(name).Reader() }
	writer := func(c *rlock.Client, name string) *rlock.Lock { return c.NewRWLock(name).Writer() }
	kinds := map[string]locks{
		"plain": {plain, plain}, "fenced": {fenced, fenced}, "fair": {fair, fair},
		"read/write": {reader, writer},
	}
	for kind, l := range kinds {
		for _, names := range [][2]string{{"a", "{a}"}, {"{a}", "a"}, {"{a}", "{a}:"}, {"{a}:", "{a}"}} {
			t.Run(kind+", "+names[0]+" beside "+names[1], func(t *testing.T) {
				holder, other, third := newClient(t, srv, nil), newClient(t, srv, nil), newClient(t, srv, nil)
				held, hold := lock(t, t.Context(), l.held(holder, names[0]))
				besideHeld, beside := lock(t, t.Context(), l.held(holder, names[1]))
				waiter := begin(t.Context(), l.wanted(other, names[0]))
				redistest.Eventually(t, "it waits", func() bool {
					return rdb.Exists(t.Context(), lua.QueueOf(names[0]), lua.QueueOfRW(names[0])).Val() > 0
				})
				require.NoError(t, beside.Unlock(besideHeld))

				free, again, err := l.held(third, names[1]).TryLock(t.Context())
				require.NoError(t, err, "who waits for the one is not in the way of the other")
				require.NoError(t, again.Unlock(free))
				require.NoError(t, held.Err())
				select {
				case <-waiter.done:
					t.Fatal("two holders")
				default:
				}
				require.NoError(t, hold.Unlock(held))
				_, got := waiter.acquired(t)
				require.NoError(t, got.Unlock(t.Context()))
			})
		}
	}
}

// Sharded channels are those of a cluster. Nothing is sent to find that out.
func TestShardedPubSubOption(t *testing.T) {
	single := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	t.Cleanup(func() {
		require.NoError(t, single.Close())
		require.NoError(t, cluster.Close())
	})
	for _, tc := range []struct {
		name string
		rdb  redis.UniversalClient
		mode rlock.ShardedPubSub
		ok   bool
	}{
		{"auto, single", single, rlock.ShardedAuto, true},
		{"off, single", single, rlock.ShardedOff, true},
		{"on, single", single, rlock.ShardedOn, false},
		{"both, single", single, rlock.ShardedBoth, false},
		{"auto, cluster", cluster, rlock.ShardedAuto, true},
		{"off, cluster", cluster, rlock.ShardedOff, true},
		{"on, cluster", cluster, rlock.ShardedOn, true},
		{"both, cluster", cluster, rlock.ShardedBoth, true},
		{"no such value", cluster, rlock.ShardedBoth + 1, false},
		{"negative", single, -1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := rlock.New(tc.rdb, &rlock.Options{ShardedPubSub: tc.mode})
			if !tc.ok {
				require.ErrorIs(t, err, rlock.ErrInvalidOption)
				require.ErrorContains(t, err, "ShardedPubSub")
				return
			}
			require.NoError(t, err)
			require.NoError(t, closeSoon(c))
		})
	}
}
