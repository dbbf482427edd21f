package bench

import (
	"context"
	"os"
	"sync/atomic"
	"time"
	"unsafe"
)

// region is the memory that the processes of a run share: a header, then a cell
// per lock. All of it is atomic, and zero in a new file.
type region struct {
	*header
	cells []cell
	raw   []byte
}

type header struct {
	ready      atomic.Int64 // workers at the barrier
	start      atomic.Int64 // when they leave it, by [clock]; 0: not known yet
	done       atomic.Int64 // workers whose window is over
	leave      atomic.Int64 // 1: the counters are read, workers may end
	gone       atomic.Int64 // Idle: 1: nobody waits any more
	violations atomic.Int64
	_          [16]byte
}

// cell belongs to one lock, and to one cache line. Goroutines are known by their
// ids, which begin at 1.
type cell struct {
	inside   atomic.Int64 // who holds the lock; 0: nobody
	last     atomic.Int64 // who held it last
	held     atomic.Int64 // Wakeup: 1 from the holder's Lock to the end of the waiter's
	released atomic.Int64 // Wakeup, Wide, Kill: when the holder was about to unlock, by clock; 0: it is not
	stage    atomic.Int64 // Kill: how far that has come
	behind   atomic.Int64 // Kill: how many of those behind have had the lock
	_        [16]byte
}

const (
	headerSize = unsafe.Sizeof(header{})
	cellSize   = unsafe.Sizeof(cell{})
)

// newRegion makes a file of shared memory for that many cells.
func newRegion(cells int) (path string, err error) {
	dir := "/dev/shm" // where a file is memory
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		dir = "" // elsewhere it may be written to a disk now and then
	}
	f, err := os.CreateTemp(dir, "rlock-bench-*")
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	return f.Name(), f.Truncate(int64(headerSize + uintptr(cells)*cellSize))
}

func openRegion(path string) (*region, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	raw, err := mapShared(f, int(info.Size()))
	if err != nil {
		return nil, err
	}
	cells := unsafe.Slice((*cell)(unsafe.Pointer(&raw[headerSize])), (uintptr(len(raw))-headerSize)/cellSize)
	return &region{(*header)(unsafe.Pointer(&raw[0])), cells, raw}, nil
}

func (r *region) close() { _ = unmapShared(r.raw) }

// enter and exit surround every critical section.
func (r *region) enter(c *cell, id int64) (before int64) {
	if !c.inside.CompareAndSwap(0, id) {
		r.violations.Add(1)
	}
	return c.last.Swap(id)
}

func (r *region) exit(c *cell, id int64) {
	if !c.inside.CompareAndSwap(id, 0) {
		r.violations.Add(1)
		c.inside.Store(0)
	}
}

// at is a time of clock on this process's clock.
func at(t int64) time.Time { return time.Now().Add(time.Duration(t - clock())) }

// pause sleeps for d. A critical section or a schedule needs more precision than
// [time.Sleep] has in an idle program, which is a millisecond.
func pause(d time.Duration) {
	const slack = 60 * time.Microsecond // how late Linux may wake a thread
	end := time.Now().Add(d)
	if d > slack {
		nap(d - slack)
	}
	for time.Now().Before(end) {
	}
}

// await polls, outside of anything that is measured.
func await(ctx context.Context, condition func() bool) error {
	for !condition() {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
