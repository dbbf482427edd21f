package lua

import (
	"cmp"
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
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

//go:embed grant.lua
var grantSource string

//go:embed recall.lua
var recallSource string

//go:embed retain.lua
var retainSource string

//go:embed try_fast.lua
var tryFastSource string

//go:embed release_fast.lua
var releaseFastSource string

//go:embed try.lua
var trySource string

//go:embed count.lua
var countSource string

//go:embed release.lua
var releaseSource string

//go:embed renew.lua
var renewSource string

//go:embed force.lua
var forceSource string

//go:embed apart.lua
var apartSource string

//go:embed inspect.lua
var inspectSource string

//go:embed outcome.lua
var outcomeSource string

//go:embed acquireall.lua
var acquireAllSource string

//go:embed floor.lua
var floorSource string

// granting is what the scripts that grant begin with, queueing those that know a queue.
func granting() string { return kindSource + tokenSource + grantSource }
func queueing() string { return granting() + announceSource + queueSource }

var (
	acquireScript       = newJoint("acquire", tryFastSource, granting()+recallSource+trySource, "try(KEYS[k], nil, ARGV[a], ARGV[a+1])", 1, 2, 2)
	acquireFencedScript = newJoint("acquire", "", granting()+recallSource+trySource, "try(KEYS[k], KEYS[k+1], ARGV[a], ARGV[a+1], ARGV[a+2])", 2, 3, 2)

	askScript           = newJoint("ask", "", queueing()+recallSource+askSource, "ask(KEYS[k], KEYS[k+1], nil, unpack(ARGV, a, a+4))", 2, 5, 2)
	askFencedScript     = newJoint("ask", "", queueing()+recallSource+askSource, "ask(KEYS[k], KEYS[k+1], KEYS[k+2], unpack(ARGV, a, a+5))", 3, 6, 2)
	askFairScript       = newJoint("ask", "", queueing()+recallSource+askSource+askFairSource, "askfair(KEYS[k], KEYS[k+1], KEYS[k+2], KEYS[k+3], nil, unpack(ARGV, a, a+4))", 4, 5, 2)
	askFairFencedScript = newJoint("ask", "", queueing()+recallSource+askSource+askFairSource, "askfair(KEYS[k], KEYS[k+1], KEYS[k+2], KEYS[k+3], KEYS[k+4], unpack(ARGV, a, a+5))", 5, 6, 2)

	releaseScript       = newJoint("release", releaseFastSource, queueing()+releaseSource, "release(KEYS[k], KEYS[k+1], nil, unpack(ARGV, a, a+2))", 2, 3, 1)
	releaseFencedScript = newJoint("release", "", queueing()+releaseSource, "release(KEYS[k], KEYS[k+1], KEYS[k+2], unpack(ARGV, a, a+4))", 3, 5, 1)
	releaseAloneScript  = newJoint("release", "", queueing()+releaseSource, "release(KEYS[k], nil, nil, unpack(ARGV, a, a+1))", 1, 2, 1)

	countScript      = newScript("count", countSource, 1)
	retainScript     = newScript("retain", announceSource+retainSource, 1)
	renewScript      = newScript("renew", renewSource, 1)
	forceScript      = newScript("force", queueing()+forceSource, 1)
	apartScript      = newScript("apart", queueing()+apartSource, 1)
	inspectScript    = newScript("inspect", tokenSource+inspectSource, 2)
	acquireAllScript = newScript("acquireall", granting()+recallSource+acquireAllSource, 2)
	floorScript      = newScript("floor", tokenSource+floorSource, 1)
)

// script is a script, and the form of its answer: so many integers at its beginning if
// it says that something was refused.
type script struct {
	name, source string
	sha          any // a string, boxed once for all calls
	ints         int
	keys, args   int   // of a part, if several calls can travel as one script; else 0
	releases     bool  // gives something back
	one          reply // a lone 1
}

func newScript(name, source string, ints int) script {
	sum := sha1.Sum([]byte(source))
	return script{name: name, source: source, sha: hex.EncodeToString(sum[:]), ints: ints, one: reply{int64(done)}}
}

// newJoint returns a script for one call, or for several: each has so many keys and
// arguments, from KEYS[k] and ARGV[a] on. fast comes before
// all else, and may have put answers of some calls into replies.
func newJoint(name, fast, source, call string, keys, args, ints int) script {
	s := newScript(name, fmt.Sprintf(`%s%s%s
local function part(i)
    local k, a = (i - 1) * %d + 1, (i - 1) * %d + 1
    return %s
end
if #KEYS == %d then
    return part(1)
end
return outcomes(#KEYS / %d, part, replies)
`, cmp.Or(fast, "local replies = {}\n"), outcomeSource, source, keys, args, call, keys, keys), ints)
	s.keys, s.args, s.releases = keys, args, name == "release"
	return s
}

// once is a command that go-redis does not repeat.
type once struct {
	*redis.Cmd
	script *script
}

func (once) NoRetry() bool { return true }

// form is how a script is named in a call.
type form int

const (
	byHash   form = iota // at first
	bySource             // if the server does not know the script
)

// command builds a call of the script.
func (s *script) command(ctx context.Context, f form, keys []string, args []any) once {
	words := make([]any, 0, 3+len(keys)+len(args))
	if f == byHash {
		words = append(words, "evalsha", s.sha, len(keys))
	} else {
		words = append(words, "eval", s.source, len(keys))
	}
	for _, key := range keys {
		words = append(words, key)
	}
	return newOnce(ctx, s, append(words, args...))
}

func newOnce(ctx context.Context, s *script, words []any) once {
	cmd := redis.NewCmd(ctx, words...)
	cmd.SetFirstKeyPos(3) // routes to the node of the first key in a cluster
	return once{cmd, s}
}

func unknownScript(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }

// run sends the script and returns its reply.
func (s *script) run(ctx context.Context, r Runner, keys []string, args ...any) (reply, error) {
	cmd := s.command(ctx, byHash, keys, args)
	err := r.Process(ctx, cmd)
	if unknownScript(err) {
		cmd = s.command(ctx, bySource, keys, args)
		err = r.Process(ctx, cmd)
	}
	if err != nil {
		return nil, err
	}
	return s.reply(cmd)
}

// exec sends a pipeline. Each command has its own error; that of a hook of the client, which
// may have told it to none of them, is that of all, as it would be of a command alone.
func exec(ctx context.Context, pipe redis.Pipeliner) error {
	cmds, err := pipe.Exec(ctx)
	if err != nil && !slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil }) {
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
	}
	return err
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
func (s *script) reply(cmd once) (reply, error) {
	var r reply
	switch value := cmd.Val().(type) {
	case []any:
		r = value
	case int64:
		if r = s.one; value != done {
			r = reply{value}
		}
	}
	switch {
	case r.begins(1) && r.status() == conflict:
		return nil, &ConflictError{Key: r.text(1), Type: r.text(2)}
	case r.begins(1) && r.status() == done, r.begins(s.ints) && r.status() == refused:
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

// token is an integer, or text if it is too large for the numbers of a script.
func (r reply) token(i int) (int64, bool) {
	if i >= len(r) {
		return 0, false
	}
	switch v := r[i].(type) {
	case int64:
		return v, true
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		return n, err == nil
	}
	return 0, false
}

func (r reply) text(i int) string {
	if i >= len(r) {
		return ""
	}
	s, _ := r[i].(string)
	return s
}

// millis is a time of milliseconds; somebody else may have given a key one that is longer
// than a Duration can be.
func (r reply) millis(i int) time.Duration {
	return time.Duration(min(r.int(i), longest)) * time.Millisecond
}

const longest = int64(math.MaxInt64 / 2 / time.Millisecond) // so that it can be added to another
