package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/rlocktest"
)

// Each order counts, whatever the name of the user has in it, and users do not wait for each other.
func TestShow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, out := rlocktest.NewServer(t), new(strings.Builder)
		require.NoError(t, show(t.Context(), out, func() *redis.Client { return server.Client() }))
		require.Equal(t, 5, strings.Count(out.String(), " 10 orders\n"), out)
		require.Contains(t, out.String(), "at most 1 requests of one user at a time, and 5 of all users")
	})
}

func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := rlocktest.NewServer(t)
		orders := &table{orders: make(map[string]int), busy: make(map[string]int)}
		handler := newHandler(server.Locks(nil), orders)
		post := func(user string) int {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/users/"+user+"/orders", nil))
			return w.Code
		}
		server.TakeOver(lockName("alice"), time.Minute)
		start := time.Now()
		require.Equal(t, http.StatusConflict, post("alice"))
		require.Equal(t, 2*time.Second, time.Since(start).Round(100*time.Millisecond))
		require.Equal(t, http.StatusOK, post("bob"))
		server.Refuse()
		require.Equal(t, http.StatusServiceUnavailable, post("bob"))
		require.Zero(t, orders.orders["alice"])
	})
}

// What a user may be called is a name that a lock may have, and no two users share one.
func TestLockNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, seen := rlocktest.NewServer(t).Locks(nil), make(map[string]bool)
		for _, user := range []string{"", "{", "}", "{}", "{}a", "}{", "{a}", "a b", "a+b", "a%20b", "\x00", "ä", "\xff", strings.Repeat("{", 1000)} {
			name := lockName(user)
			require.False(t, seen[name], name)
			seen[name] = true
			require.NoError(t, locks.NewLock(name).TryDo(t.Context(), func(context.Context) error { return nil }), user)
		}
	})
}
