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
	releaseScript       = newJoint("release", releaseFastSource, queueing()+releaseSource, "release(KEYS[k], KEYS[k+1], nil, freed, unpack(ARGV, a, a+2))", 2, 3, 0)
	releaseFencedScript = newJoint("release", "", queueing()+releaseSource, "release(KEYS[k], KEYS[k+1], KEYS[k+2], nil, unpack(ARGV, a, a+4))", 3, 5, 0)
	releaseAloneScript  = newJoint("release", "", queueing()+releaseSource, "release(KEYS[k], nil, nil, nil, unpack(ARGV, a, a+1))", 1, 2, 0)

	forceScript = newScript("force", queueing()+nothingSource+forceSource, 0)
)

// Ending says what [Release] must remove or record in addition to the owner. The zero value is for a grant
// without tickets and tokens.
type Ending struct {
	Tickets        []string // owners whose tickets are removed as well
	Used, Reserved int64    // if the lock has a Counter: the latest token that was used, and the last token that was reserved
	Evict          bool     // true if the caller is not the client of g.Owner, so that the next waiter gets a message even if it belongs to that client
}

// Released is the answer to [Release].
type Released struct {
	PublishErr error  // the reason why the server refused to publish the release; the lock is released all the same
	Message    string // a message for a waiter of g.Owner's client, which the caller must deliver, see [ReadMessages]
	More       bool   // true if more owners may be able to acquire a read/write lock; another release, of any owner, grants it to them
}

// Release ends the grant of g.Owner, whatever its hold count, and passes the lock on to the first subscribed
// waiter in the queue. If no waiter is subscribed, the release is published on the unlock channel. ErrNotOwner
// means that g.Owner did not hold the lock. After ErrNotOwner, an earlier delivery of the same request may have
// released the lock, and may have granted it to the owner that Message names.
func Release(ctx context.Context, r Runner, g Grant, e Ending) (Released, error) {
	commands := g.ChannelKind.Publish()
	var answer reply
	var err error
	switch {
	case g.Queue == "":
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

// refusal is the error of a refused announcement.
func (g Grant) refusal(text string) error {
	if text == "" {
		return nil
	}
	return fmt.Errorf("channel %s: %s", cmp.Or(g.Channel, UnlockChannel(g.Key)), text)
}

// ForceRelease removes the lock, whichever owner holds it, announces the release, and reports whether there was
// a lock. Do not repeat ForceRelease if its outcome is not known, because a repeated request could remove the
// lock of the next owner as well.
func ForceRelease(ctx context.Context, r Runner, g Grant) (bool, error) {
	answer, err := g.force(ctx, r)
	return answer.done, err
}

// force removes the lock of any owner, or of a given owner only.
func (g Grant) force(ctx context.Context, r Runner, owner ...any) (reply, error) {
	keys := []string{g.Key}
	if g.Queue != "" {
		keys = append(keys, g.Queue)
		if g.Counter != "" {
			keys = append(keys, g.Counter)
		}
	}
	return forceScript.run(ctx, r, keys, append([]any{g.ChannelKind.Publish()}, owner...)...)
}
