package lua_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/lua"
)

// claim is that of tickets, patience that of those that were called after a lapse.
const (
	claim    = 6 * time.Second
	patience = 400 * time.Millisecond
)

// own names an owner of ours by a short name: "a:1" is the first of the client a. Names
// with more letters are those of foreign owners.
func own(short string) string {
	if len(short) < 3 || short[1] != ':' {
		return short
	}
	return strings.Repeat(short[:1], 20) + short[1:]
}

// shorten turns names of owners and clients into short ones.
func shorten(text string) string {
	for _, c := range "abcdex" {
		text = strings.ReplaceAll(text, strings.Repeat(string(c), 20), string(c))
	}
	return text
}

// hearing are the letters for ways of hearing.
const hearing = "-PpS"

// waiters is a lock with those who wait for it: which clients listen, and what they
// have heard.
type waiters struct {
	t     *testing.T
	rdb   *redis.Client
	lock  func(owner string) lua.Grant
	heard map[string]func() []string
	subs  map[string]*redis.PubSub
}

func newWaiters(t *testing.T, rdb *redis.Client, lock func(owner string) lua.Grant) *waiters {
	t.Helper()
	require.NoError(t, rdb.FlushAll(t.Context()).Err())
	w := &waiters{t: t, rdb: rdb, lock: lock, heard: make(map[string]func() []string), subs: make(map[string]*redis.PubSub)}
	t.Cleanup(func() {
		for name := range w.subs {
			w.deafen(name)
		}
	})
	return w
}

func (w *waiters) key() string { return w.lock("").Key }

// channel is that of a client, or of releases for foreign waiters.
func (w *waiters) channel(client string) string {
	if len(client) > 1 {
		return lua.UnlockChannel(w.key())
	}
	return lua.GrantChannel(w.key(), strings.Repeat(client, 20))
}

func (w *waiters) hear(client string) {
	w.t.Helper()
	w.subs[client], w.heard[client] = subscribe(w.t, w.rdb, w.channel(client), w.lock("").ChannelKind == lua.Sharded)
}

func (w *waiters) deafen(client string) {
	w.t.Helper()
	require.NoError(w.t, w.subs[client].Close())
	delete(w.subs, client)
	delete(w.heard, client)
	channel := w.channel(client)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		ctx := context.Background()
		if w.rdb.PubSubNumSub(ctx, channel).Val()[channel] == 0 && w.rdb.PubSubShardNumSub(ctx, channel).Val()[channel] == 0 {
			return
		}
		require.True(w.t, time.Now().Before(deadline), "still listening")
	}
}

// messages returns what was heard since the last call: "b: grant b:1 for 6s".
func (w *waiters) messages() string {
	var all []string
	for client, heard := range w.heard {
		for _, payload := range heard() {
			text := payload
			if len(client) == 1 {
				text = messageText(payload)
			}
			all = append(all, client+": "+text)
		}
	}
	slices.Sort(all)
	return shorten(strings.Join(all, "; "))
}

// do makes a call: "a:1 ask P", "a:1 release b:2", "a:1 try", "- expire".
func (w *waiters) do(r lua.Runner, call string) string {
	w.t.Helper()
	ctx := context.Background()
	words := strings.Fields(call)
	g := w.lock(own(words[0]))
	switch args := words[2:]; words[1] {
	case "ask":
		ticket := lua.Ticket{}
		if len(args) > 0 {
			ticket = lua.Ticket{Claim: claim, Hears: lua.Hearing(strings.Index(hearing, args[0]))}
		}
		return shorten(replyText(lua.Ask(ctx, r, g, 20*time.Second, ticket, 0)))
	case "try":
		return shorten(replyText(lua.Acquire(ctx, r, g, 20*time.Second, 0)))
	case "release":
		var e lua.Ending
		for _, ticket := range args {
			e.Tickets = append(e.Tickets, own(ticket))
		}
		return shorten(releasedText(lua.Release(ctx, r, g, e)))
	case "retain":
		kept, err := lua.Retain(ctx, r, g)
		require.NoError(w.t, err)
		return fmt.Sprintf("kept: %t", kept)
	case "count":
		return errText(lua.Count(ctx, r, g, 20*time.Second, len(args)))
	case "force":
		return calls["force"](ctx, r, g, 0)
	case "takes": // a foreign owner
		put(w.t, w.rdb, w.key(), words[0]+"=1 20s")
	case "expires":
		require.NoError(w.t, w.rdb.Del(ctx, w.key()).Err())
	case "listens":
		w.hear(words[0])
	case "deaf":
		w.deafen(words[0])
	default:
		require.Fail(w.t, "no such call", call)
	}
	return ""
}

