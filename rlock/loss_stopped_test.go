package rlock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// holder is a process that holds a lock. args: address, name, lease. It answers
// to lines: "look" with what its context says at once and what Unlock returns.
func holder(args []string) {
	lease, err := time.ParseDuration(args[2])
	if err != nil {
		panic(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: args[0]})
	c, err := rlock.New(rdb, &rlock.Options{LeaseTime: lease})
	if err != nil {
		panic(err)
	}
	held, hold, err := c.NewLock(args[1], rlock.WithFencing()).Lock(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Println("held", hold.Token())
	fmt.Println("proof", hold.Proof())
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		err := held.Err() // the first look
		fmt.Println("look", err != nil, errors.Is(context.Cause(held), rlock.ErrLeaseLost))
		fmt.Println("unlock", errors.Is(hold.Unlock(held), rlock.ErrLeaseLost))
	}
}

func TestLossOfAStoppedProcess(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	for range 2 {
		child := redistest.Spawn(t, "holder", srv.Addr(), "a", "2s")
		token, err := strconv.ParseInt(child.Expect("held ", 10*time.Second), 10, 64)
		require.NoError(t, err)
		child.Stop()
		_, err = child.Stdin.Write([]byte("look\n"))
		require.NoError(t, err)

		rivalHeld, rivalHold := lock(t, t.Context(), newClient(t, srv, nil).NewLock("a", rlock.WithFencing()))
		require.Greater(t, rivalHold.Token(), token, "the resource can tell who is late")
		before, ttlBefore := dump(t, rdb, "a")
		child.Cont()
		require.Equal(t, "true true", child.Expect("look ", 10*time.Second))
		require.Equal(t, "true", child.Expect("unlock ", 10*time.Second))
		after, ttlAfter := dump(t, rdb, "a")
		require.Equal(t, before, after)
		require.LessOrEqual(t, ttlAfter, ttlBefore)
		require.NoError(t, rivalHeld.Err())
		require.NoError(t, rivalHold.Unlock(rivalHeld))
		require.NoError(t, child.Stdin.Close())
		require.NoError(t, child.Wait(10*time.Second))
	}
}

// A process that was stopped while its request was under way must not take the
// old answer for a lock.
func TestStoppedWhileAcquiring(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	rival := newClient(t, srv, nil).NewLock("a", rlock.WithFencing())
	_, first := lock(t, t.Context(), rival) // the server knows the scripts
	require.NoError(t, first.Unlock(t.Context()))
	require.Zero(t, holds(t, rdb, "a")) // it is connected
	p := netfault.New(t, srv.Addr())
	held := p.Hold(isScript("try"))
	child := redistest.Spawn(t, "holder", p.Addr(), "a", "2s") // it asks for 5 s
	require.NoError(t, held.Wait(t.Context()))
	child.Stop()
	require.NoError(t, held.Deliver(t.Context()))
	require.Equal(t, 1, holds(t, rdb, "a"))
	rivalHeld, rivalHold, err := rival.TryLockFor(t.Context(), time.Minute) // the child's lease is over
	require.NoError(t, err)
	child.Cont()
	_, err = child.Stdin.Write([]byte("look\n"))
	require.NoError(t, err)
	awaitHearing(t, rdb, "a", 1) // the child waits
	require.NoError(t, rivalHold.Unlock(rivalHeld))
	token, err := strconv.ParseInt(strings.TrimSpace(child.Expect("held ", 10*time.Second)), 10, 64)
	require.NoError(t, err)
	require.Greater(t, token, rivalHold.Token())
	require.Equal(t, "false false", child.Expect("look ", 10*time.Second))
	require.Equal(t, "false", child.Expect("unlock ", 10*time.Second))
}
