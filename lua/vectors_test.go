package lua_test

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

var update = flag.Bool("update", false, "write protocol/vectors/*.json and protocol/scripts/*.lua")

const protocol = "../protocol"

// vector is what one request does: see docs/protocol.md. The fields are in the order of time.
type vector struct {
	Title      string         `json:"title"`
	Before     map[string]key `json:"before"`               // all keys
	Subscribed []string       `json:"subscribed,omitempty"` // channels that somebody listens on
	Request    evaluation     `json:"request"`
	Reply      any            `json:"reply"`
	After      map[string]key `json:"after"`
	Messages   [][2]string    `json:"messages,omitempty"` // channel and text
	Again      any            `json:"again"`              // reply to the same request once more, which changes nothing
}

type evaluation struct {
	Script string   `json:"script"` // protocol/scripts
	Keys   []string `json:"keys"`
	Args   []string `json:"args"`
}

type key struct {
	Type  string `json:"type"`
	Value any    `json:"value"`
	TTL   any    `json:"ttl,omitempty"` // none: the key has no end
}

// recorder is a server whose scripts are recorded.
type recorder struct {
	t       *testing.T
	rdb     *redis.Client
	sources map[string]string // by SHA-1
	scripts map[string]string // name of each source
	last    evaluation
	reply   any
}

func (r *recorder) see(cmd redis.Cmder) {
	args := cmd.Args()
	command, _ := args[0].(string)
	if command != "eval" && command != "evalsha" {
		return
	}
	text, _ := args[1].(string)
	if command == "eval" {
		sum := sha1.Sum([]byte(text))
		r.sources[hex.EncodeToString(sum[:])] = text
	} else if text = r.sources[text]; text == "" {
		return // the server does not know it
	}
	keys, err := strconv.Atoi(fmt.Sprint(args[2]))
	require.NoError(r.t, err)
	r.last = evaluation{Script: text, Keys: []string{}, Args: []string{}}
	for i, arg := range args[3:] {
		if i < keys {
			r.last.Keys = append(r.last.Keys, fmt.Sprint(arg))
		} else {
			r.last.Args = append(r.last.Args, fmt.Sprint(arg))
		}
	}
	r.reply = rounded(cmd.(interface{ Val() any }).Val())
}

// ProcessHook and the others implement [redis.Hook].
func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		r.see(cmd)
		return err
	}
}

func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			r.see(cmd)
		}
		return err
	}
}

