package lua

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"strings"
)

//go:embed release_fast.lua
var releaseFastSource string

//go:embed release.lua
var releaseSource string

//go:embed force.lua
var forceSource string

var (
	releaseScript       = newJoint("release", releaseFastSource, queueing()+releaseSource, "release(KEYS[k], KEYS[k+1], nil, unpack(ARGV, a, a+2))", 2, 3, 0)
	releaseFencedScript = newJoint("release", "", queueing()+releaseSource, "release(KEYS[k], KEYS[k+1], KEYS[k+2], unpack(ARGV, a, a+4))", 3, 5, 0)
	releaseAloneScript  = newJoint("release", "", queueing()+releaseSource, "release(KEYS[k], nil, nil, unpack(ARGV, a, a+1))", 1, 2, 0)

	forceScript = newScript("force", queueing()+forceSource, 0)
)

// Ending says what a grant leaves behind. The zero value is that of one without
// tickets and tokens.
type Ending struct {
	Tickets        []string // owners whose tickets are taken out as well
	Used, Reserved int64    // with Counter: the newest token used, and the last one that is reserved
	Silent         bool     // nothing is announced; only for a lock without queue
	Evict          bool     // g.Owner's client does not ask itself: its next waiter is told like any other
}

// Released is the answer to Release.
type Released struct {
	PublishErr error  // why the server refused to announce it; the lock is free all the same
	Message    string // to an owner of g.Owner's client, which must bring it there: see [ReadMessage]
}

// Release ends the grant of g.Owner, whatever its hold count, and passes the lock on:
// to the first in the queue that can hear of it, or to everybody. ErrNotOwner: g.Owner
// did not hold it; an earlier delivery may have released it, and granted it to the
// owner in Message.
func Release(ctx context.Context, r Runner, g Grant, e Ending) (Released, error) {
	commands := g.ChannelKind.publish()
	var answer reply
	var err error
	switch {
	case g.Queue == "":
		if e.Silent {
			commands = ""
		}
		answer, err = releaseAloneScript.run(ctx, r, []string{g.Key}, g.Owner, commands)
	case e.Evict:
		answer, err = g.force(ctx, r, g.Owner)
	case g.Counter == "":
		answer, err = releaseScript.run(ctx, r, []string{g.Key, g.Queue}, g.Owner, commands, strings.Join(e.Tickets, " "))
	default:
		answer, err = releaseFencedScript.run(ctx, r, []string{g.Key, g.Queue, g.Counter}, g.Owner, commands,
			strings.Join(e.Tickets, " "), e.Used, e.Reserved)
	}
	switch {
	case err != nil:
		return Released{}, err
	case !answer.done:
		return Released{Message: answer.text(1)}, ErrNotOwner
	}
	return Released{PublishErr: g.refusal(answer.text(1)), Message: answer.text(2)}, nil
}

// refusal is the error of a server that does not announce something.
func (g Grant) refusal(text string) error {
	if text == "" {
		return nil
	}
	return fmt.Errorf("channel %s: %s", cmp.Or(g.Channel, UnlockChannel(g.Key)), text)
}

// ForceRelease removes the lock, whoever holds it, and announces it. It reports
// whether there was one. Do not repeat it after an unknown outcome: it would
// remove the next grant as well.
func ForceRelease(ctx context.Context, r Runner, g Grant) (bool, error) {
	answer, err := g.force(ctx, r)
	return answer.done, err
}

// force removes the lock, whoever holds it, or one owner's.
func (g Grant) force(ctx context.Context, r Runner, owner ...any) (reply, error) {
	keys := []string{g.Key}
	if g.Queue != "" {
		keys = append(keys, g.Queue)
		if g.Counter != "" {
			keys = append(keys, g.Counter)
		}
	}
	return forceScript.run(ctx, r, keys, append([]any{g.ChannelKind.publish()}, owner...)...)
}
