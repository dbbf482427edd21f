package rlock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// ringMember holds a lock and, when it is told to, waits for another one under it.
func ringMember(args []string) {
	lease, err := time.ParseDuration(args[3])
	if err != nil {
		panic(err)
	}
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelError}))
	c, err := rlock.New(redis.NewClient(&redis.Options{Addr: args[0]}), &rlock.Options{LeaseTime: lease, Logger: logger})
	if err != nil {
		panic(err)
	}
	held, hold, err := c.NewLock(args[1]).Lock(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Println("held", hold.Owner())
	bufio.NewScanner(os.Stdin).Scan()
	_, next, err := c.NewLock(args[2], rlock.WithDeadlockError()).Lock(held)
	_, deadlock := errors.AsType[*rlock.DeadlockError](err)
	if deadlock {
		fmt.Println("error", err)
	}
	if unlockErr := errors.Join(hold.Unlock(held), next.Unlock(held)); !deadlock {
		err = errors.Join(err, unlockErr)
	}
	fmt.Println("end", deadlock, err == nil, c.Stats().Deadlocks)
	if err := closeSoon(c); err != nil {
		panic(err)
	}
}

// Two and three processes that wait for each other's locks: one of them gets the error, and logs it. The others get their
// locks.
func TestDeadlockOfProcesses(t *testing.T) {
	t.Parallel()
	redistest.Long(t, "a lease and 12 s")
	srv := newServer(t)
	for _, n := range []int{2, 3} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			name := func(i int) string { return fmt.Sprint(n, " ", i%n) }
			var all []*redistest.Child
			for i := range n {
				c := redistest.Spawn(t, "member", srv.Addr(), name(i), name(i+1), "3s")
				c.Expect("held ", 10*time.Second)
				all = append(all, c)
			}
			for _, c := range all {
				_, err := fmt.Fprintln(c.Stdin, "wait")
				require.NoError(t, err)
				time.Sleep(time.Second)
			}
			began := time.Now()
			last := all[n-1]
			require.Contains(t, last.Expect("error ", time.Minute), strconv.Quote(name(n)))
			t.Logf("%d processes: found after %v", n, time.Since(began).Round(time.Second/10))
			require.Equal(t, "true false 1", strings.TrimSpace(last.Expect("end ", 10*time.Second)))
			for i := n - 2; i >= 0; i-- {
				require.Equal(t, "false true 0", strings.TrimSpace(all[i].Expect("end ", 10*time.Second)))
			}
		})
	}
}
