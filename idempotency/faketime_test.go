package idempotency_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/idempotency"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
	"github.com/go-rlock/rlock/rlocktest"
)

// lines is what a client has logged.
type lines struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(what string) int {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

// bubble calls test with a server in fake time, the handler h behind a guard, and the log of the guard's client.
func bubble(t *testing.T, h func(*rlocktest.Server, http.ResponseWriter), test func(*testing.T, *rlocktest.Server, http.Handler, *lines)) {
	redistest.Bubble(t, func(t *testing.T) {
		server, log := rlocktest.NewServer(t), new(lines)
		locks := server.Locks(&rlock.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
		guard := idempotency.New(locks, idempotency.Options{Scope: func(*http.Request) string { return "alice" }})
		test(t, server, guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { h(server, w) })), log)
	})
}

// ask sends a request whose client waits for at most a second if it is hasty.
func ask(t *testing.T, h http.Handler, key string, hasty bool) int {
	ctx := t.Context()
	if hasty {
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		ctx = short
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/payments", nil)
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// While Redis does not answer, the answer of the handler is held back for 5 s. It is stored later if that is possible.
func TestAnswerWhileRedisIsAway(t *testing.T) {
	for status, again := range map[int]int{http.StatusCreated: http.StatusCreated, http.StatusInternalServerError: http.StatusInternalServerError} {
		hang := func(s *rlocktest.Server, w http.ResponseWriter) { s.Hang(); w.WriteHeader(status) }
		bubble(t, hang, func(t *testing.T, server *rlocktest.Server, h http.Handler, log *lines) {
			began := time.Now()
			require.Equal(t, status, ask(t, h, "short", false))
			require.Equal(t, 5*time.Second, time.Since(began))
			server.Heal()
			time.Sleep(10 * time.Second)
			require.Equal(t, again, ask(t, h, "short", false))
			server.Heal()
			require.Zero(t, log.count("was not stored"))

			require.Equal(t, status, ask(t, h, "long", false))
			time.Sleep(5 * time.Minute)
			require.Equal(t, 1, log.count("was not stored"))
			server.Heal()
			require.Equal(t, http.StatusConflict, ask(t, h, "long", false))
		})
	}
}

// What the client of a request cannot learn is in the log, once a minute for each cause.
func TestLog(t *testing.T) {
	nothing := func(*rlocktest.Server, http.ResponseWriter) {}
	bubble(t, nothing, func(t *testing.T, server *rlocktest.Server, h http.Handler, log *lines) {
		require.Equal(t, http.StatusOK, ask(t, h, "1", true))
		server.Hang()
		for _, key := range []string{"2", "3", "4"} {
			require.Equal(t, http.StatusServiceUnavailable, ask(t, h, key, true))
		}
		require.Equal(t, 1, log.count("was refused"))
		require.Equal(t, 1, log.count("unavailable"), "the cause")
		time.Sleep(time.Minute)
		require.Equal(t, http.StatusServiceUnavailable, ask(t, h, "5", true))
		require.Equal(t, 2, log.count("was refused"))
		server.Heal()
	})
}
