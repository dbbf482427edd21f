package lua_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// variant sends scripts as they are; or without the short paths, which stand before the functions of a
// script; or without the functions. It keeps the answer.
type variant struct {
	*redis.Client
	form   string // "", general or short
	answer string
}

const general, short = "general", "short"

func (v *variant) Process(ctx context.Context, cmd redis.Cmder) error {
	args := slices.Clone(cmd.Args())
	if args[0] == "evalsha" { // the source is wanted
		cmd.SetErr(refused("NOSCRIPT"))
		return cmd.Err()
	}
	fast, functions, _ := strings.Cut(args[1].(string), "-- Stands in front of the scripts for several callers")
	switch v.form {
	case general:
		args[1] = "local replies, freed = {}, false --" + functions
	case short:
		args[1] = fast
	}
	value, err := v.Do(ctx, args...).Result()
	v.answer = fmt.Sprint(value, " ", err)
	cmd.(interface{ SetVal(any) }).SetVal(value)
	cmd.SetErr(err)
	return err
}

type refused string

func (r refused) Error() string { return string(r) }
func (refused) RedisError()     {}

// varying matches times, what is left of a TTL, and where in a script an error was.
var varying = regexp.MustCompile(`\b\d{3,}\b|@?user_script:\s?\d+:?|script: [0-9a-f]{40}, on `)

// situation is a lock, its queue, and a call.
type situation struct {
	lock  string // "a:1=1 20s", "a:1=1", "two fields" or "string"
	queue string // "!a:1 b:1P" or "string"
	kept  time.Duration
	call  string
}

func (s situation) String() string {
	return fmt.Sprintf("%s | %s, kept for %v: %s", s.lock, s.queue, s.kept, s.call)
}

// prepare makes the lock and the queue.
func (s situation) prepare(t *testing.T, rdb *redis.Client, key string) {
	t.Helper()
	ctx, queue := t.Context(), lua.QueueOf(key)
	pipe := rdb.Pipeline()
	pipe.Del(ctx, key, queue)
	holder, ttl, _ := strings.Cut(s.lock, " ")
	switch owner, count, isLock := strings.Cut(holder, "="); {
	case isLock:
		pipe.HSet(ctx, key, own(owner), count)
	case s.lock == "two fields":
		pipe.HSet(ctx, key, own("a:1"), "1", "mode", "write")
	case s.lock != "":
		pipe.Set(ctx, key, s.lock, 0)
	}
	if ttl == "20s" {
		pipe.PExpire(ctx, key, 20*time.Second)
	}
	if s.queue == "string" {
		pipe.Set(ctx, queue, s.queue, 0)
	} else {
		for i, member := range strings.Fields(s.queue) {
			z := redis.Z{Member: "!" + own(member[1:])}
			if last := len(member) - 1; member[0] != '!' {
				how := strings.IndexByte(hearing, member[last])
				z = redis.Z{Member: own(member[:last]), Score: float64((i+1)*32768 + int(claim.Milliseconds())*4 + how)}
			}
			pipe.ZAdd(ctx, queue, z)
		}
	}
	if s.kept > 0 {
		pipe.PExpire(ctx, queue, s.kept)
	}
	_, err := pipe.Exec(ctx)
	require.NoError(t, err)
}

// outcome makes the call, and tells what came of it. Around the call it calls around, if there is one.
func (s situation) outcome(t *testing.T, w *waiters, v *variant, around func(begins bool)) string {
	t.Helper()
	s.prepare(t, w.rdb, w.key())
	if around != nil {
		around(true)
	}
	w.do(v, s.call)
	if around != nil {
		around(false)
	}
	ctx, queue := t.Context(), lua.QueueOf(w.key())
	pipe := w.rdb.Pipeline()
	lock, ttl, queued, kept := pipe.HGetAll(ctx, w.key()), pipe.PTTL(ctx, w.key()), pipe.ZRangeWithScores(ctx, queue, 0, -1), pipe.PTTL(ctx, queue)
	_, _ = pipe.Exec(ctx) // one may be a string
	left := fmt.Sprint(lock.Val(), " ", showTTL(ttl.Val()), " | ", queued.Val(), " ", showTTL(kept.Val()))
	return shorten(varying.ReplaceAllString(v.answer, "_")+" => "+left) + " >> " + w.messages()
}

