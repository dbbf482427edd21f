package lua

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

// Send sends commands in one pipeline; each has its own outcome. If joined is set,
// some travel as one script if there are several: those that acquire a lock without
// tokens, and those that release one; and those that acquire the same fair lock. That
// costs the server half as much. They must not depend on each other, and the server
// must be no cluster.
//
// A server may refuse such a script and yet not all of its parts, for want of the
// right to one key, say. Then they are sent one by one, and refused is true.
func Send(ctx context.Context, r Runner, cmds []redis.Cmder, joined bool) (refused bool) {
	var all []*joint
	pipe := r.Pipeline()
	for _, cmd := range cmds {
		if part, ok := cmd.(once); !ok || !joined || !join(&all, part) {
			_ = pipe.Process(ctx, cmd) // only queues
		}
	}
	for _, j := range all {
		_ = pipe.Process(ctx, j.whole(ctx, "evalsha", j.script.sha))
	}
	_, err := pipe.Exec(ctx) // each command has its own
	for _, j := range all {
		if len(j.parts) > 1 && j.settle(ctx, r, err) {
			refused = true
		}
	}
	return refused
}

// refusal is an error reply that came as text.
type refusal string

func (r refusal) Error() string { return string(r) }

// RedisError makes it a [redis.Error].
func (r refusal) RedisError() {}

// joint is the parts of one script.
type joint struct {
	script  *script
	parts   []once
	command once // in place of the parts
}

// Places in the arguments of a script command.
const (
	argScript = 1
	argKeys   = 2 // how many
	argKey    = 3
)

// join adds a command to those that it can travel with, or begins with it. It reports
// false if the command can travel with no other.
func join(all *[]*joint, cmd once) bool {
	var s *script
	switch args := cmd.Args(); args[argScript] {
	case acquireScript.sha:
		if args[argKeys] != 1 { // it has a counter
			return false
		}
		s = &jointScript
	case releaseScript.sha:
		if args[len(args)-1] == "" { // it would be an acquisition
			return false
		}
		s = &jointScript
	case fairAcquireScript.sha:
		s = &fairAcquireScript
	default:
		return false
	}
	for _, j := range *all {
		if j.script == s && (s == &jointScript || sameButOwner(j.parts[0], cmd)) {
			j.parts = append(j.parts, cmd)
			return true
		}
	}
	*all = append(*all, &joint{script: s, parts: []once{cmd}})
	return true
}

// fairOwner is the place of the owner in the arguments of a fair script.
func fairOwner(cmd once) int { return argKey + cmd.Args()[argKeys].(int) + 1 }

// sameButOwner tells whether two owners ask for the same fair lock in the same way.
func sameButOwner(a, b once) bool {
	x, y, owner := a.Args(), b.Args(), fairOwner(a)
	return len(x) == len(y) && slices.Equal(x[:owner], y[:owner]) && slices.Equal(x[owner+1:], y[owner+1:])
}

// whole returns the command in place of the parts, which is that of the only one.
func (j *joint) whole(ctx context.Context, verb string, script any) once {
	if len(j.parts) == 1 {
		j.command = j.parts[0]
		return j.command
	}
	words := make([]any, 0, argKey+4*len(j.parts))
	words = append(words, verb, script)
	if j.script == &jointScript {
		words = append(words, len(j.parts))
		for _, part := range j.parts {
			words = append(words, part.Args()[argKey])
		}
		for _, part := range j.parts {
			if words = append(words, part.Args()[argKey+1:]...); part.Args()[argScript] == acquireScript.sha {
				words = append(words, "")
			}
		}
	} else {
		words = append(words, j.parts[0].Args()[argKeys:]...)
		for _, part := range j.parts[1:] {
			words = append(words, part.Args()[fairOwner(part)])
		}
	}
	j.command = newOnce(ctx, words)
	return j.command
}

// settle gives each part its answer, err if there is none. If the server has refused
// the script because of the company in which a part was, the parts are sent one by one,
// and it reports true.
func (j *joint) settle(ctx context.Context, r Runner, err error) (refused bool) {
	if j.command.Err() != nil || j.command.Val() != nil { // err may be that of another command
		err = j.command.Err()
	}
	if unknownScript(err) {
		err = r.Process(ctx, j.whole(ctx, "eval", j.script.source))
	}
	if ofCompany(err) {
		pipe := r.Pipeline()
		for _, part := range j.parts {
			_ = pipe.Process(ctx, part)
		}
		_, _ = pipe.Exec(ctx)
		return true
	}
	replies, ok := j.command.Val().([]any)
	if err == nil && (!ok || len(replies) != len(j.parts)) {
		err = fmt.Errorf("lua: unexpected reply to the %s script: %v", j.script.name, j.command.Val())
	}
	for i, part := range j.parts {
		if err != nil {
			part.SetErr(err)
		} else if text, ok := replies[i].(string); ok {
			part.SetErr(refusal(text))
		} else {
			part.SetVal(replies[i])
		}
	}
	return false
}

// ofCompany tells whether a server has refused to run a script because of what it
// has beside one part: keys. All others would meet each part as well.
func ofCompany(err error) bool {
	for _, code := range []string{"NOPERM", "CROSSSLOT", "MOVED", "ASK"} {
		if err != nil && redis.HasErrorPrefix(err, code) {
			return true
		}
	}
	return false
}
