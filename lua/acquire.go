package lua

import (
	"context"
	_ "embed"
	"time"
)

// CounterTTL is how long Redis keeps a fencing counter after it has given out a token. While the counter
// exists, tokens increase even if the clock of the server is set back. After the counter has expired, tokens
// increase only if the clock has not been set back.
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

// Reply is the answer to a request for a lock.
type Reply struct {
	Acquired bool

	// Of a grant.
	Token int64     // fencing token, 0 without Counter
	Spare int64     // number of tokens reserved after Token, which no other grant gets
	Sent  time.Time // only with Owner: when the request that acquired the lock was sent, instead of the time of this attempt
	Owner string    // if set, the owner of the grant, instead of the requesting owner; scripts set neither Owner nor Sent

	// Of a refusal.
	TTL      time.Duration // the rest of the holder's lease; negative if the lease has no end
	Holder   string        // the present owner, if the kind of lock returns it
	Writer   bool          // true if readers hold the lock, and only a waiting writer keeps this reader out
	Place    Place         // the place of the refused owner in the queue
	Leftover bool          // true if the refused request has left a ticket, which a release removes
	AskIn    time.Duration // if set, the longest time until the next request; scripts do not set it
}

// Acquire acquires a free lock for g.Owner, even if other clients are queued. If g.Owner already holds the
// lock, because an earlier request was executed and its reply was lost, Acquire succeeds, gives a new token,
// and extends the lease to at least the given length. spare is the number of tokens to reserve in addition to
// the token of the owner. Acquire takes one round trip, and two if the server does not know the script yet.
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
