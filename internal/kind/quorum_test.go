package kind

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// answers is a server that answers each script after d: with done, or with err.
type answers struct {
	lua.Runner
	d   time.Duration
	err error
}

func (a answers) Process(_ context.Context, cmd redis.Cmder) error {
	time.Sleep(a.d)
	cmd.(interface{ SetVal(any) }).SetVal(int64(1))
	return a.err
}

// What a server has left is seen to in the background once a majority has released. Until
// then the caller asks all of them again, and the two must not keep each other going.
func TestFakeTimeQuorumReleaseSeesToTheRest(t *testing.T) {
	silent := answers{d: time.Minute, err: request.ErrNoAnswer}
	gone := answers{err: request.ErrNoAnswer}
	for name, tt := range map[string]struct {
		servers [3]answers
		want    []string
		done    bool
	}{
		"all answer":               {done: true},
		"one is silent":            {[3]answers{2: silent}, []string{"c"}, true},
		"one cannot be reached":    {[3]answers{1: gone}, []string{"b"}, true},
		"two are silent":           {servers: [3]answers{1: silent, 2: silent}},
		"two cannot be reached":    {servers: [3]answers{0: gone, 2: gone}},
		"one of each":              {servers: [3]answers{0: gone, 1: silent}},
		"one answers in the bound": {[3]answers{1: gone, 2: {d: 100 * time.Millisecond}}, []string{"b"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex // guards swept
				var swept []string
				var servers []*Server
				for n, id := range []string{"a", "b", "c"} {
					servers = append(servers, &Server{
						ID: id, Scripts: tt.servers[n], Background: func(f func()) { go f() }, Channels: NewChannels(nil, id, nil, ShardingOff),
						Sweep: func(k Kind, owner string, _ time.Duration, _ bool) {
							mu.Lock()
							defer mu.Unlock()
							assert.Equal(t, "owner", owner)
							swept = append(swept, k.(*Plain).server.ID)
						},
					})
				}
				q := NewQuorum(servers, "name", false, 30*time.Second)
				_, err := q.Release(t.Context(), nil, "owner", lua.Ending{})
				require.Equal(t, tt.done, err == nil, err)
				time.Sleep(time.Hour) // and the answers that nobody waits for come in
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				require.Equal(t, tt.want, swept)
			})
		})
	}
}
