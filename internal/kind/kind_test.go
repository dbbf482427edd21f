package kind

import (
	"context"
	"fmt"
	"testing"

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
