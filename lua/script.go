package lua

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Runner is what a script needs of a client. Every redis.UniversalClient is one.
type Runner interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

//go:embed kind.lua
var kindSource string

//go:embed token.lua
var tokenSource string

//go:embed announce.lua
var announceSource string

//go:embed acquire.lua
var acquireSource string

//go:embed count.lua
var countSource string

//go:embed release.lua
var releaseSource string

//go:embed renew.lua
var renewSource string

//go:embed force.lua
var forceSource string

//go:embed inspect.lua
var inspectSource string

//go:embed outcome.lua
var outcomeSource string

//go:embed joint.lua
var jointSource string

//go:embed acquireall.lua
var acquireAllSource string

//go:embed floor.lua
var floorSource string

var (
	acquireScript = newScript("acquire", kindSource+tokenSource+acquireSource+"return acquire(KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3], ARGV[4])", 2)
	countScript   = newScript("count", countSource, 1)
	releaseScript = newScript("release", announceSource+releaseSource+"return release(KEYS[1], ARGV[1], ARGV[2], ARGV[3])", 1)
	renewScript   = newScript("renew", renewSource, 1)
	forceScript   = newScript("force", kindSource+announceSource+forceSource, 1)
	inspectScript = newScript("inspect", inspectSource, 4)

	jointScript      = newScript("joint", kindSource+tokenSource+announceSource+acquireSource+releaseSource+outcomeSource+jointSource, 0)
	acquireAllScript = newScript("acquireall", kindSource+tokenSource+acquireAllSource, 2)
	floorScript      = newScript("floor", tokenSource+floorSource, 1)
)

type script struct {
	name, source string
	sha          any  // a string, boxed once for all calls
	ints         int  // how many integers its answer begins with, at least
	terse        bool // but it may be a lone 1, which is cheaper for everybody
}

func newScript(name, source string, ints int) script {
	sum := sha1.Sum([]byte(source))
	return script{name: name, source: source, sha: hex.EncodeToString(sum[:]), ints: ints}
}

// once is a command that go-redis does not repeat.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// byHash and bySource build the two forms of a script call. EVALSHA comes
// first: the source is sent only to a server that does not know it.
func (s script) byHash(ctx context.Context, keys []string, args ...any) once {
	return command(ctx, "evalsha", s.sha, keys, args)
}

func (s script) bySource(ctx context.Context, keys []string, args ...any) once {
	return command(ctx, "eval", s.source, keys, args)
}

func command(ctx context.Context, verb string, script any, keys []string, args []any) once {
	words := make([]any, 0, 3+len(keys)+len(args))
	words = append(words, verb, script, len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	return newOnce(ctx, append(words, args...))
}

func newOnce(ctx context.Context, words []any) once {
	cmd := redis.NewCmd(ctx, words...)
	cmd.SetFirstKeyPos(3) // routes to the node of the first key in a cluster
	return once{cmd}
}

// tersely returns the script for calls that want no more than a 1.
func (s script) tersely() script {
	s.terse = true
	return s
}

func unknownScript(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }

// run sends the script and returns its reply.
func (s script) run(ctx context.Context, r Runner, keys []string, args ...any) (reply, error) {
	cmd := s.byHash(ctx, keys, args...)
	err := r.Process(ctx, cmd)
	if unknownScript(err) {
		cmd = s.bySource(ctx, keys, args...)
		err = r.Process(ctx, cmd)
	}
	if err != nil {
		return nil, err
	}
	return s.reply(cmd)
}

// reply is a script's answer: a status, then integers and strings.
type reply []any

// Statuses of a reply.
const (
	done     = 1
	refused  = 0
	conflict = -1
)

// reply reads the answer of a command. Whatever is not of the form that the
// script promises is an error: a strange answer must never look like a lock.
func (s script) reply(cmd once) (reply, error) {
	var r reply
	switch value := cmd.Val().(type) {
	case []any:
		r = value
	case int64:
		r = reply{value}
	}
	switch {
	case r.begins(1) && r.status() == conflict:
		return nil, &ConflictError{Key: r.text(1), Type: r.text(2)}
	case r.begins(s.ints) && (r.status() == done || r.status() == refused),
		s.terse && len(r) == 1 && r.begins(1) && r.status() == done:
		return r, nil
	}
	return nil, fmt.Errorf("lua: unexpected reply to the %s script: %v", s.name, cmd.Val())
}

// begins reports whether the reply begins with that many integers.
func (r reply) begins(ints int) bool {
	if len(r) < ints {
		return false
	}
	for _, v := range r[:ints] {
		if _, ok := v.(int64); !ok {
			return false
		}
	}
	return true
}

func (r reply) status() int64 { return r.int(0) }

// int and text are zero where the reply is shorter or of another type: only
// figures to show are read through such a default, nothing is decided by it.
func (r reply) int(i int) int64 {
	if i >= len(r) {
		return 0
	}
	n, _ := r[i].(int64)
	return n
}

func (r reply) text(i int) string {
	if i >= len(r) {
		return ""
	}
	s, _ := r[i].(string)
	return s
}

func (r reply) millis(i int) time.Duration { return time.Duration(r.int(i)) * time.Millisecond }
