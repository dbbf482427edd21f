package kind

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/lua"
)

// NotReplicated is the error of a grant acknowledged by too few replicas. The grant must be
// released.
type NotReplicated struct {
	Want, Got int
	Err       error // why the number is unknown, if so; Got is 0 then
}

func (e *NotReplicated) Error() string {
	return fmt.Sprintf("%d of %d replicas have acknowledged", e.Got, e.Want)
}

// Unwrap returns the reason for an unknown number.
func (e *NotReplicated) Unwrap() error { return e.Err }

// Replicated is a plain lock whose grants must be acknowledged by a number of replicas within a
// time-out.
type Replicated struct {
	*Plain
	Want    int
	Timeout time.Duration
}

// Gathers is false for requests to acquire: they wait for the replicas' answer.
func (p *Replicated) Gathers(acquire bool) bool { return !acquire && p.Plain.Gathers(acquire) }

// Acquire asks how many replicas have the grant in the same round trip. Attempts that are made at
// the same time ask together.
func (p *Replicated) Acquire(ctx context.Context, r lua.Runner, owner string, lease time.Duration, o Options) (lua.Reply, error) {
	wait := p.wait()
	a, err := p.Plain.Acquire(ctx, wait, owner, lease, o)
	if err != nil || !a.Acquired {
		return a, err
	}
	if err := p.enough(wait); err != nil {
		// It is not released here: the attempt may be given up meanwhile and repeated for the same
		// owner, and a release that comes late would take what the repetition was granted.
		return lua.Reply{Leftover: true}, err
	}
	return a, nil
}

// Acknowledged makes the request run, about keys in the slot of the lock, and asks in the same round
// trip how many replicas have what the request has written: [NotReplicated] if they are too few.
func (p *Replicated) Acknowledged(run func(lua.Runner) error) error {
	wait := p.wait()
	if err := run(wait); err != nil {
		return err
	}
	return p.enough(wait)
}

func (p *Replicated) wait() *withTrailer {
	return &withTrailer{server: p.server, key: p.grant.Key, trailer: acknowledged(p.Want, p.Timeout)}
}

func (p *Replicated) enough(wait *withTrailer) error {
	got, err := wait.last.(*redis.IntCmd).Result()
	if err == nil && got >= int64(p.Want) {
		return nil
	}
	return &NotReplicated{Want: p.Want, Got: int(got), Err: err}
}
