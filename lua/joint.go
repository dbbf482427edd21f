package lua

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Send sends commands in one pipeline; each has its own outcome. Those that acquire
// a lock without tokens, and those that release one, travel as one script if there
// are several and joined is set: that costs the server half as much. They must not
// depend on each other, and the server must be no cluster.
//
// A server may refuse that script and yet not all of its parts, for want of the
// right to one key, say. Then they are sent one by one, and refused is true.
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
	if len(parts) < 2 {
		for _, part := range parts {
			_ = pipe.Process(ctx, part)
		}
		_, _ = pipe.Exec(ctx) // each command has its own error
		return false
	}
	whole := parts.command(ctx, "evalsha", jointScript.sha)
	_ = pipe.Process(ctx, whole)
	_, err := pipe.Exec(ctx)
	if unknownScript(whole.Err()) {
		whole = parts.command(ctx, "eval", jointScript.source)
		err = r.Process(ctx, whole)
	}
	if whole.Err() != nil || whole.Val() != nil { // err may be that of another command
		err = whole.Err()
	}
	if !ofCompany(err) {
		parts.settle(whole, err)
		return false
	}
	pipe = r.Pipeline()
	for _, part := range parts {
		_ = pipe.Process(ctx, part)
	}
	_, _ = pipe.Exec(ctx)
	return true
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
	return args[1] == releaseScript.sha && args[len(args)-1] != "" || args[1] == acquireScript.sha && args[2] == 1
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

// settle gives each part its answer, err if there is none.
func (j joint) settle(whole once, err error) {
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
