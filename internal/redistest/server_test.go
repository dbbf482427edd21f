package redistest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func noRetry(o *redis.Options) { o.MaxRetries = -1 }

func TestServerAnswersAtItsAddress(t *testing.T) {
	s := Start(t)
	opts, err := redis.ParseURL(s.URL())
	require.NoError(t, err)
	require.Equal(t, s.Addr(), opts.Addr)
	require.NoError(t, s.Client(t).Set(t.Context(), "k", "v", 0).Err())
	require.NoError(t, s.Client(t).Do(t.Context(), "DEBUG", "SLEEP", "0").Err())
}

func TestServerArgsOverrideDefaults(t *testing.T) {
	s := Start(t, "--maxmemory-policy", "allkeys-lru", "--enable-debug-command", "no")
	rdb := s.Client(t)
	got, err := rdb.ConfigGet(t.Context(), "maxmemory-policy").Result()
	require.NoError(t, err)
	require.Equal(t, "allkeys-lru", got["maxmemory-policy"])
	require.ErrorContains(t, rdb.Do(t.Context(), "DEBUG", "SLEEP", "0").Err(), "not allowed")
}

func TestServerWithPasswordStarts(t *testing.T) {
	s := Start(t, "--requirepass", "secret")
	rdb := s.Client(t, func(o *redis.Options) { o.Password = "secret" })
	require.NoError(t, rdb.Ping(t.Context()).Err())
}

func TestKillAndRestart(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want int64
	}{
		{"empty", nil, 0},
		{"with data", []string{"--appendonly", "yes", "--appendfsync", "always"}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := Start(t, tc.args...)
			rdb := s.Client(t, noRetry)
			require.NoError(t, rdb.Set(t.Context(), "k", "v", 0).Err())
			pid, addr := s.Pid(), s.Addr()

			s.Kill()
			s.Kill()
			require.Error(t, rdb.Ping(t.Context()).Err())

			s.Restart()
			require.Equal(t, addr, s.Addr())
			require.NotEqual(t, pid, s.Pid())
			n, err := s.Client(t).Exists(t.Context(), "k").Result()
			require.NoError(t, err)
			require.Equal(t, tc.want, n)

			s.Restart() // of a running server
			require.NoError(t, s.Client(t).Ping(t.Context()).Err())
		})
	}
}

// Otherwise a test that asks its dead server would be answered by that of another test.
func TestPortOfADeadServerIsKept(t *testing.T) {
	t.Parallel()
	srv := Start(t)
	srv.Kill()
	for range 20_000 { // 5,000 ports
		port, claim := claimPort()
		require.NoError(t, claim.Close())
		require.NotEqual(t, srv.port, port)
	}
}

func TestStopAndCont(t *testing.T) {
	s := Start(t)
	rdb := s.Client(t, noRetry, func(o *redis.Options) { o.ReadTimeout = 250 * time.Millisecond })
	require.NoError(t, rdb.Ping(t.Context()).Err())
	s.Stop()
	err := rdb.Incr(t.Context(), "k").Err()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	s.Cont()
	Eventually(t, "the command sent meanwhile is executed", func() bool {
		n, _ := s.Client(t).Get(t.Context(), "k").Int()
		return n == 1
	})
	s.Stop() // Cleanup must not wait for it
}

func TestCommandCalls(t *testing.T) {
	s := Start(t)
	rdb := s.Client(t)
	before := s.CommandCalls(t)
	for range 3 {
		require.NoError(t, rdb.Eval(t.Context(), "return redis.call('incr', KEYS[1])", []string{"k"}).Err())
	}
	require.NoError(t, rdb.ClientID(t.Context()).Err())
	after := s.CommandCalls(t)
	require.EqualValues(t, 3, after["eval"]-before["eval"])
	require.EqualValues(t, 3, after["incr"]-before["incr"])
	require.EqualValues(t, 1, after["client|id"]-before["client|id"])
}

func TestClientsLeavesOwnConnectionsOut(t *testing.T) {
	s := Start(t)
	s.Monitor(t)
	require.Empty(t, s.Clients(t, "normal"))
	require.Empty(t, s.Clients(t, "pubsub"))

	rdb := s.Client(t, func(o *redis.Options) { o.ClientName = "app" })
	require.NoError(t, rdb.Ping(t.Context()).Err())
	sub := rdb.Subscribe(t.Context(), "ch")
	defer func() { require.NoError(t, sub.Close()) }()
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)

	normal := s.Clients(t, "normal")
	require.Len(t, normal, 1)
	require.Equal(t, "app", normal[0]["name"])
	pubsub := s.Clients(t, "pubsub")
	require.Len(t, pubsub, 1)
	require.Equal(t, "1", pubsub[0]["sub"])
}

func TestMonitor(t *testing.T) {
	s := Start(t)
	rdb := s.Client(t)
	require.NoError(t, rdb.Ping(t.Context()).Err()) // connected before the recording
	m := s.Monitor(t)
	require.Empty(t, m.Commands())

	value := "a \"quoted\" \x00\xff\r\n\\x41 ü ] line"
	require.NoError(t, rdb.Set(t.Context(), "k", value, 0).Err())
	got := m.Commands()
	require.Len(t, got, 1)
	require.Equal(t, []string{"set", "k", value}, got[0].Args)
	require.Equal(t, s.Clients(t, "normal")[0]["addr"], got[0].Client)
	now, err := rdb.Time(t.Context()).Result()
	require.NoError(t, err)
	require.WithinRange(t, got[0].Time, now.Add(-limit), now)

	require.NoError(t, rdb.Eval(t.Context(), "return redis.call('get', 'k')", nil).Err())
	got = m.Commands()
	require.Len(t, got, 3)
	require.Equal(t, "time", got[0].Args[0])
	require.Equal(t, "eval", got[1].Args[0])
	require.Equal(t, Command{got[2].Time, "lua", []string{"get", "k"}}, got[2])
	m.Stop()
}

