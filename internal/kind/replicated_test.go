package kind

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// How many replicas have a grant is asked behind the script, on the same connection. Too few are no
// grant, and something is left that has to be released; the answer to a refusal does not matter.
func TestFakeTimeGrantIsAcknowledgedByReplicas(t *testing.T) {
	errCut := errors.New("EOF")
	granted, refused := any(int64(1)), any([]any{int64(0), int64(7000), "you:1"})
	for name, tt := range map[string]struct {
		script, wait any
		acquired     bool
		err          error
	}{
		"enough":                {granted, int64(2), true, nil},
		"more":                  {granted, int64(3), true, nil},
		"too few":               {granted, int64(1), false, &NotReplicated{Want: 2, Got: 1}},
		"none":                  {granted, int64(0), false, &NotReplicated{Want: 2}},
		"it is not known":       {granted, errCut, false, &NotReplicated{Want: 2, Err: errCut}},
		"refused":               {refused, int64(0), false, nil},
		"refused, and no WAIT":  {refused, errCut, false, nil},
		"the script has failed": {errLoading, int64(2), false, errLoading},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFake(t, "me")
				f.answers(func(_ context.Context, words []any) any {
					if words[0] == "wait" {
						return tt.wait
					}
					return tt.script
				})
				p := &Replicated{Plain: NewQueued(f.Server, "lock", false), Want: 2, Timeout: 300 * time.Millisecond}
				require.False(t, p.Gathers(true), "it would keep others waiting")
				require.True(t, p.Gathers(false))
				a, err := p.Acquire(t.Context(), nil, "me:1", time.Minute, Options{})
				require.Equal(t, tt.err, err)
				require.Equal(t, tt.acquired, a.Acquired)
				require.Equal(t, []int{2}, f.sizes, "one pipeline")
				sent := f.commands()
				require.Equal(t, "evalsha", sent[0][0])
				require.Equal(t, []any{"wait", 2, int64(300)}, sent[1])
				short, ok := err.(*NotReplicated)
				require.Equal(t, ok, a.Leftover)
				if ok {
					require.Equal(t, short.Err, errors.Unwrap(err))
					outcome, final := Classify(err)
					require.Equal(t, request.Answered, outcome)
					require.True(t, final, "who repeats it must have released it before")
				}
				if _, refused := tt.script.([]any); refused {
					require.Equal(t, lua.Reply{TTL: 7 * time.Second, Holder: "you:1"}, a)
				}
			})
		})
	}
}

// Only a grant has to be acknowledged.
func TestFakeTimeRequestsWithoutReplicas(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFake(t, "me")
		p := &Replicated{Plain: NewQueued(f.Server, "lock", false), Want: 2, Timeout: time.Second}
		_, err := p.Release(t.Context(), f.Scripts, "me:1", lua.Ending{})
		require.NoError(t, err)
		_, err = p.SetCount(t.Context(), f.Scripts, "me:1", time.Minute, Count{Exclusive: 2})
		require.NoError(t, err)
		sent := f.commands()
		require.Len(t, sent, 2)
		for _, words := range sent {
			require.NotEqual(t, "wait", words[0])
		}
	})
}