// situations of a release by a:1.
var releases = []situation{
	{"a:1=1 20s", "!a:1 b:1P c:1P", time.Minute, "a:1 release"},
	{"a:1=1 20s", "b:1P c:1P", time.Minute, "a:1 release"},
	{"a:1=1 20s", "!a:1 b:1P", 20 * time.Second, "a:1 release"},
	{"a:1=1 20s", "b:1P", 20 * time.Second, "a:1 release"},
	{"a:1=2 20s", "b:1P c:1P", 0, "a:1 release"},
	{"a:1=0 20s", "!a:1 b:1P c:1P", time.Minute, "a:1 release"},
	{"a:1=1", "!a:1 b:1P c:1P", time.Minute, "a:1 release"},
	{"a:1=1 20s", "!a:1", time.Minute, "a:1 release"},
	{"a:1=1 20s", "", 0, "a:1 release"},
	// The own ticket, and the own client.
	{"a:1=1 20s", "!a:1 a:1P b:1P c:1P", time.Minute, "a:1 release"},
	{"a:1=1 20s", "a:1P b:1P", time.Minute, "a:1 release"},
	{"a:1=1 20s", "!a:1 b:1P a:1P", time.Minute, "a:1 release"},
	{"a:1=1 20s", "b:1P a:1P b:2P", time.Minute, "a:1 release"},
	{"a:1=1 20s", "!a:1 b:1P c:1P a:1P", time.Minute, "a:1 release"},
	{"a:1=1 20s", "!a:1 a:2P b:1P", time.Minute, "a:1 release"},
	{"a:1=1 20s", "!a:1 b:1P a:2P", time.Minute, "a:1 release"},
	// Others of the client that is next.
	{"a:1=1 20s", "!a:1 b:1P b:2P c:1P", time.Minute, "a:1 release"},
	{"a:1=1 20s", "b:1P b:2P", time.Minute, "a:1 release"},
	{"a:1=1 20s", "!a:1 b:1P c:1P b:2P", time.Minute, "a:1 release"},
	// Records of others.
	{"a:1=1 20s", "!c:9 b:1P c:1P", time.Minute, "a:1 release"},
	{"a:1=1 20s", "!a:9 b:1P c:1P", time.Minute, "a:1 release"},
	{"a:1=1 20s", "!a:1 !b:9 b:1P c:1P", time.Minute, "a:1 release"},
	{"a:1=1 20s", "!a:1 !a:2 b:1P c:1P", time.Minute, "a:1 release"},
	// Who does not listen, or in another way.
	{"a:1=1 20s", "!a:1 d:1P c:1P", time.Minute, "a:1 release"},
	{"a:1=1 20s", "!a:1 d:1P e:1P", time.Minute, "a:1 release"},
	{"a:1=1 20s", "!a:1 d:1p c:1P", time.Minute, "a:1 release"},
	{"a:1=1 20s", "!a:1 b:1p c:1P", time.Minute, "a:1 release"},
	{"a:1=1 20s", "!a:1 b:1- c:1P", time.Minute, "a:1 release"},
	{"a:1=1 20s", "!a:1 b:1S c:1P", time.Minute, "a:1 release"},
	{"a:1=1 20s", "!a:1 nobodyP c:1P", time.Minute, "a:1 release"},
	// Who does not hold the lock.
	{"c:1=1 20s", "b:1P", time.Minute, "a:1 release"},
	{"c:1=1 20s", "!c:1 b:1P", time.Minute, "a:1 release"},
	{"", "!a:1 b:1P c:1P", time.Minute, "a:1 release"},
	{"", "b:1P c:1P", time.Minute, "a:1 release"},
	// Keys of another kind, and tickets.
	{"two fields", "!a:1 b:1P", time.Minute, "a:1 release"},
	{"string", "!a:1 b:1P", time.Minute, "a:1 release"},
	{"a:1=1 20s", "string", 0, "a:1 release"},
	{"a:1=1 20s", "!a:1 a:2P b:1P c:1P", time.Minute, "a:1 release a:2"},
	{"a:1=1 20s", "!a:1 b:1P c:1P", time.Minute, "a:1 release b:1"},
}

