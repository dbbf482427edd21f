package lua

import (
	"context"
	_ "embed"
	"time"
)

// CounterTTL is how long a fencing counter outlives its newest token. As long
// as it exists, tokens grow even if the server's clock is set back; once it is
// gone the clock alone orders them.
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

// granting is what the scripts that grant begin with.
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
	Sent  time.Time // if set, when the lease was asked for, in place of the time of the attempt; no script sets it
	Owner string    // if set, the owner of the grant, in place of the one that asked; no script sets it

	// Of a refusal.
	TTL      time.Duration // the rest of the holder's lease; negative if the lease has no end
	Holder   string        // the owner that holds the lock, if the kind tells
	Writer   bool          // only a waiting writer keeps the reader out, for the rest of its intent, TTL
	Place    Place         // of the refused owner in the queue
	Leftover bool          // the refusal has left a ticket or an intent, which a release removes
	AskIn    time.Duration // if set, ask again after so long at most; no script sets it
}

// Acquire takes the lock for g.Owner if it is free, whoever queues for it. If g.Owner
// holds it already, because an earlier delivery was executed and its reply lost,
// Acquire succeeds and the lease is at least the given one again; it then gets a
// token of its own. spare is how many tokens to reserve behind that of the owner. It
// costs one round trip, two if the server does not know the script yet.
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

// millis is a lease as it is sent: at least 1, as PEXPIRE deletes a key that it is
// told to keep for less.
func millis(lease time.Duration) int64 { return max(lease.Milliseconds(), 1) }
