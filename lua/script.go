package lua

import (
	"cmp"
	"context"
	"crypto/fips140"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrNotOwner means that the owner does not hold the lock, because the lease has expired, the lock was removed,
// or the same request was executed before.
var ErrNotOwner = errors.New("lua: not the owner")

// ConflictError means that a key holds another kind of lock, or other data. Nothing was changed.
type ConflictError struct{ Key, Type string }

// Values of Type in a [ConflictError], if the key holds a lock.
const (
	PlainLock     = "plain lock"
	ReadWriteLock = "read/write lock"
)

// foreignField begins the Type of a hash with a field of no owner. The field follows, quoted.
const foreignField = "hash with the field "

func (e *ConflictError) Error() string {
	if e.Type == PlainLock || e.Type == ReadWriteLock {
		return fmt.Sprintf("lua: key %q holds a %s", e.Key, e.Type)
	}
	return fmt.Sprintf("lua: key %q holds a %s, not a lock", e.Key, e.Type)
}

// Runner sends scripts to Redis. Every [redis.UniversalClient] is a Runner.
type Runner interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

var _ Runner = redis.UniversalClient(nil)

//go:embed outcome.lua
var outcomeSource string

// script is a script, with the form of calls and answers.
type script struct {
	name, source string
	sha          any  // a string, boxed once for all calls
	ints         int  // number of integers after the status in a refusal
	keys, args   int  // of a part of a joint script; else 0
	releases     bool // releases a lock
}

func newScript(name, source string, ints int) script {
	var sum [sha1.Size]byte // names the script to the server, and protects nothing: so FIPS 140 does not matter
	fips140.WithoutEnforcement(func() { sum = sha1.Sum([]byte(source)) })
	return script{name: name, source: source, sha: hex.EncodeToString(sum[:]), ints: ints}
}

// newJoint returns a script for a single call or for several calls, each with the given numbers of keys
// and arguments, from KEYS[k] and ARGV[a] on. fast runs first, and may have put answers of some calls
// into replies: fast saves 2.0 of 8.7 µs of the server for a free lock with the release
// (BenchmarkUncontended64 of package rlock, two cores), and 38 of 84 µs for a request that is refused with
// the release that hands the lock over.
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

// once is a command that go-redis does not repeat. The room for the words saves an allocation.
type once struct {
	redis.Cmd
	script *script
	twin   *once // has the answer; nil: the command itself has
	room   [8]any
}

func (*once) NoRetry() bool { return true }

// Twin returns the same command once more, for sending both at the same time.
func (c *once) Twin(ctx context.Context) redis.Cmder {
	twin := &once{script: c.script}
	twin.Cmd = *redis.NewCmd(ctx, c.Args()...)
	twin.SetFirstKeyPos(argKey)
	return twin
}

// Take makes the answer to a twin the answer to the command. go-redis may still write an answer into the
// command itself.
func (c *once) Take(twin redis.Cmder) { c.twin, _ = twin.(*once) }

// Val is the answer.
func (c *once) Val() any {
	if c.twin != nil {
		return c.twin.Val()
	}
	return c.Cmd.Val()
}

// newOnce returns a command of n words, for the caller to fill in. The first key is at argKey.
func newOnce(ctx context.Context, s *script, n int) (cmd *once, words []any) {
	cmd = &once{script: s}
	words = slices.Grow(cmd.room[:0], n)[:n]
	cmd.Cmd = *redis.NewCmd(ctx, words...)
	cmd.SetFirstKeyPos(argKey) // routes to the node of the first key in a cluster
	return cmd, words
}

// form is the form of a script in a call.
type form int

const (
	byHash   form = iota // first
	bySource             // if the server does not know the script
)

const (
	argKey        = 3          // index of the first key in a command
	unknownScript = "NOSCRIPT" // begins the reply of a server without the script
	slotMoves     = "TRYAGAIN" // begins the reply of a server without all of several keys, as the slot moves
)

// send sends the script. A server without the script has executed nothing, and gets the source.
func (s *script) send(ctx context.Context, r Runner, keys []string, args []any) (*once, error) {
	cmd := s.command(ctx, byHash, keys, args)
	err := r.Process(ctx, cmd)
	if err != nil && redis.HasErrorPrefix(err, unknownScript) {
		cmd = s.command(ctx, bySource, keys, args)
		err = r.Process(ctx, cmd)
	}
	return cmd, err
}

// run sends the script and returns the reply.
func (s *script) run(ctx context.Context, r Runner, keys []string, args ...any) (reply, error) {
	cmd, err := s.send(ctx, r, keys, args)
	if err != nil {
		return reply{}, err
	}
	return s.read(cmd)
}

// command builds a call of the script.
func (s *script) command(ctx context.Context, f form, keys []string, args []any) *once {
	cmd, words := newOnce(ctx, s, argKey+len(keys)+len(args))
	words[0], words[1], words[2] = "evalsha", s.sha, len(keys)
	if f == bySource {
		words[0], words[1] = "eval", s.source
	}
	for i, key := range keys {
		words[argKey+i] = key
	}
	copy(words[argKey+len(keys):], args)
	return cmd
}

// Exec sends a pipeline. Each command has its own error. If a hook of the client returns an error without
// setting the error of a command, every command gets that error, as a single command would.
func Exec(ctx context.Context, pipe redis.Pipeliner) error {
	cmds, err := pipe.Exec(ctx)
	if err != nil && !slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil }) {
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
	}
	return err
}