// left is what the server knows of the lock: "a:1=1 20s | !a:1 b:1P c:1P?", where a lapse
// has called c:1. Nothing is
// without TTL.
func (w *waiters) left() string { return left(w.t, w.rdb, w.key()) }

func left(t require.TestingT, rdb *redis.Client, lock string) string {
	ctx := context.Background()
	keys, err := rdb.Keys(ctx, "*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		require.Positive(t, rdb.PTTL(ctx, key).Val(), key)
		if key == "bystander" { // see company
			continue
		}
		require.Contains(t, []string{lock, lua.QueueOf(lock), fenced("").Counter}, key)
	}
	queue, err := rdb.ZRangeWithScores(ctx, lua.QueueOf(lock), 0, -1).Result()
	require.NoError(t, err)
	var tickets []string
	for _, item := range queue {
		text := item.Member.(string)
		if item.Score > 0 {
			text += hearing[int64(item.Score)%4:][:1]
			if of := int64(item.Score) / 4 % 8192; of == patience.Milliseconds() {
				text += "?"
			} else {
				require.Equal(t, claim.Milliseconds(), of, text)
			}
		} else {
			require.True(t, strings.HasPrefix(text, "!"), text)
		}
		tickets = append(tickets, text)
	}
	return shorten(strings.TrimSpace(show(t, rdb, lock) + " | " + strings.Join(tickets, " ")))
}

// follow makes the calls of a course. A step is what is called, the answer, what is
// left, and what was heard:
//
//	"a:1 release -> done => b:1=1 10s | !b:1 >> b: grant b:1 for 6s"
//
// With again, every request is delivered once more, which leaves the same.
func (w *waiters) follow(r lua.Runner, again bool, course ...string) {
	w.t.Helper()
	for i, step := range course {
		rest, heard, _ := strings.Cut(step, " >> ")
		rest, after, hasAfter := strings.Cut(rest, " => ")
		call, answer, _ := strings.Cut(rest, " -> ")
		about := fmt.Sprintf("step %d: %s", i+1, step)
		require.Equal(w.t, answer, w.do(r, call), about)
		if hasAfter {
			require.Equal(w.t, after, w.left(), about)
		}
		require.Equal(w.t, heard, w.messages(), about)
		word := strings.Fields(call)[1]
		if again && hasAfter && slices.Contains([]string{"ask", "try", "release", "retain", "count"}, word) {
			w.do(r, call)
			require.Equal(w.t, after, w.left(), "repeated, "+about)
			w.messages()
		}
	}
}

// subscribe listens to a channel. The function returns what was published since its
// last call.
func subscribe(t *testing.T, rdb *redis.Client, channel string, sharded bool) (*redis.PubSub, func() []string) {
	t.Helper()
	return subscribeTo(t, rdb, rdb, channel, sharded)
}

// ends counts the calls that have waited for all messages before.
var ends atomic.Int64

// subscribeTo subscribes on the server of rdb; by is the one whose messages are waited for.
func subscribeTo(t *testing.T, rdb, by *redis.Client, channel string, sharded bool) (*redis.PubSub, func() []string) {
	t.Helper()
	sub := rdb.Subscribe(t.Context())
	join, publish := sub.Subscribe, by.Publish
	if sharded {
		join, publish = sub.SSubscribe, by.SPublish
	}
	require.NoError(t, join(t.Context(), channel))
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)
	return sub, func() (heard []string) {
		end := "end " + strconv.FormatInt(ends.Add(1), 10) // one of a test before may still be on its way through a cluster
		require.NoError(t, publish(context.Background(), channel, end).Err())
		for {
			msg, err := sub.ReceiveMessage(context.Background())
			require.NoError(t, err)
			if msg.Payload == end {
				return heard
			}
			if !strings.HasPrefix(msg.Payload, "end ") {
				heard = append(heard, msg.Payload)
			}
		}
	}
}

// listen subscribes to a channel until the test ends.
func listen(t *testing.T, rdb *redis.Client, channel string) func() []string {
	t.Helper()
	sub, heard := subscribe(t, rdb, channel, false)
	t.Cleanup(func() { _ = sub.Close() })
	return heard
}
