package firstpage

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/coverage"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/rlock"
)

// The calls, which are measured one by one.
const (
	FreeLock   = "free Lock"
	FreeUnlock = "free Unlock"
	Contended  = "contended Lock"
)

var calls = []string{FreeLock, FreeUnlock, Contended}

// Walk makes the calls, and writes for each what it has covered to a directory of its name. The process is built with
// -cover.
func Walk(ctx context.Context, addr, dir string) error {
	c, err := rlock.New(redis.NewClient(&redis.Options{Addr: addr}), nil)
	if err != nil {
		return err
	}
	for range 20 { // connections and scripts are there then
		h, err := lock(ctx, c.NewLock("warm"))
		if err != nil {
			return err
		}
		if err := h.Unlock(ctx); err != nil {
			return err
		}
	}
	var h *rlock.Hold
	free, busy := c.NewLock("free"), c.NewLock("busy")
	if err := cover(dir, FreeLock, func() error { h, err = lock(ctx, free); return err }); err != nil {
		return err
	}
	if err := cover(dir, FreeUnlock, func() error { return h.Unlock(ctx) }); err != nil {
		return err
	}
	// The holder is another process: what it does is not on the way of who waits.
	holder := command(ctx, os.Args[0], "hold", addr, "busy")
	told, err := holder.StdoutPipe()
	if err != nil {
		return err
	}
	if err := holder.Start(); err != nil {
		return err
	}
	if _, err := bufio.NewReader(told).ReadString('\n'); err != nil {
		return fmt.Errorf("the holder has not said that it holds the lock: %w", err)
	}
	if err := cover(dir, Contended, func() error { h, err = lock(ctx, busy); return err }); err != nil {
		return err
	}
	if err := holder.Wait(); err != nil {
		return err
	}
	if err := h.Unlock(ctx); err != nil {
		return err
	}
	return c.Close(ctx)
}

// cover makes a call when what was before it has come to rest.
func cover(dir, name string, call func() error) error {
	time.Sleep(50 * time.Millisecond)
	if err := coverage.ClearCounters(); err != nil {
		return err
	}
	if err := call(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	dir = filepath.Join(dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if err := coverage.WriteMetaDir(dir); err != nil {
		return err
	}
	return coverage.WriteCountersDir(dir)
}

func lock(ctx context.Context, l *rlock.Lock) (*rlock.Hold, error) {
	_, h, err := l.Lock(ctx) //rlockvet:ignore nothing is done under it
	return h, err
}

// Hold keeps a lock for a moment.
func Hold(ctx context.Context, addr, name string) error {
	c, err := rlock.New(redis.NewClient(&redis.Options{Addr: addr}), nil)
	if err != nil {
		return err
	}
	h, err := lock(ctx, c.NewLock(name))
	if err != nil {
		return err
	}
	fmt.Println("held")
	time.Sleep(300 * time.Millisecond)
	if err := h.Unlock(ctx); err != nil {
		return err
	}
	return c.Close(ctx)
}
