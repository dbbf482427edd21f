package lua

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Send sends commands in one pipeline; each has its own outcome. Those that acquire
// a lock without tokens, and those that release one, travel as one script if there
// are several and joined is set: that costs the server half as much. They must not
// depend on each other, and the server must be no cluster.
//
// A server may refuse that script and yet not all of its parts: for want of the
// right to one key, say, or because a proxy wants all keys on one node. Then they
// are sent one by one, and refused is true.
func Send(ctx context.Context, r Runner, cmds []redis.Cmder, joined bool) (refused bool) {
	var parts joint
	pipe := r.Pipeline()
	for _, cmd := range cmds {
		if part, ok := cmd.(once); ok && joined && part.joinable() {
			parts = append(parts, part)
		} else {
			_ = pipe.Process(ctx, cmd) // only queues
		}
	}
	switch len(parts) {
	case 0:
		_, _ = pipe.Exec(ctx) // each command has its own error
		return false
	case 1:
		_ = pipe.Process(ctx, parts[0])
		_, _ = pipe.Exec(ctx)
		return false
	}
	whole := parts.command(ctx, "evalsha", jointScript.sha)
	_ = pipe.Process(ctx, whole)
	_, _ = pipe.Exec(ctx)
	if unknownScript(whole.Err()) {
		whole = parts.command(ctx, "eval", jointScript.source)
		_ = r.Process(ctx, whole)
	}
	if !notExecuted(whole.Err()) {
		parts.settle(whole)
		return false
	}
	pipe = r.Pipeline()
	for _, part := range parts {
		_ = pipe.Process(ctx, part)
	}
	_, _ = pipe.Exec(ctx)
	return true
}

// notExecuted tells whether err is the server's refusal to run a script at all.
// Errors of its commands are part of its reply, so another one can only come from
// the middle of it.
func notExecuted(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && !strings.Contains(reply.Error(), "running script") && !strings.Contains(reply.Error(), "user_script")
}

// refusal is an error reply that came as text.
type refusal string

func (r refusal) Error() string { return string(r) }

// RedisError makes it a [redis.Error].
func (r refusal) RedisError() {}

// joint is the parts of one script.
type joint []once

// joinable tells whether the joint script can do what cmd does.
func (cmd once) joinable() bool {
	args := cmd.Args() // verb, script, number of keys, keys and arguments
	return args[1] == releaseScript.sha || args[1] == acquireScript.sha && args[2] == 1
}

// command returns the one command in place of the parts.
func (j joint) command(ctx context.Context, verb string, script any) once {
	const key = 3
	words := make([]any, 3, 3+4*len(j))
	words[0], words[1], words[2] = verb, script, len(j)
	for _, part := range j {
		words = append(words, part.Args()[key])
	}
	for _, part := range j {
		if words = append(words, part.Args()[key+1:]...); part.Args()[1] == acquireScript.sha {
			words = append(words, "")
		}
	}
	return newOnce(ctx, words)
}

// settle gives each part its answer.
func (j joint) settle(whole once) {
	err := whole.Err()
	replies, ok := whole.Val().([]any)
	if err == nil && (!ok || len(replies) != len(j)) {
		err = fmt.Errorf("lua: unexpected reply to the %s script: %v", jointScript.name, whole.Val())
	}
	for i, part := range j {
		if err != nil {
			part.SetErr(err)
		} else if text, ok := replies[i].(string); ok {
			part.SetErr(refusal(text))
		} else {
			part.SetVal(replies[i])
		}
	}
}