func TestParseMonitorRefusesOtherLines(t *testing.T) {
	for _, line := range []string{"", "+OK", "+1.2", "+1.2 [0 lua]", "+1.2 [0 lua] ", `+1.2 [0 lua] "get`, `+1.2 [0 lua] get`, `+x.2 [0 lua] "get"`} {
		_, err := parseMonitor(line)
		require.Error(t, err, line)
	}
}

// recorder stands in for the test whose Start must fail or be skipped.
type recorder struct {
	testing.TB
	fatal string
}

func (r *recorder) Fatal(args ...any) {
	r.fatal = args[0].(error).Error()
	panic(r)
}

func startFails(t *testing.T, args ...string) string {
	r := &recorder{TB: t}
	require.PanicsWithValue(t, r, func() { Start(r, args...) })
	return r.fatal
}

func TestMissingServerIsAFailure(t *testing.T) {
	t.Setenv("RLOCK_REDIS_SERVER", "no-such-server")
	require.Contains(t, startFails(t), "apt-get install redis-server, or make test")
}

func TestFailedStartShowsTheLog(t *testing.T) {
	require.Contains(t, startFails(t, "--no-such-option", "1"), "no-such-option")
}

func TestChild(t *testing.T) {
	c := Spawn(t, "echo", "a b", "-c")
	require.Equal(t, "[a b -c]", c.Expect("args ", limit))
	_, err := io.WriteString(c.Stdin, "one\ntwo\n")
	require.NoError(t, err)
	require.Equal(t, "one", c.Expect("got ", limit))
	require.Equal(t, "two", c.Expect("got ", limit))
	require.ErrorContains(t, c.Wait(0), "still runs")

	c.Stop()
	_, err = io.WriteString(c.Stdin, "three\n")
	require.NoError(t, err)
	c.Cont()
	require.Equal(t, "three", c.Expect("got ", limit))

	require.NoError(t, c.Stdin.Close())
	require.NoError(t, c.Wait(limit))
}

func TestChildExitCode(t *testing.T) {
	require.ErrorContains(t, Spawn(t, "fail").Wait(limit), "exit status 3")
	require.ErrorContains(t, Spawn(t, "unknown").Wait(limit), "exit status 2")
}

func TestChildKilled(t *testing.T) {
	c := Spawn(t, "echo")
	c.Stop()
	c.Kill()
	require.ErrorContains(t, c.Wait(limit), "killed")
}

func TestStartsInParallel(t *testing.T) {
	seen := make(chan string, 8)
	t.Run("group", func(t *testing.T) {
		for range cap(seen) {
			t.Run("server", func(t *testing.T) {
				t.Parallel()
				s := Start(t)
				info, err := s.Client(t).Info(context.Background(), "server").Result()
				require.NoError(t, err)
				require.True(t, strings.Contains(info, "process_id:"))
				seen <- s.Addr()
			})
		}
	})
	close(seen)
	addrs := map[string]bool{}
	for a := range seen {
		require.False(t, addrs[a])
		addrs[a] = true
	}
}

// A process that stands still does not look at the clock. In the bubble, Stop has the same
// effect.
func TestStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := WatchStalls()
		time.Sleep(time.Minute)
		require.Zero(t, s.Total())
		s.Stop()
		time.Sleep(3 * time.Second)
		require.InDelta(t, 3*time.Second, s.Total(), float64(2*stallTick), "nothing has looked for 3 s")
		time.Sleep(stallMin / 2)
		require.InDelta(t, 3*time.Second, s.Total(), float64(2*stallTick), "that is no stall")
	})
}

// outcome is a test that has ended, as far as showLog asks.
type outcome struct {
	testing.TB
	failed bool
	said   []string
}

func (o *outcome) Helper()      {}
func (o *outcome) Failed() bool { return o.failed }

func (o *outcome) Logf(format string, args ...any) {
	o.said = append(o.said, fmt.Sprintf(format, args...))
}

func TestLogsOnDemand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(path, []byte("Ready to accept connections"), 0o600))
	t.Setenv(logEnv, "")
	passed, failed := &outcome{}, &outcome{failed: true}
	for _, addr := range []string{"a:1", "b:2"} {
		showLog(passed, addr, path)
		showLog(failed, addr, path)
	}
	require.Empty(t, passed.said)
	require.Equal(t, []string{"REDISTEST_LOG=1 shows the server logs"}, failed.said, "once")

	t.Setenv(logEnv, "1")
	asked := &outcome{failed: true}
	showLog(asked, "a:1", path)
	require.Equal(t, []string{"log of redis-server a:1:\nReady to accept connections"}, asked.said)
}

func TestMain(m *testing.M) {
	RunChild(map[string]func(args []string){"echo": echo, "fail": fail, "parent": parent})
	goleak.VerifyTestMain(m, Dials)
}

// echo reports its arguments, then every line it reads, until its input ends.
func echo(args []string) {
	fmt.Println("args", args)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		fmt.Println("ignore this line")
		fmt.Println("got", in.Text())
	}
}

func fail([]string) { os.Exit(3) }

// parent has a child of its own, which keeps standard output open.
func parent([]string) {
	cmd := exec.Command("sleep", "1000")
	cmd.Stdout = os.Stdout
	p, err := startProcess(cmd)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("started")
	<-p.done
}
