//go:build unix

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// holds reads the first line of rlock hold.
func (p *program) holds() (line holding) {
	p.t.Helper()
	require.NoError(p.t, json.Unmarshal([]byte(`{"names":`+p.says(`{"names":`)), &line))
	return line
}

func TestHold(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	p := begin(t, srv.URL(), "hold", "a")
	before := time.Now()
	line := p.holds()
	require.Equal(t, []string{"a"}, line.Names)
	require.Equal(t, "1", rdb.HGet(t.Context(), "a", line.Owner).Val())
	require.Positive(t, line.Token)
	require.WithinDuration(t, before.Add(rlock.DefaultLeaseTime), line.Until, 10*time.Second)
	require.Empty(t, line.Locks)

	// A Go program may join the lock.
	locks, err := rlock.New(rdb, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, locks.Close(t.Context())) }()
	_, joined, err := locks.NewLock("a").Join(t.Context(), line.Proof)
	require.NoError(t, err)
	require.NoError(t, joined.Unlock(t.Context()))

	require.Equal(t, exitBusy, outcome(t, srv.URL(), "hold", "-n", "--until-signal", "a").code)
	require.Equal(t, 3, outcome(t, srv.URL(), "hold", "-w", "2s", "-E", "3", "--until-signal", "a").code)
	p.tell("what is written is ignored")
	require.EqualValues(t, 1, rdb.Exists(t.Context(), "a").Val())
	require.NoError(t, p.stdin.Close())
	require.Equal(t, 0, p.end().code)
	require.Zero(t, rdb.Exists(t.Context(), "a").Val())
}

func TestHoldOfSeveralNames(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	p := begin(t, srv.URL(), "--prefix", "p:", "hold", "--exclusive", "b", "a")
	line := p.holds()
	require.Equal(t, []string{"b", "a"}, line.Names)
	require.Len(t, line.Locks, 2)
	require.Equal(t, line.Owner, line.Locks[0].Owner)
	require.Empty(t, line.Proof, "a read/write lock has none")
	require.EqualValues(t, 2, rdb.Exists(t.Context(), "p:a", "p:b").Val())
	require.NoError(t, p.stdin.Close())
	require.Equal(t, 0, p.end().code)
	require.Zero(t, rdb.Exists(t.Context(), "p:a", "p:b").Val())
}

// A signal ends the wait for the lock. It does not end a hold with a pipe, because the program at the other end may
// have got it as well, and still works.
func TestHoldEndsBySignal(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	held := func() bool { return srv.Client(t).Exists(t.Context(), "a").Val() == 1 }
	p := launch(t, wrap(prepare(t, srv.URL()), `exec "$SELF" hold a 2>&1`))
	p.holds()
	waits := begin(t, srv.URL(), "hold", "a")
	hungUp := begin(t, srv.URL(), "hold", "a")
	require.NoError(t, hungUp.stdin.Close())
	require.Equal(t, 128+int(syscall.SIGHUP), hungUp.end().code, "the other program has gone before")
	redistest.Eventually(t, "the second waits", func() bool { return len(srv.Clients(t, "pubsub")) == 1 })
	waits.signal(syscall.SIGTERM)
	require.Equal(t, result{code: 128 + int(syscall.SIGTERM)}, waits.end())

	p.signal(syscall.SIGUSR1)
	p.signal(syscall.SIGUSR2)
	p.signal(syscall.SIGTERM)
	require.Equal(t, "the lock stays held until standard input ends. A second signal releases it at once", p.says("rlock: received a signal (terminated): "))
	require.True(t, held())
	require.NoError(t, p.stdin.Close())
	require.Equal(t, 0, p.end().code)
	require.False(t, held())

	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP} {
		p = launch(t, wrap(prepare(t, srv.URL()), `exec "$SELF" hold a 2>&1`))
		p.holds()
		p.signal(sig)
		p.says("rlock: received a signal (" + sig.String() + "): ")
		require.True(t, held())
		p.signal(syscall.SIGTERM)
		require.Equal(t, `"a second signal (terminated) released the lock before standard input ended"}`, p.says(`{"lost":`))
		require.Equal(t, exitLost, p.end().code)
		require.False(t, held())
	}
}

