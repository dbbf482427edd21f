package bench

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// The floor: what a round trip, and what two scripts cost without any lock
// around them. They are contenders, so that they run exactly as the others do.
const (
	pingName       = "PING"
	scriptsName    = "2 scripts"
	pacedName      = "2 scripts, paced"
	everywhereName = "2 scripts, all servers"
)

// floors returns those of a kind of scenario on so many servers.
func floors(kind Kind, servers int) []Contender {
	all := []Contender{{Name: pingName, New: newPing, floor: true}}
	if kind == Held { // the PINGs beside it, without any lock
		return all
	}
	if kind == Wakeup {
		all = append(all, Contender{Name: pacedName, New: newScripts, floor: true})
	}
	all = append(all, Contender{Name: scriptsName, New: newScripts, floor: true})
	if servers > 1 && slices.Contains(quorumKinds, kind) {
		all = append(all, Contender{Name: everywhereName, New: newEverywhere, Quorum: true, floor: true})
	}
	return all
}

type ping struct{ rdb redis.UniversalClient }

func newPing(t Target) (Locker, error) { return ping{t.Server.dial()}, nil }

func (p ping) Lock(ctx context.Context, _ string) (context.Context, func(context.Context) error, error) {
	return ctx, func(context.Context) error { return nil }, p.rdb.Ping(ctx).Err()
}

func (p ping) Close() error { return p.rdb.Close() }

var (
	setScript    = redis.NewScriptServerSHA(`return redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2])`)
	deleteScript = redis.NewScriptServerSHA(`if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`)
)

var errFloor = errors.New("the bare scripts found a key that somebody else uses")

type scripts struct {
	rdb   redis.UniversalClient
	lease int64
	n     *atomic.Int64
}

func newScripts(t Target) (Locker, error) {
	return scripts{t.Server.dial(), t.Lease.Milliseconds(), new(atomic.Int64)}, nil
}

// Lock does not wait: each goroutine of the floor has a name of its own.
func (s scripts) Lock(ctx context.Context, name string) (context.Context, func(context.Context) error, error) {
	keys, value := []string{name}, strconv.FormatInt(s.n.Add(1), 10)
	switch err := setScript.Run(ctx, s.rdb, keys, value, s.lease).Err(); {
	case err == redis.Nil:
		return ctx, nil, errFloor
	case err != nil:
		return ctx, nil, err
	}
	return ctx, func(ctx context.Context) error {
		n, err := deleteScript.Run(ctx, s.rdb, keys, value).Int()
		if err == nil && n != 1 {
			err = errFloor
		}
		return err
	}, nil
}

func (s scripts) Close() error { return s.rdb.Close() }
