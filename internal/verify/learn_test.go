package verify

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// lessons are the hashes of the scripts by what they do, found out once by
// watching what a lock sends: the tests know the wire as little as a user does.
var lessons struct {
	once   sync.Once
	hashes map[string]string
}

// learnt matches the calls of a script.
func learnt(w *world, script string) netfault.Match {
	hash := lessons.hashes[script]
	require.NotEmpty(w, hash)
	return func(args []string) bool {
		if len(args) < 2 || !scripts(args) {
			return false
		}
		sum := sha1.Sum([]byte(args[1]))
		return args[1] == hash || hex.EncodeToString(sum[:]) == hash
	}
}

func learn(t *testing.T) map[string]string {
	rdb := redistest.Start(t).Client(t)
	spy := &spy{}
	rdb.AddHook(spy)
	renewed := make(chan struct{}, 100)
	c, err := rlock.New(rdb, &rlock.Options{Trace: rlock.Trace{Renewed: func(string, time.Time) { renewed <- struct{}{} }}})
	require.NoError(t, err)
	hashes := make(map[string]string)

	mu := c.NewLock("learnt")
	ctx, outer, err := mu.Lock(context.Background())
	require.NoError(t, err)
	hashes["acquire"] = spy.newest()
	ctx, inner, err := mu.Lock(ctx)
	require.NoError(t, err)
	hashes["count"] = spy.newest()
	require.NoError(t, inner.Unlock(ctx))
	require.NoError(t, outer.Unlock(ctx))
	hashes["release"] = spy.newest()
	ctx, hold, err := c.NewLock("learnt", rlock.WithLeaseTime(300*ms)).Lock(context.Background())
	require.NoError(t, err)
	<-renewed
	hashes["renew"] = spy.newest()
	require.NoError(t, hold.Unlock(ctx))
	require.NoError(t, c.Close(context.Background()))
	for a, x := range hashes {
		for b, y := range hashes {
			require.False(t, a != b && x == y, "%s and %s look the same", a, b)
		}
	}
	return hashes
}

// spy is a hook that remembers the newest script called by hash.
type spy struct {
	mu   sync.Mutex // guards hash
	hash string
}

func (s *spy) newest() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hash
}

func (s *spy) note(cmds ...redis.Cmder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cmd := range cmds {
		if cmd.Name() == "evalsha" {
			s.hash = cmd.Args()[1].(string)
		}
	}
}

func (s *spy) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *spy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.note(cmd)
		return next(ctx, cmd)
	}
}

func (s *spy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		s.note(cmds...)
		return next(ctx, cmds)
	}
}