func TestHoldWantsAPipe(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	file, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer func() { _ = null.Close() }()
	for _, stdin := range []*os.File{null, file} {
		cmd := prepare(t, srv.URL(), "hold", "a")
		cmd.Stdin = stdin
		out, err := cmd.CombinedOutput()
		require.Equal(t, exitUsage, cmd.ProcessState.ExitCode(), "%v", err)
		require.Contains(t, string(out), "--until-signal")
	}
	require.Equal(t, exitUsage, outcome(t, srv.URL(), "hold").code)
	require.Equal(t, exitUsage, outcome(t, srv.URL(), "hold", "").code)

	cmd := prepare(t, srv.URL(), "hold", "--until-signal", "a")
	p := launch(t, cmd)
	p.holds()
	require.NoError(t, p.stdin.Close())
	time.Sleep(100 * time.Millisecond)
	require.EqualValues(t, 1, srv.Client(t).Exists(t.Context(), "a").Val(), "standard input is not read")
	p.signal(syscall.SIGINT)
	require.Equal(t, 0, p.end().code)

	under := outcome(t, srv.URL(), "run", "a", "--", "sh", "-c", `"$SELF" hold --until-signal a`)
	require.Equal(t, exitUsage, under.code)
	require.Contains(t, under.stderr, "holds it already")
}

// The loss can be read before anybody else can hold the lock: the server is silent, and the line comes before the
// lease ends. A tenth of the lease is left then, a second here, so a loaded machine may be late.
func TestHoldTellsTheLossInTime(t *testing.T) {
	t.Parallel()
	redistest.Long(t, "most of a lease of 10 s")
	srv := redistest.Start(t)
	p := begin(t, srv.URL(), "hold", "--ttl", "10s", "a")
	p.holds()
	asked := time.Now()
	ttl := srv.Client(t).PTTL(t.Context(), "a").Val()
	srv.Stop() // its clock goes on
	p.says(`{"lost":"`)
	rest := ttl - time.Since(asked)
	srv.Cont()
	require.Equal(t, exitLost, p.end().code)
	t.Log("rest of the lease when the loss was read:", rest)
	require.Positive(t, rest)
}

func TestHoldIsLost(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := begin(t, srv.URL(), "hold", "--ttl", "1s", "b")
	p.holds()
	require.NoError(t, srv.Client(t).Del(t.Context(), "b").Err())
	p.says(`{"lost":"`)
	r := p.end()
	require.Equal(t, exitLost, r.code)
	require.Contains(t, r.stderr, "lost")

	// Nobody may read it any longer. On a busy machine a request may have a copy, which leaves open what the Unlock has found.
	found := false
	for i := 0; i < 5 && !found; i++ {
		name := "c" + strconv.Itoa(i)
		p = begin(t, srv.URL(), "hold", name)
		p.holds()
		require.NoError(t, srv.Client(t).Del(t.Context(), name).Err())
		require.NoError(t, p.stdin.Close())
		found = p.end().code == exitLost
	}
	require.True(t, found, "by the Unlock")
}

// A parent is killed. Nothing tells rlock to release the lock but the end of the pipe. How long this takes is printed,
// and must be less than the limit, which is a part of the lease.
func TestHoldOfAKilledParent(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not there")
	}
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	kills := 100
	if testing.Short() {
		kills = 3
	}
	var free []time.Duration
	for range kills {
		cmd := prepare(t, srv.URL())
		cmd.Path, cmd.Args = bash, []string{"bash", "-c", `
			coproc LOCK { exec "$SELF" hold a; }
			read -r line <&"${LOCK[0]}"
			echo "$line"; echo "pid $LOCK_PID"
			read -r forever`}
		parent := launch(t, cmd)
		parent.holds()
		pid := parent.says("pid ")
		killed := time.Now()
		parent.signal(syscall.SIGKILL)
		for rdb.Exists(t.Context(), "a").Val() != 0 {
			require.Less(t, time.Since(killed), limit)
			time.Sleep(time.Millisecond)
		}
		free = append(free, time.Since(killed))
		_ = parent.cmd.Wait()
		redistest.Eventually(t, "the process has ended", func() bool { return !alive(t, pid) })
	}
	slices.Sort(free)
	t.Logf("%d parents killed: the lock was free after p50 %v, p95 %v, longest %v", kills, free[kills/2], free[kills*95/100], free[kills-1])
}
