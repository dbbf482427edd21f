package lua_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// answering returns a client that gets the same answer to everything, whatever
// stands between it and a server. A value that is an error is an error reply.
func answering(value any) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	rdb.AddHook(redistest.Answers(func(_ context.Context, cmds ...redis.Cmder) error {
		for _, cmd := range cmds {
			if err, ok := value.(error); ok {
				cmd.SetErr(err)
			} else {
				cmd.(interface{ SetVal(any) }).SetVal(value)
			}
		}
		return nil
	}))
	return rdb
}

// ask makes each call of a lock that the answer could be for.
func ask(ctx context.Context, value any) (acquired lua.Reply, errs map[string]error) {
	rdb := answering(value)
	defer func() { _ = rdb.Close() }()
	g := fenced("me:1")
	errs = make(map[string]error)
	acquired, errs["acquire"] = lua.Acquire(ctx, rdb, g, time.Minute, 0)
	asked, err := lua.Ask(ctx, rdb, g, time.Minute, lua.Ticket{}, 0)
	asked.Place, errs["ask"] = lua.Place{}, err
	if asked != acquired {
		errs["acquire"] = fmt.Errorf("asked: %v", asked)
	}
	errs["count"] = lua.Count(ctx, rdb, g, time.Minute, 2)
	_, errs["release"] = lua.Release(ctx, rdb, g, lua.Ending{})
	errs["renew"] = lua.Renew(ctx, rdb, []lua.Renewal{{Grant: g, Lease: time.Minute}})[0]
	_, errs["confirm"] = lua.Confirm(ctx, rdb, g)
	_, errs["force"] = lua.ForceRelease(ctx, rdb, g)
	_, errs["inspect"] = lua.Inspect(ctx, rdb, g)
	return acquired, errs
}

func TestStrangeReplies(t *testing.T) {
	for _, value := range []any{
		nil,
		"OK",
		"1",
		"",
		true,
		1.0,
		int64(2),
		int64(-2),
		[]any{},
		[]any{nil},
		[]any{"1", int64(7)},
		[]any{true, int64(7)},
		[]any{int64(2), int64(7)},
		[]any{[]any{int64(1), int64(7)}},
		map[any]any{int64(1): int64(7)},
		redis.Nil,
		errors.New("ERR of some kind"),
	} {
		t.Run(fmt.Sprintf("%T %v", value, value), func(t *testing.T) {
			reply, errs := ask(t.Context(), value)
			require.Zero(t, reply)
			for call, err := range errs {
				require.Error(t, err, call)
				require.NotErrorIs(t, err, lua.ErrNotOwner, call)
			}
		})
	}
}

// An answer that breaks off, or is that of another script, is no lock.
func TestTruncatedReplies(t *testing.T) {
	for _, value := range []any{
		int64(1),
		int64(0),
		[]any{int64(1)},
		[]any{int64(0)},
		[]any{int64(1), "seven"},
		[]any{int64(1), nil},
		[]any{int64(0), nil},
	} {
		t.Run(fmt.Sprint(value), func(t *testing.T) {
			reply, errs := ask(t.Context(), value)
			require.Zero(t, reply)
			require.Error(t, errs["acquire"])
			require.Error(t, errs["inspect"])
		})
	}
}

func TestTokenOfALockWithoutTokens(t *testing.T) {
	rdb := answering([]any{int64(1), int64(7), int64(3)})
	defer func() { _ = rdb.Close() }()
	reply, err := lua.Acquire(t.Context(), rdb, grant("me:1"), time.Minute, 0)
	require.NoError(t, err)
	require.Equal(t, lua.Reply{Acquired: true}, reply)
}

// FuzzReply: whatever comes back, a lock is acquired only by {1, token}, and
// counted or renewed only by 1.
func FuzzReply(f *testing.F) {
	f.Add([]byte{4, 2, 0, 1, 0, 7}) // {1, 7}
	f.Add([]byte{4, 2, 0, 0, 0, 7}) // {0, 7}
	f.Add([]byte{4, 1, 0, 1})       // {1}
	f.Add([]byte{0, 1})             // 1
	f.Add([]byte{4, 3, 0, 255, 1, 1, 'k', 1, 1, 't'})
	f.Add([]byte{2})
	f.Fuzz(func(t *testing.T, data []byte) {
		value := decode(&data, 3)
		reply, errs := ask(t.Context(), value)

		list, _ := value.([]any)
		isStatus := func(v any) bool { return v == int64(0) || v == int64(1) }
		wellFormed := len(list) >= 2 && isStatus(list[0])
		if wellFormed {
			switch second := list[1].(type) {
			case int64:
			case string:
				_, err := strconv.ParseInt(second, 10, 64)
				wellFormed = err == nil && list[0] == int64(1)
			default:
				wellFormed = false
			}
		}
		if (errs["acquire"] == nil) != wellFormed {
			t.Errorf("acquire: %v: %v", value, errs["acquire"])
		}
		if reply.Acquired != (wellFormed && list[0] == int64(1)) {
			t.Errorf("acquire: %v: %+v", value, reply)
		}
		first := value
		if len(list) > 0 {
			first = list[0]
		}
		for _, call := range []string{"count", "renew", "confirm", "release", "force"} {
			if errs[call] == nil && !isStatus(first) || errors.Is(errs[call], lua.ErrNotOwner) && first != int64(0) {
				t.Errorf("%s: %v: %v", call, value, errs[call])
			}
		}
	})
}

// decode takes a value off data: a kind, then what belongs to it.
func decode(data *[]byte, depth int) any {
	next := func() byte {
		if len(*data) == 0 {
			return 0
		}
		b := (*data)[0]
		*data = (*data)[1:]
		return b
	}
	switch kind := next() % 7; {
	case kind == 0:
		return int64(int8(next()))
	case kind == 1:
		n := min(int(next()), len(*data))
		s := string((*data)[:n])
		*data = (*data)[n:]
		return s
	case kind == 2:
		return nil
	case kind == 3:
		return next()%2 == 1
	case kind == 4 && depth > 0:
		list := make([]any, next()%8)
		for i := range list {
			list[i] = decode(data, depth-1)
		}
		return list
	case kind == 5:
		return float64(next())
	default:
		return errors.New("ERR of some kind")
	}
}

// A key may have a TTL longer than a Duration can be.
func TestTTLBeyondADuration(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t)
	put(t, rdb, "lock", "you:1=1 10s")
	require.NoError(t, rdb.Do(t.Context(), "pexpire", "lock", "10000000000000").Err())
	r, err := lua.Acquire(t.Context(), rdb, grant("me:1"), time.Minute, 0)
	require.NoError(t, err)
	require.False(t, r.Acquired)
	require.Greater(t, r.TTL, 100*365*24*time.Hour)
}
