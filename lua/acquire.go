package lua

import (
	"context"
	_ "embed"
	"time"
)

// CounterTTL is the lifetime of a fencing counter after the newest token. As long as the
// counter exists, tokens grow even if the server's clock is set back; without the counter
// the clock alone orders tokens.
const CounterTTL = 30 * 24 * time.Hour

//go:embed kind.lua
var kindSource string

//go:embed token.lua
var tokenSource string

//go:embed grant.lua
var grantSource string

//go:embed recall.lua
var recallSource string

//go:embed try_fast.lua
var tryFastSource string

//go:embed try.lua
var trySource string

// granting is the beginning of all granting scripts.
func granting() string { return kindSource + tokenSource + grantSource }

var (
	acquireScript       = newJoint("acquire", tryFastSource, granting()+recallSource+trySource, "try(KEYS[k], nil, ARGV[a], ARGV[a+1])", 1, 2, 1)
	acquireFencedScript = newJoint("acquire", "", granting()+recallSource+trySource, "try(KEYS[k], KEYS[k+1], ARGV[a], ARGV[a+1], ARGV[a+2])", 2, 3, 1)
)

// Reply is the answer to an attempt to acquire, from the script to the caller.
type Reply struct {
	Acquired bool

	// Of a grant.
	Token int64     // fencing token, 0 without Counter
	Spare int64     // tokens reserved behind Token: no other grant gets them
	Sent  time.Time // with Owner, the sending time of the grant, in place of the attempt's
	Owner string    // if set, the owner of the grant, in place of the asking owner; a script leaves Owner empty, and Sent

	// Of a refusal.
	TTL      time.Duration // the rest of the holder's lease; negative if the lease has no end
	Holder   string        // the present owner, if the kind tells
	Writer   bool          // only a waiting writer keeps the reader out, for the rest of its intent, TTL
	Place    Place         // of the refused owner in the queue
	Leftover bool          // the refusal has left a ticket or an intent, which a release removes
	AskIn    time.Duration // if set, ask again after so long at most; a script leaves AskIn zero
}

// Acquire takes a free lock for g.Owner, past any queue. If g.Owner holds the lock already,
// because an earlier delivery was executed and the reply lost, Acquire succeeds: the lease is
// at least the given lease again, and the token is new. spare is the number of tokens to
// reserve behind the owner's token. Acquire costs a single round trip, and a second if the
// server does not know the script yet.
func Acquire(ctx context.Context, r Runner, g Grant, lease time.Duration, spare int64) (Reply, error) {
	var answer reply
	var err error
	fenced := g.Counter != ""
	if fenced {
		answer, err = acquireFencedScript.run(ctx, r, []string{g.Key, g.Counter}, millis(lease), g.Owner, spare)
	} else {
		answer, err = acquireScript.run(ctx, r, []string{g.Key}, millis(lease), g.Owner)
	}
	if err != nil {
		return Reply{}, err
	}
	return answer.granted(fenced)
}

// millis is a lease as an argument: at least 1, as PEXPIRE of less deletes the key.
func millis(lease time.Duration) int64 { return max(lease.Milliseconds(), 1) }
