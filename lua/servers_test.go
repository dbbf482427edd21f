package lua_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/rlocktest"
)

// The scripts have to do the same on both servers, so that tests on the embedded
// one mean something. That one has no sharded channels, ACLs and memory limit.
func onBothServers(t *testing.T, test func(t *testing.T, rdb *redis.Client)) {
	t.Run("redis", func(t *testing.T) { test(t, redistest.Start(t).Client(t, patient)) })
	t.Run("embedded", func(t *testing.T) { test(t, rlocktest.NewServer(t).Client(patient)) })
}

// onEveryProtocol is onBothServers, and Redis once more by RESP2, in which it answers with
// other types: for tests of what is read out of answers.
func onEveryProtocol(t *testing.T, test func(t *testing.T, rdb *redis.Client)) {
	onBothServers(t, test)
	t.Run("RESP2", func(t *testing.T) {
		test(t, redistest.Start(t).Client(t, patient, func(o *redis.Options) { o.Protocol = 2 }))
	})
}

// patient is for what has to be answered, however busy the machine is: with the race
// detector the embedded server may need seconds for a batch.
func patient(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = time.Minute, time.Minute }

// says reports whether the server has answered with this code. Redis 6.2 says first
// where in the script that was.
func says(err error, code string) bool {
	return err != nil && (strings.HasPrefix(err.Error(), code+" ") || strings.Contains(err.Error(), ": -"+code+" "))
}

// grant is a lock without tokens.
func grant(owner string) lua.Grant {
	return lua.Grant{Key: "lock", Queue: lua.QueueOf("lock"), Owner: owner}
}

// named returns the same lock with another name.
func named(key string) func(owner string) lua.Grant {
	return func(owner string) lua.Grant { return lua.Grant{Key: key, Queue: lua.QueueOf(key), Owner: owner} }
}

// fenced is the same lock with tokens.
func fenced(owner string) lua.Grant {
	g := grant(owner)
	g.Counter = "redisson_lock_token:{lock}"
	return g
}

// fair is the same lock as a fair one, with tokens.
func fair(owner string) lua.Grant {
	g := fenced(owner)
	g.Rivals = [2]string{"redisson_lock_queue:{lock}", "redisson_lock_timeout:{lock}"}
	return g
}

// calls are the scripts, each with its answer as a text.
var calls = map[string]func(ctx context.Context, r lua.Runner, g lua.Grant, lease time.Duration) string{
	"acquire": func(ctx context.Context, r lua.Runner, g lua.Grant, lease time.Duration) string {
		return replyText(lua.Acquire(ctx, r, g, lease, 0))
	},
	"ask": func(ctx context.Context, r lua.Runner, g lua.Grant, lease time.Duration) string {
		return replyText(lua.Ask(ctx, r, g, lease, lua.Ticket{}, 0))
	},
	"queue": func(ctx context.Context, r lua.Runner, g lua.Grant, lease time.Duration) string {
		return replyText(lua.Ask(ctx, r, g, lease, lua.Ticket{Claim: claim}, 0))
	},
	"count 3": func(ctx context.Context, r lua.Runner, g lua.Grant, lease time.Duration) string {
		return errText(lua.Count(ctx, r, g, lease, 3))
	},
	"release": func(ctx context.Context, r lua.Runner, g lua.Grant, _ time.Duration) string {
		return releasedText(lua.Release(ctx, r, g, lua.Ending{}))
	},
	"renew": func(ctx context.Context, r lua.Runner, g lua.Grant, lease time.Duration) string {
		return errText(lua.Renew(ctx, r, []lua.Renewal{{Grant: g, Lease: lease}})[0])
	},
	"confirm": func(ctx context.Context, r lua.Runner, g lua.Grant, _ time.Duration) string {
		left, err := lua.Confirm(ctx, r, g)
		if err != nil {
			return err.Error()
		}
		return "held, " + showTTL(left)
	},
	"force": func(ctx context.Context, r lua.Runner, g lua.Grant, _ time.Duration) string {
		was, err := lua.ForceRelease(ctx, r, g)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("was held: %t", was)
	},
	"inspect": func(ctx context.Context, r lua.Runner, g lua.Grant, _ time.Duration) string {
		s, err := lua.Inspect(ctx, r, g)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%v, %s, %d waiting", s.Holds, showTTL(s.TTL), s.Waiters)
	},
}

func errText(err error) string {
	if err != nil {
		return err.Error()
	}
	return "done"
}

func replyText(reply lua.Reply, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case reply.Acquired:
		return "acquired"
	}
	text := "refused by " + reply.Holder + ", " + showTTL(reply.TTL)
	if reply.Place.Time == 0 { // not asked for
		return text
	}
	for _, part := range []struct {
		is   bool
		text string
	}{{reply.Place.First, ", first"}, {reply.Place.New, ", new"}} {
		if part.is {
			text += part.text
		}
	}
	return text
}

func releasedText(released lua.Released, err error) string {
	text := errText(err)
	if released.PublishErr != nil {
		text += ", not announced"
	}
	if released.Message != "" {
		text += ", " + messageText(released.Message)
	}
	return text
}

func messageText(payload string) string {
	m := lua.ReadMessage(payload)
	if !m.Granted {
		return "wake " + m.Owner
	}
	text := fmt.Sprintf("grant %s for %s", m.Owner, m.Claim)
	if len(m.Next) > 0 {
		text += ", then " + strings.Join(m.Next, " ")
	}
	return text
}

// put makes a key what the text says, and show says what it is:
//
//	""            absent
//	"me:1=2 20s"    a hash with one field and a TTL, shown rounded up to 10 s
//	"me:1=2"        the same without TTL
//	"string"      a key of that type, or "list"
func put(t *testing.T, rdb *redis.Client, key, text string) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, rdb.Del(ctx, key).Err())
	hash, ttl, hasTTL := strings.Cut(text, " ")
	switch owner, holds, isHash := strings.Cut(hash, "="); {
	case text == "":
	case isHash:
		require.NoError(t, rdb.HSet(ctx, key, owner, holds).Err())
	case text == "string":
		require.NoError(t, rdb.Set(ctx, key, "value", 0).Err())
	case text == "list":
		require.NoError(t, rdb.RPush(ctx, key, "value").Err())
	default:
		require.Fail(t, "no such state", text)
	}
	if hasTTL {
		d, err := time.ParseDuration(ttl)
		require.NoError(t, err)
		require.NoError(t, rdb.PExpire(ctx, key, d).Err())
	}
}

func show(t require.TestingT, rdb *redis.Client, key string) string {
	ctx := context.Background()
	kind, err := rdb.Type(ctx, key).Result()
	require.NoError(t, err)
	switch kind {
	case "none":
		return ""
	case "hash":
	default:
		return kind
	}
	hash, err := rdb.HGetAll(ctx, key).Result()
	require.NoError(t, err)
	var fields []string
	for owner, holds := range hash {
		fields = append(fields, owner+"="+holds)
	}
	slices.Sort(fields)
	ttl, err := rdb.PTTL(ctx, key).Result()
	require.NoError(t, err)
	if ttl < 0 {
		return strings.Join(fields, ",")
	}
	return strings.Join(fields, ",") + " " + showTTL(ttl)
}

func showTTL(d time.Duration) string {
	if d < 0 {
		return "no end"
	}
	return (time.Duration(math.Ceil(d.Seconds()/10)) * 10 * time.Second).String()
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.Dials) }