// reply is the reply of a script.
type reply struct {
	done bool  // executed; otherwise refused
	list []any // a status, then integers and strings; nil for a status alone
}

// Statuses of a reply.
const (
	done     int64 = 1
	refused  int64 = 0
	conflict int64 = -1
)

// read reads the answer to a command. An answer in another form than the script's is an error: a
// strange answer must never look like a lock.
func (s *script) read(cmd *once) (reply, error) {
	status := cmd.Val()
	list, _ := status.([]any)
	if len(list) > 0 {
		status = list[0]
	}
	r := reply{done: status == done, list: list}
	switch {
	case r.done, status == refused && r.begins(s.ints):
		return r, nil
	case status == conflict:
		kind := r.text(2)
		if field, ok := strings.CutPrefix(kind, foreignField); ok {
			kind = foreignField + strconv.Quote(field)
		}
		return reply{}, &ConflictError{Key: r.text(1), Type: kind}
	}
	return reply{}, fmt.Errorf("lua: unexpected reply to the %s script: %v", s.name, cmd.Val())
}

// begins reports whether ints integers come directly behind the status.
func (r reply) begins(ints int) bool {
	for i := 1; i <= ints; i++ {
		if i >= len(r.list) {
			return false
		}
		if _, ok := r.list[i].(int64); !ok {
			return false
		}
	}
	return true
}

// granted reads the answer to an acquire. The token of a fenced lock is required.
func (r reply) granted(fenced bool) (Reply, error) {
	switch {
	case !r.done:
		return Reply{TTL: r.millis(1), Holder: r.text(2)}, nil
	case !fenced:
		return Reply{Acquired: true}, nil
	}
	token, ok := r.token(1)
	if !ok {
		return Reply{}, fmt.Errorf("lua: a grant without token: %v", r.list)
	}
	return Reply{Acquired: true, Token: token, Spare: r.int(2)}, nil
}

// int and text are zero where the reply is shorter or of another type. No grant is read
// through such a default: a gap in a refusal costs a waiter a further request.
func (r reply) int(i int) int64 {
	if i >= len(r.list) {
		return 0
	}
	n, _ := r.list[i].(int64)
	return n
}

// token is an integer, or text for a token beyond the numbers of a script.
func (r reply) token(i int) (int64, bool) {
	if i >= len(r.list) {
		return 0, false
	}
	switch v := r.list[i].(type) {
	case int64:
		return v, true
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		return n, err == nil
	}
	return 0, false
}

func (r reply) text(i int) string {
	if i >= len(r.list) {
		return ""
	}
	s, _ := r.list[i].(string)
	return s
}

// millis is a time in milliseconds; another program may have given a key a TTL beyond a Duration.
func (r reply) millis(i int) time.Duration {
	return time.Duration(min(r.int(i), longest)) * time.Millisecond
}

const longest = int64(math.MaxInt64 / 2 / time.Millisecond) // so that the sum of two is a Duration

// owned turns the answer of a script for the owner alone into an error.
func owned(r reply, err error) error {
	if err == nil && !r.done {
		return ErrNotOwner
	}
	return err
}
