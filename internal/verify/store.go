package verify

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// store is the resource that a lock protects: a number on a server that has no
// faults. It refuses tokens smaller than one it has seen, and knows nothing else
// of locks.
type store struct{ rdb *redis.Client }

var errStale = errors.New("a greater token was here")

// KEYS[1] resource; ARGV[1] token; ARGV[2] new value, or nothing to read it.
var storeScript = redis.NewScript(`
if tonumber(ARGV[1]) < tonumber(redis.call('hget', KEYS[1], 'token') or 0) then
    return false
end
redis.call('hset', KEYS[1], 'token', ARGV[1])
if ARGV[2] then
    redis.call('hset', KEYS[1], 'value', ARGV[2])
end
return tonumber(redis.call('hget', KEYS[1], 'value') or 0)
`)

func (s store) read(ctx context.Context, name string, token int64) (int64, error) {
	return s.run(ctx, name, token)
}

func (s store) write(ctx context.Context, name string, token, value int64) error {
	_, err := s.run(ctx, name, token, value)
	return err
}

func (s store) run(ctx context.Context, name string, args ...any) (int64, error) {
	value, err := storeScript.Run(ctx, s.rdb, []string{"store:" + name}, args...).Int64()
	if errors.Is(err, redis.Nil) {
		err = errStale
	}
	return value, err
}

func outcome(err error) result {
	switch {
	case err == nil:
		return ok
	case errors.Is(err, errStale):
		return stale
	}
	return unknown
}
