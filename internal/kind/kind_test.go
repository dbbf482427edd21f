package kind

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.Dials) }

var (
	_ Kind     = (*Plain)(nil)
	_ Joinable = (*Plain)(nil)
	_ Joinable = (*Replicated)(nil)
	_ Kind     = (*Replicated)(nil)
	_ Kind     = (*ReadWrite)(nil)
	_ Kind     = (*Quorum)(nil)
)

func TestClassify(t *testing.T) {
	for name, tt := range map[string]struct {
		err   error
		want  request.Outcome
		final bool
	}{
		"nil":                    {nil, request.Answered, true},
		"not the owner":          {lua.ErrNotOwner, request.Answered, true},
		"another kind's key":     {fmt.Errorf("why: %w", &lua.ConflictError{Key: "a", Type: "list"}), request.Answered, true},
		"too few replicas":       {&NotReplicated{Want: 2, Got: 1}, request.Answered, true},
		"a minority":             {&minorityError{outcome: request.NotExecuted}, request.NotExecuted, false},
		"a minority, for good":   {&minorityError{outcome: request.Unknown, final: true}, request.Unknown, true},
		"one server twice":       {ErrSameServer, request.NotExecuted, true},
		"no answer":              {context.DeadlineExceeded, request.Unknown, false},
		"the client was closed":  {redis.ErrClosed, request.NotExecuted, true},
		"no connection was free": {redis.ErrPoolTimeout, request.NotExecuted, false},
	} {
		t.Run(name, func(t *testing.T) {
			o, final := Classify(tt.err)
			require.Equal(t, tt.want, o)
			require.Equal(t, tt.final, final)
		})
	}
}

// An ordinary client cannot follow a cluster's redirection, whether a request was for one server or
// for a majority; a cluster's client may, when it has looked at the map.
func TestClassifyRedirections(t *testing.T) {
	alone := &Server{RDB: redis.NewClient(&redis.Options{})}
	cluster := &Server{RDB: redis.NewClusterClient(&redis.ClusterOptions{})}
	defer func() { require.NoError(t, alone.RDB.Close()); require.NoError(t, cluster.RDB.Close()) }()
	for reply, final := range map[string]bool{"MOVED 1 127.0.0.1:1": true, "ASK 1 127.0.0.1:1": true, "LOADING": false} {
		for s, may := range map[*Server]bool{alone: true, cluster: false} {
			o, f := s.Classify(refusal(reply))
			require.Equal(t, request.NotExecuted, o)
			require.Equal(t, final && may, f, reply)
		}
	}
	q := NewQuorum([]*Server{alone, alone, alone}, "a", false, time.Minute)
	for n, node := range q.nodes {
		v := cast(t.Context(), q, node, func(context.Context, *Plain) (int, error) { return 0, refusal("MOVED 1 127.0.0.1:1") })
		require.True(t, v.final, n)
	}
}

type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// Keys tell locks of one client apart that must not nest in one another.
func TestKeys(t *testing.T) {
	s, other := &Server{ID: "a"}, &Server{ID: "b"}
	require.Equal(t, "name", NewPlain(s, "name", false).Key())
	require.Equal(t, "name", NewFair(s, "name", true).Key())
	rw := NewReadWrite(s, "name", false, true).Key()
	require.NotEqual(t, "name", rw)
	require.Equal(t, rw, NewReadWrite(s, "name", true, false).Key(), "a writer's context lets the reader in")
	quorum := NewQuorum([]*Server{s, other, {ID: "c"}}, "name", false, 0).Key()
	require.NotContains(t, []string{"name", rw}, quorum)
	require.NotEqual(t, quorum, NewQuorum([]*Server{s, other, {ID: "d"}}, "name", false, 0).Key())
}

// A redirection names a node in the form of the server, which is not always that of an address.
func TestEndpoint(t *testing.T) {
	for addr, want := range map[string]string{
		"10.0.0.2:7000": "10.0.0.2:7000", "node.example:7000": "node.example:7000",
		"::1:7000": "[::1]:7000", "[::1]:7000": "[::1]:7000", "fe80::1:2:7000": "[fe80::1:2]:7000",
		":7000": "10.0.0.1:7000", "?:7000": "10.0.0.1:7000",
	} {
		require.Equal(t, want, endpoint(addr, "10.0.0.1:6379"), addr)
	}
	require.Equal(t, "[::1]:7000", endpoint(":7000", "[::1]:6379"))
}

// The client of another node has the time-outs that its user has set.
func TestLikeThose(t *testing.T) {
	for _, d := range []time.Duration{-2, -1, 0, time.Second} {
		first := redis.NewClient(&redis.Options{ReadTimeout: d, WriteTimeout: d, Username: "u"})
		second := redis.NewClient(likeThose(first.Options()))
		require.Equal(t, first.Options().ReadTimeout, second.Options().ReadTimeout, d)
		require.Equal(t, first.Options().WriteTimeout, second.Options().WriteTimeout, d)
		require.Equal(t, "u", second.Options().Username)
		require.Zero(t, second.Options().MaxRetries)
		require.NoError(t, first.Close())
		require.NoError(t, second.Close())
	}
}
