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

// ErrNotOwner reports that the owner does not hold the lock: its lease ran out,
// the lock was removed, or the same request was executed before.
var ErrNotOwner = errors.New("lua: not the owner")

// ConflictError reports that a key belongs to something that is not a lock, or to a
// lock of another kind. Nothing was changed.
type ConflictError struct{ Key, Type string }

// Types of a [ConflictError], of keys that are locks.
const (
	PlainLock     = "plain lock"
	ReadWriteLock = "read/write lock"
)

// foreignField begins the Type of a hash whose field is no owner. The field follows, quoted.
const foreignField = "hash with the field "

func (e *ConflictError) Error() string {
	if e.Type == PlainLock || e.Type == ReadWriteLock {
		return fmt.Sprintf("lua: key %q holds a %s", e.Key, e.Type)
	}
	return fmt.Sprintf("lua: key %q holds a %s, not a lock", e.Key, e.Type)
}

// Runner is what a script needs of a client. Every redis.UniversalClient is one.
type Runner interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

var _ Runner = redis.UniversalClient(nil)

//go:embed outcome.lua
var outcomeSource string

// script is a script, and what is known of its calls and answers.
type script struct {
	name, source string
	sha          any  // a string, boxed once for all calls
	ints         int  // how many integers must follow the status in a refusal
	keys, args   int  // of a part, if several calls can travel as one script; else 0
	releases     bool // gives something back
}

func newScript(name, source string, ints int) script {
	var sum [sha1.Size]byte // names the script to the server, and protects nothing: so FIPS 140 has no say in it
	fips140.WithoutEnforcement(func() { sum = sha1.Sum([]byte(source)) })
	return script{name: name, source: source, sha: hex.EncodeToString(sum[:]), ints: ints}
}

// newJoint returns a script for one call, or for several: each has so many keys and
// arguments, from KEYS[k] and ARGV[a] on. fast comes before all else, and may have put
// answers of some calls into replies: it saves 2.0 of 8.7 µs of the server for a free lock
// with its release (BenchmarkUncontended64 of package rlock, two cores).
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

// once is a command that go-redis does not repeat. It has room for its words, so that it
// is one object.
type once struct {
	redis.Cmd
	script *script
	room   [8]any
}

func (*once) NoRetry() bool { return true }

// newOnce returns a command of n words, which the caller fills in. The first key is at argKey.
func newOnce(ctx context.Context, s *script, n int) (cmd *once, words []any) {
	cmd = &once{script: s}
	words = slices.Grow(cmd.room[:0], n)[:n]
	cmd.Cmd = *redis.NewCmd(ctx, words...)
	cmd.SetFirstKeyPos(argKey) // routes to the node of the first key in a cluster
	return cmd, words
}

// form is how a script is named in a call.
type form int

const (
	byHash   form = iota // at first
	bySource             // if the server does not know the script
)

const (
	argKey        = 3          // where the keys begin in a command
	unknownScript = "NOSCRIPT" // the beginning of what a server says that does not know a script
	slotMoves     = "TRYAGAIN" // likewise, of one that has some of several keys only, as their slot moves
)

// run sends the script and returns its reply. A server that does not know the script has
// not executed it, and gets the source.
func (s *script) run(ctx context.Context, r Runner, keys []string, args ...any) (reply, error) {
	cmd := s.command(ctx, byHash, keys, args)
	err := r.Process(ctx, cmd)
	if err != nil && redis.HasErrorPrefix(err, unknownScript) {
		cmd = s.command(ctx, bySource, keys, args)
		err = r.Process(ctx, cmd)
	}
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

// Exec sends a pipeline. Each command has its own error; that of a hook of the client, which
// may have told it to none of them, is that of all, as it would be of a command alone.
func Exec(ctx context.Context, pipe redis.Pipeliner) error {
	cmds, err := pipe.Exec(ctx)
	if err != nil && !slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil }) {
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
	}
	return err
}

// reply is what a script has answered.
type reply struct {
	done bool  // it did what it was asked; otherwise it refused
	list []any // a status, then integers and strings; nil if the status is all
}

// Statuses of a reply.
const (
	done     int64 = 1
	refused  int64 = 0
	conflict int64 = -1
)

// read takes the answer of a command. Whatever is not of the form that the script
// promises is an error: a strange answer must never look like a lock.
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

// begins reports whether so many integers come directly behind the status.
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

// granted reads the answer to an acquire. It insists on the token of a fenced lock.
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
// through such a default: what a refusal does not tell costs a waiter one more request.
func (r reply) int(i int) int64 {
	if i >= len(r.list) {
		return 0
	}
	n, _ := r.list[i].(int64)
	return n
}

// token is an integer, or text if it is too large for the numbers of a script.
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

// millis is a time of milliseconds; somebody else may have given a key one that is longer
// than a Duration can be.
func (r reply) millis(i int) time.Duration {
	return time.Duration(min(r.int(i), longest)) * time.Millisecond
}

const longest = int64(math.MaxInt64 / 2 / time.Millisecond) // so that it can be added to another

// owned turns the answer of a script that serves only the owner into an error.
func owned(r reply, err error) error {
	if err == nil && !r.done {
		return ErrNotOwner
	}
	return err
}
