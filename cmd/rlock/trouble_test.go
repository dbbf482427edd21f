package main

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	miniserver "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

func TestTroubleIsTheLastRefusal(t *testing.T) {
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	seen := new(trouble)
	rdb.AddHook(seen)
	ctx := t.Context()
	require.ErrorIs(t, rdb.Eval(ctx, "return false", nil).Err(), redis.Nil)
	require.Error(t, rdb.EvalSha(ctx, "0123456789012345678901234567890123456789", nil).Err())
	require.NoError(t, seen.seen(), "a script that is not loaded is sent again")
	_, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Eval(ctx, "return redis.error_reply('READONLY of a script')", nil)
		pipe.Ping(ctx)
		return nil
	})
	require.ErrorContains(t, err, "READONLY")
	require.ErrorContains(t, seen.seen(), "READONLY")
	require.Error(t, rdb.Eval(ctx, "return redis.error_reply('OOM of a script')", nil).Err())
	require.ErrorContains(t, seen.seen(), "OOM", "of a single command")
	srv.Kill()
	nobody := redis.NewClient(&redis.Options{Addr: srv.Addr(), DialerRetries: 1, MaxRetries: -1})
	defer func() { require.NoError(t, nobody.Close()) }()
	nobody.AddHook(seen)
	require.Error(t, nobody.Ping(ctx).Err())
	require.ErrorContains(t, seen.seen(), "connection refused")
}

// refusal is an answer of a server.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

func TestProgressSaysWhyThereIsNoLock(t *testing.T) {
	for want, p := range map[string]struct {
		heard, secure bool
		seen          error
	}{
		"rlock: no answer from h:1/0 yet\n": {},
		"rlock: no answer from h:1/0 yet (if it is without TLS, the URL begins with redis://)\n":     {secure: true},
		"rlock: no lock from h:1/0 yet: EOF (if it expects TLS, the URL begins with rediss://)\n":    {seen: io.EOF},
		"rlock: no lock from h:1/0 yet: EOF\n":                                                       {secure: true, seen: io.EOF},
		"rlock: no lock from h:1/0 yet: READONLY replica (a replica: connect to the master)\n":       {seen: refusal("READONLY replica")},
		"rlock: no lock from h:1/0 yet: MOVED 1 h:2 (a node of a cluster: connect with --cluster)\n": {seen: refusal("MOVED 1 h:2")},
		"": {heard: true, seen: errors.New("x")},
	} {
		redistest.Bubble(t, func(t *testing.T) {
			out, err := os.CreateTemp(t.TempDir(), "")
			require.NoError(t, err)
			defer func() { require.NoError(t, out.Close()) }()
			progress := newProgress(out, false)
			s := &server{name: "h:1/0", secure: p.secure}
			stop := progress.expect(func() string { return s.missing(p.seen) })
			progress.heard.Store(p.heard)
			time.Sleep(patience)
			synctest.Wait()
			stop()
			said, err := os.ReadFile(out.Name())
			require.NoError(t, err)
			require.Equal(t, want, string(said))
		})
	}
}

// Whoever waits learns after three seconds what is wrong with the URL, not only when the
// command gives up.
func TestRunSaysWhatIsWrongWithTheURL(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t, "ours")
	_, encrypted := startTLS(t, ours)
	plain, replica := redistest.Start(t), redistest.Start(t)
	require.NoError(t, replica.Client(t).ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
	for url, want := range map[string]string{
		"redis://" + encrypted:      "the URL begins with rediss://)",
		"rediss://" + plain.Addr():  "the URL begins with redis://)",
		"redis://" + replica.Addr(): "a replica: connect to the master)",
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			r := outcome(t, url, "run", "-w", "4s", "a", "--", "echo", "ran")
			require.Equal(t, exitUnavailable, r.code, r.stderr)
			early, _, found := strings.Cut(r.stderr, "\n")
			require.True(t, found)
			require.Contains(t, early, " yet")
			require.Contains(t, early, want)
		})
	}
}

// A user with the rights of plain locks may take a read/write lock and not release it.
func TestRightsHint(t *testing.T) {
	srv := redistest.Start(t)
	require.NoError(t, srv.Client(t).Do(t.Context(), words(aclLine("u", "", "*", lockUser))...).Err())
	url := "redis://u:PASSWORD@" + srv.Addr()
	r := outcome(t, url, "run", "--exclusive", "a", "--", "true")
	require.Zero(t, r.code)
	require.Contains(t, r.stderr, "was not released")
	require.Contains(t, r.stderr, "docs/acl.md)\n")
	require.NoError(t, srv.Client(t).Do(t.Context(), words(aclLine("some", "", "app:*", lockUser))...).Err())
	some := "redis://some:PASSWORD@" + srv.Addr()
	for command, hint := range map[string]string{
		"ls":                          "(what each command and each kind of lock needs: docs/acl.md)\n",
		"run --fair -n app:b -- true": "(fair locks need rights that plain locks do without: see docs/acl.md)\n",
	} {
		r = outcome(t, some, strings.Fields(command)...)
		require.Equal(t, exitUnavailable, r.code)
		require.Contains(t, r.stderr, hint)
		require.Equal(t, 1, strings.Count(r.stderr, "docs/acl.md"), "one hint is enough")
	}
}

func TestNoRedis(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	for _, command := range []string{"run -n a -- true", "ls", "doctor"} {
		r := outcome(t, "redis://"+srv.Listener.Addr().String(), strings.Fields(command)...)
		require.NotZero(t, r.code)
		require.Contains(t, r.stdout+r.stderr, "(this is no Redis: it answers HTTP)", command)
	}
}

func TestClusterDownHint(t *testing.T) {
	require.Equal(t, " (see rlock --cluster doctor)", accessHint(refusal("CLUSTERDOWN Hash slot not served")))
}

// A command that asks once gets no connection, as the server does not answer TLS.
func TestRunOnceSaysThatTheServerIsWithoutTLS(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := outcome(t, "rediss://"+f.Addr(), "run", "-n", "a", "--", "true")
	require.Equal(t, exitUnavailable, r.code)
	require.Contains(t, r.stderr, " (if it is without TLS, the URL begins with redis://)\n")
}

func TestAccessHint(t *testing.T) {
	srv := redistest.Start(t)
	for _, command := range []string{"run -n a -- true", "ls", "inspect a"} {
		r := outcome(t, srv.URL(), strings.Fields("--cluster "+command)...)
		require.Equal(t, exitUnavailable, r.code, command)
		require.Contains(t, r.stderr, "connect without --cluster", command)
	}
	require.NoError(t, srv.Client(t).ConfigSet(t.Context(), "requirepass", "secret").Err())
	for _, command := range []string{"run -n a -- true", "ls", "top --once"} {
		r := outcome(t, srv.URL(), strings.Fields(command)...)
		require.Equal(t, exitUnavailable, r.code, command)
		require.Equal(t, 1, strings.Count(r.stderr, "check user name and password"), r.stderr)
	}
}

func TestUnknownMaster(t *testing.T) {
	sentinel := miniredis.RunT(t)
	require.NoError(t, sentinel.Server().Register("SENTINEL", func(c *miniserver.Peer, _ string, _ []string) { c.WriteLen(-1) }))
	for _, args := range []string{"run -n a -- true", "inspect a", "ls", "doctor"} {
		r := inProcess(append([]string{"--sentinel", sentinel.Addr(), "--master", "nobody", "--url", "redis://"}, strings.Fields(args)...)...)
		require.NotZero(t, r.code)
		require.Contains(t, r.stdout+r.stderr, "knows the master: see --master)\n", args)
	}
}