// situations of a request by b:1.
var asks = []situation{
	{"a:1=1 20s", "!a:1 c:1P", time.Minute, "b:1 ask P"},
	{"a:1=1 20s", "c:1P", time.Minute, "b:1 ask P"},
	{"a:1=1 20s", "!a:1 c:1P d:1P", time.Minute, "b:1 ask P"},
	{"a:1=1 20s", "c:1P d:1P e:1P", time.Minute, "b:1 ask P"},
	{"a:1=1 20s", "!a:1", time.Minute, "b:1 ask P"},
	{"a:1=1 20s", "!a:1", 20 * time.Second, "b:1 ask P"},
	{"a:1=1 20s", "!a:1 c:1P", 0, "b:1 ask P"},
	{"a:1=1 20s", "", 0, "b:1 ask P"},
	{"a:1=2 20s", "c:1P", time.Minute, "b:1 ask p"},
	{"a:1=1 20s", "c:1P", time.Minute, "b:1 ask S"},
	{"a:1=1 20s", "c:1P", time.Minute, "b:1 ask -"},
	{"a:1=1 20s", "c:1P", time.Minute, "b:1 ask"},
	{"a:1=1 20s", "c:1P", time.Minute, "d:1 ask P"}, // it does not listen
	{"a:1=1 20s", "!a:1", time.Minute, "d:1 ask p"},
	{"a:1=1 20s", "b:1P c:1P", time.Minute, "b:1 ask P"},
	{"a:1=1 20s", "c:1P b:1-", time.Minute, "b:1 ask P"},
	{"a:1=1 20s", "c:1P b:1P", time.Minute, "b:1 ask -"},
	// Other holders.
	{"uuid-uuid:7=1 20s", "", 0, "b:1 ask P"},
	{"uuid-uuid:7=1 20s", "!c:9", time.Minute, "b:1 ask P"},
	{"uuid-uuid:7=1 20s", "c:1P", time.Minute, "b:1 ask P"},
	{"colour=1 20s", "c:1P", time.Minute, "b:1 ask P"},
	{"a:1=0 20s", "c:1P", time.Minute, "b:1 ask P"},
	{"a:1=x 20s", "c:1P", time.Minute, "b:1 ask P"},
	{"a:1=1", "c:1P", time.Minute, "b:1 ask P"},
	{"b:1=1 20s", "c:1P", time.Minute, "b:1 ask P"},
	{"", "!a:1 c:1P", time.Minute, "b:1 ask P"},
	{"", "", 0, "b:1 ask P"},
	{"two fields", "c:1P", time.Minute, "b:1 ask P"},
	{"string", "c:1P", time.Minute, "b:1 ask P"},
	{"a:1=1 20s", "string", 0, "b:1 ask P"},
}

