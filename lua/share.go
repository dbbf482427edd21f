package lua

import (
	"context"
	_ "embed"
	"time"
)

//go:embed turn.lua
var turnSource string

//go:embed share.lua
var shareSource string

//go:embed yield.lua
var yieldSource string

// sharing is what the scripts for a share of a quorum lock begin with.
func sharing() string { return granting() + announceSource + turnSource }

var (
	shareScript       = newJoint("share", "", sharing()+shareSource, "share(KEYS[k], KEYS[k+1], nil, unpack(ARGV, a, a+6))", 2, 7, 1)
	shareFencedScript = newJoint("share", "", sharing()+shareSource, "share(KEYS[k], KEYS[k+1], KEYS[k+2], unpack(ARGV, a, a+6))", 3, 7, 1)

	yieldScript = newJoint("release", "", sharing()+yieldSource, "yield(KEYS[k], KEYS[k+1], unpack(ARGV, a, a+4))", 2, 5, 0)
)

// Turn says how a client waits for its turn, which is the right to acquire a quorum lock next. The zero value
// means that the client takes no ticket (place in the queue).
type Turn struct {
	Client string // the client's id, the same on all servers; [Everybody] means that the client cannot be identified, and that it takes the lock even if another client has the turn
	Number int64  // the number of the client's tickets on the other servers; 0 if it is not known
}

// QuorumOf returns the name of the queue of a quorum lock on one server.
func QuorumOf(key string) string { return Own("rlock_quorum", key) }

// Share acquires a quorum lock on one of its servers for g.Owner, if the lock is free there and it is not the
// [Turn] of another client. If the lock is refused, t.Client gets a ticket (a place in the queue), and number
// is the number of that ticket. In all other respects, Share works like [Acquire].
func Share(ctx context.Context, r Runner, g Grant, lease time.Duration, t Turn) (a Reply, number int64, err error) {
	s, keys := &shareScript, []string{g.Key, QuorumOf(g.Key)}
	if g.Counter != "" {
		s, keys = &shareFencedScript, append(keys, g.Counter)
	}
	answer, err := s.run(ctx, r, keys, millis(lease), g.Owner, g.ChannelKind.Publish(), g.counted(), t.Client, t.Number)
	if err != nil {
		return Reply{}, 0, err
	}
	a, err = answer.granted(g.Counter != "")
	return a, answer.int(3), err
}

// counted is what the scripts of a share are told: 1 if the server knows who is subscribed.
func (g Grant) counted() int {
	if g.Uncounted {
		return 0
	}
	return 1
}

// Yield ends the grant of g.Owner on one server of a quorum lock, as [Release] does, and gives the turn, which
// is the right to acquire the lock next, to the first client in the queue. Yield also removes the ticket of
// t.Client if the number of the ticket is not greater than t.Number, or if t.Number is 0. If silent is set,
// Yield only ends the grant.
func Yield(ctx context.Context, r Runner, g Grant, t Turn, silent bool) (Released, error) {
	commands := g.ChannelKind.Publish()
	if silent {
		commands = ""
	}
	answer, err := yieldScript.run(ctx, r, []string{g.Key, QuorumOf(g.Key)}, g.Owner, commands, g.counted(), t.Client, t.Number)
	switch {
	case err != nil:
		return Released{}, err
	case !answer.done:
		return Released{}, ErrNotOwner
	}
	return Released{PublishErr: g.refusal(answer.text(1))}, nil
}