func (r *recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

// rounded writes what depends on the time in a way that does not: {"ms": n} is a rest of a time, up to a
// second less than n, and {"clock": "us"} is a time of the server's clock, or a token, which begins with it.
func rounded(reply any) any {
	switch v := reply.(type) {
	case []any:
		all := make([]any, len(v))
		for i, e := range v {
			all[i] = rounded(e)
		}
		return all
	case int64:
		switch {
		case v > 1e15:
			return map[string]any{"clock": "us"}
		case v > 5000 && v < 1e6:
			return map[string]any{"ms": int64(math.Ceil(float64(v)/1000)) * 1000}
		}
	case string:
		if n, err := strconv.ParseInt(v, 10, 64); err == nil && n > 1e15 {
			return map[string]any{"clock": "us"}
		}
		words := strings.Fields(v) // a message
		for i, word := range words {
			if n, err := strconv.ParseInt(word, 10, 64); err == nil && n > 1e15 {
				words[i] = "CLOCK"
			}
		}
		if slices.Contains(words, "CLOCK") {
			return strings.Join(words, " ")
		}
	}
	return reply
}

func (r *recorder) state() map[string]key {
	ctx, all := r.t.Context(), map[string]key{}
	names, err := r.rdb.Keys(ctx, "*").Result()
	require.NoError(r.t, err)
	for _, name := range names {
		k := key{Type: r.rdb.Type(ctx, name).Val()}
		switch k.Type {
		case "string":
			k.Value = rounded(r.rdb.Get(ctx, name).Val())
		case "list":
			k.Value = r.rdb.LRange(ctx, name, 0, -1).Val()
		case "hash":
			k.Value = r.rdb.HGetAll(ctx, name).Val()
		case "zset":
			scores := map[string]int64{}
			for _, z := range r.rdb.ZRangeWithScores(ctx, name, 0, -1).Val() {
				scores[z.Member.(string)] = int64(z.Score)
			}
			k.Value = scores
		}
		if ttl := r.rdb.PTTL(ctx, name).Val(); ttl > 0 {
			k.TTL = map[string]any{"ms": int64(math.Ceil(ttl.Seconds())) * 1000}
		}
		all[name] = k
	}
	return all
}

// vector records what a call does, and its repetition.
func (r *recorder) vector(title string, channels []string, call func()) vector {
	v := vector{Title: title, Before: r.state(), Subscribed: channels}
	var heard []func() []string
	for _, channel := range channels {
		heard = append(heard, listen(r.t, r.rdb, channel))
	}
	call()
	v.Request, v.Reply, v.After = r.last, r.reply, r.state()
	for i, channel := range channels {
		for _, text := range heard[i]() {
			v.Messages = append(v.Messages, [2]string{channel, rounded(text).(string)})
		}
	}
	call()
	v.Again = r.reply
	return v
}

// name gives a script the name of its first call. A call has several scripts: a shorter one for a lock that is
// not contended.
func (r *recorder) name(v *vector, call string) {
	source := v.Request.Script
	name, taken := call, slices.Collect(maps.Values(r.scripts))
	for n := 2; r.scripts[source] == "" && slices.Contains(taken, name); n++ {
		name = fmt.Sprint(call, n)
	}
	if r.scripts[source] == "" {
		r.scripts[source] = name
	}
	v.Request.Script = r.scripts[source]
}

// TestVectors compares the vectors with what the scripts do: make vectors writes them.
func TestVectors(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	r := &recorder{t: t, rdb: rdb, sources: map[string]string{}, scripts: map[string]string{}}
	rdb.AddHook(r)
	ctx := t.Context()
	files := map[string][]vector{"queue": r.queue(), "readwrite_queue": r.readWriteQueue()} // before anybody listens as Redisson's waiters do
	files["readwrite"] = r.readWrite()
	locks := map[string]func(string) lua.Grant{"plain": grant, "fenced": fenced, "fair": fair}
	for _, kind := range []string{"plain", "fenced", "fair"} { // the first to use a script gives it a name
		lock := locks[kind]
		for _, tc := range answers() {
			words := strings.Fields(tc.call)
			verb := words[0]
			if verb == "inspect" || kind == "fair" && (verb == "acquire" || verb == "count" || verb == "renew" || verb == "confirm") {
				continue // that is for tools; and a fair lock is taken by ask
			}
			require.NoError(t, rdb.FlushDB(ctx).Err())
			put(t, rdb, "lock", tc.before)
			lease, err := time.ParseDuration(words[len(words)-1])
			require.NoError(t, err)
			channels := []string{lua.UnlockChannel("lock")}
			v := r.vector(fmt.Sprintf("%s, the lock is %q", strings.Join(words[:len(words)-1], " "), tc.before), channels, func() {
				calls[strings.Join(words[:len(words)-1], " ")](ctx, rdb, lock("me:1"), lease)
			})
			r.name(&v, verb+map[string]string{"fair": "_fair"}[kind])
			files[kind] = append(files[kind], v)
		}
	}
	for kind, vectors := range files {
		// One on each line, so that a diff shows which have changed.
		text := []byte("[\n")
		for i, v := range vectors {
			line, err := json.Marshal(v)
			require.NoError(t, err)
			text = append(text, line...)
			if i < len(vectors)-1 {
				text = append(text, ',')
			}
			text = append(text, '\n')
		}
		compare(t, filepath.Join("vectors", kind+".json"), append(text, "]\n"...))
	}
	for source, name := range r.scripts {
		compare(t, filepath.Join("scripts", name+".lua"), []byte(source))
	}
}

// queue is the way of a ticket: it stands in the queue, is granted the lock, and asks for the token.
func (r *recorder) queue() (all []vector) {
	ctx := r.t.Context()
	require.NoError(r.t, r.rdb.FlushDB(ctx).Err())
	channels := []string{lua.GrantChannel("lock", "a"), lua.GrantChannel("lock", "b")}
	ask := func(owner string) func() {
		return func() {
			_, _ = lua.Ask(ctx, r.rdb, fenced(owner), 20*time.Second, lua.Ticket{Claim: 6 * time.Second, Hears: lua.Counted}, 0)
		}
	}
	step := func(title, script string, call func()) {
		v := r.vector(title, channels, call)
		r.name(&v, script)
		all = append(all, v)
	}
	ask("a:1")()
	step("b:1 asks while a:1 holds the lock, and stands in the queue", "ask", ask("b:1"))
	step("a:1 releases, and b:1 is told that it holds the lock", "release", func() { _, _ = lua.Release(ctx, r.rdb, fenced("a:1"), lua.Ending{}) })
	step("b:1 renews the claim, and has its lease", "ask", ask("b:1"))
	step("b:1 releases, and nobody waits", "release", func() { _, _ = lua.Release(ctx, r.rdb, fenced("b:1"), lua.Ending{}) })
	return all
}

// readWrite has each request for a read/write lock in each state of the lock.
func (r *recorder) readWrite() (all []vector) {
	ctx, me := r.t.Context(), rw("me:1")
	asks := func(g lua.RW) func() {
		return func() { _, _ = lua.AskRW(ctx, r.rdb, g, 20*time.Second, lua.Ticket{}) }
	}
	requests := []struct {
		title, script string
		call          func()
	}{
		{"ask to read", "rw_ask", asks(reader(me))},
		{"ask to write", "rw_ask", asks(me)},
		{"count 1 write and 2 reads", "rw_count", func() { _, _ = lua.CountRW(ctx, r.rdb, me, 20*time.Second, 1, 2) }},
		{"count 2 reads", "rw_count", func() { _, _ = lua.CountRW(ctx, r.rdb, me, 20*time.Second, 0, 2) }},
		{"renew", "rw_renew", func() { _ = lua.Renew(ctx, r.rdb, []lua.Renewal{lua.RenewalRW(me, 20*time.Second)}) }},
		{"release", "rw_release", func() { _, _ = lua.ReleaseRW(ctx, r.rdb, me, lua.Ending{}) }},
		{"force", "rw_force", func() { _, _ = lua.ForceReleaseRW(ctx, r.rdb, me) }},
	}
	states := []struct {
		title string
		put   func()
	}{
		{"free", func() {}},
		{"read by me:1", func() { putReader(r.t, r.rdb, "me:1", 10*time.Second) }},
		{"read by other:1", func() { putReader(r.t, r.rdb, "other:1", 10*time.Second) }},
		{"read by me:1 and other:1", func() {
			putReader(r.t, r.rdb, "me:1", 10*time.Second)
			putReader(r.t, r.rdb, "other:1", 10*time.Second)
		}},
		{"read by other:1, whose lease is over", func() {
			putReader(r.t, r.rdb, "other:1", 0)
			require.NoError(r.t, r.rdb.PExpire(ctx, "lock", 10*time.Second).Err())
		}},
		{"written by me:1", func() { putWriter(r.t, r.rdb, "me:1", 10*time.Second) }},
		{"written by other:1", func() { putWriter(r.t, r.rdb, "other:1", 10*time.Second) }},
		{"a plain lock", func() { put(r.t, r.rdb, "lock", "other:1=1 10s") }},
		{"a list", func() { put(r.t, r.rdb, "lock", "list") }},
	}
	for _, request := range requests {
		for _, state := range states {
			if request.title == "release" && state.title == "read by me:1 and other:1" {
				continue // the script looks at any reader: the reply has one of two forms
			}
			require.NoError(r.t, r.rdb.FlushDB(ctx).Err())
			state.put()
			v := r.vector(fmt.Sprintf("%s, the lock is %s", request.title, state.title), []string{lua.UnlockChannelRW("lock")}, request.call)
			r.name(&v, request.script)
			all = append(all, v)
		}
	}
	return all
}

// readWriteQueue is the way of tickets: two readers are granted the lock together, and a writer after them.
func (r *recorder) readWriteQueue() (all []vector) {
	ctx := r.t.Context()
	require.NoError(r.t, r.rdb.FlushDB(ctx).Err())
	channels := []string{lua.GrantChannelRW("lock", "a"), lua.GrantChannelRW("lock", "b"), lua.GrantChannelRW("lock", "c"), lua.GrantChannelRW("lock", "w")}
	ask := func(g lua.RW) func() {
		return func() {
			_, _ = lua.AskRW(ctx, r.rdb, g, 20*time.Second, lua.Ticket{Claim: 6 * time.Second, Hears: lua.Counted})
		}
	}
	release := func(owner string) func() {
		return func() { _, _ = lua.ReleaseRW(ctx, r.rdb, rw(owner), lua.Ending{}) }
	}
	step := func(title, script string, call func()) {
		v := r.vector(title, channels, call)
		r.name(&v, script)
		all = append(all, v)
	}
	ask(rw("w:1"))()
	step("a:1 asks to read while w:1 writes, and stands in the queue", "rw_ask", ask(reader(rw("a:1"))))
	step("b:1 asks to read, and stands behind", "rw_ask", ask(reader(rw("b:1"))))
	step("c:1 asks to write, and stands behind both", "rw_ask", ask(rw("c:1")))
	step("w:1 releases, and a:1 and b:1 are told that they read", "rw_release", release("w:1"))
	step("a:1 renews the claim, and has its lease", "rw_ask", ask(reader(rw("a:1"))))
	release("a:1")() // the reply has one of two forms, see readWrite
	step("b:1 releases, and c:1 is told that it writes", "rw_release", release("b:1"))
	step("c:1 renews the claim", "rw_ask", ask(rw("c:1")))
	step("c:1 releases, and nobody waits", "rw_release", release("c:1"))
	return all
}

func compare(t *testing.T, name string, got []byte) {
	file := filepath.Join(protocol, name)
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, got, 0o644))
		return
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err, "make vectors")
	require.True(t, bytes.Equal(want, got), "%s is not what the scripts do: make vectors writes it, and git diff shows what has changed", name)
}

// A reader in another language comes to the same.
func TestVectorsInPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not there")
	}
	srv := redistest.Start(t)
	out, err := exec.CommandContext(t.Context(), python, filepath.Join(protocol, "check.py"), srv.Addr()).CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
}