// The short paths do what the functions do, in each situation.
func TestShortPaths(t *testing.T) {
	redistest.Since7(t, "sharded channels")
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	for kind, name := range []string{"PUBLISH", "SPUBLISH", "both"} {
		t.Run(name, func(t *testing.T) {
			w := newWaiters(t, rdb, func(owner string) lua.Grant {
				g := grant(owner)
				g.ChannelKind = lua.ChannelKind(kind)
				return g
			})
			for _, listener := range []string{"a", "b", "c", "redisson"} { // who comes last
				w.hear(listener)
				for i, s := range slices.Concat(releases, asks) {
					if name == "SPUBLISH" {
						s.queue = strings.NewReplacer("P", "S", "S", "P").Replace(s.queue)
					}
					want := s.outcome(t, w, &variant{Client: rdb, form: general}, nil)
					require.Equal(t, want, s.outcome(t, w, &variant{Client: rdb}, nil), "%s; %s", listener, s)
					if i == 0 && listener == "c" && name != "both" || i == len(releases) { // the common ones
						require.Equal(t, want, s.outcome(t, w, &variant{Client: rdb, form: short}, nil), "%s; %s", listener, s)
					}
				}
			}
		})
	}
}

// So they do if the server refuses a command, a key, a channel or all writes. Where the functions need
// a right that a short path does not, the short path may do what they do with all rights.
func TestShortPathsRefused(t *testing.T) {
	redistest.Since7(t, "rights to read and to write")
	t.Parallel()
	s := redistest.Start(t, "--maxmemory-policy", "noeviction")
	admin, all := s.Client(t), "~* &* +@all"
	app := user(t, s)
	w := newWaiters(t, admin, grant)
	for _, client := range []string{"a", "b", "c"} {
		w.hear(client)
	}
	refusals := append(
		[]string{
			"maxmemory", "~* &redisson_lock__channel:* +@all", "~* &rlock_channel:* +@all", "~* +@all", "min-replicas-to-write",
			"~rlock_queue:* &* +@all", "~lock &* +@all", "~rlock_queue:* %R~lock &* +@all", "~lock %R~rlock_queue:* &* +@all",
		},
		strings.Fields("exists hdel hlen hset hgetall pttl pexpire del zadd zrem zrange zscore zcard zcount time pubsub publish")...,
	)
	if testing.Short() {
		refusals = refusals[:3]
	}
	for _, rights := range refusals {
		rules, around := rights, func(bool) {}
		switch {
		case strings.HasPrefix(rights, "m"):
			rules, around = all, func(begins bool) {
				require.NoError(t, admin.ConfigSet(t.Context(), rights, map[bool]string{true: "1", false: "0"}[begins]).Err())
			}
		case !strings.Contains(rights, "~"):
			rules = all + " -" + rights
		}
		allow := func(rules string) {
			args := []any{"acl", "setuser", "app", "reset", "on", "nopass"}
			for rule := range strings.FieldsSeq(rules) {
				args = append(args, rule)
			}
			require.NoError(t, admin.Do(t.Context(), args...).Err())
		}
		for _, s := range slices.Concat(releases, asks) {
			allow(rules)
			want := s.outcome(t, w, &variant{Client: app, form: general}, around)
			got := s.outcome(t, w, &variant{Client: app}, around)
			if got != want && rules != all {
				allow(all)
				want = s.outcome(t, w, &variant{Client: app, form: general}, around)
			}
			require.Equal(t, want, got, "%s; %s", rights, s)
		}
	}
}

// And so they do in a cluster while the slot moves, where no key is made anew.
func TestShortPathsWhileTheSlotMoves(t *testing.T) {
	cluster := redistest.StartCluster(t, 2, 0)
	slot := cluster.Slot("lock")
	from, to := cluster.Owner(slot), cluster.Another(slot)
	rdb := from.Client(t)
	w := newWaiters(t, rdb, grant)
	for _, client := range []string{"a", "b", "c"} {
		w.hear(client)
	}
	around := func(begins bool) {
		if begins {
			cluster.BeginMove(slot, to)
			return
		}
		for _, node := range []*redistest.Server{from, to} {
			require.NoError(t, node.Client(t).Do(t.Context(), "cluster", "setslot", slot, "stable").Err())
		}
	}
	for _, s := range slices.Concat(releases, asks) {
		want := s.outcome(t, w, &variant{Client: rdb, form: general}, around)
		require.Equal(t, want, s.outcome(t, w, &variant{Client: rdb}, around), "%s", s)
	}
}
