package interop

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-rlock/rlock/rlock"
)

// party is one side of a case: a client with connections of its own.
type party interface {
	String() string // "Go" or "Java"
	actor(kind, name string) actor
	// look reads the lock as this side sees it: hold counts by owner, and what is
	// left of the lease, negative if the lock is free.
	look(kind, name string) (holds map[string]int64, ttl time.Duration, err error)
	forceUnlock(kind, name string) (bool, error)
}

// actor is what owns a lock: a thread in Java, a chain of contexts in Go. Its
// methods are called by one goroutine at a time.
type actor interface {
	// as is the same owner at another side of the lock: read or write.
	as(kind string) actor
	// lock waits for the lock, or nests. The lease is renewed if it is 0 and
	// fixed otherwise.
	lock(lease time.Duration) acquired
	tryLock() (bool, error)
	unlock() (span, error)
	// holdCount is how often this actor holds the lock, by its own account.
	holdCount() (int, error)
	// work goes through critical sections: so many, or as many as fit in d.
	work(most int, d time.Duration, checked bool) (shift, error)
}

type acquired struct {
	span
	token int64 // 0 for a kind without
	err   error
}

// section is one critical section of a shift.
type section struct {
	asked, acquired, released, done time.Time
	place, token                    int64
	side                            string // filled in by who mixes shifts
}

type shift struct {
	violations int // others seen inside
	sections   []section
}

// lostBy tells that err says, in its side's way, that the actor does not hold
// the lock it gives back.
func lostBy(err error) bool {
	var remote *remoteError
	return errors.Is(err, rlock.ErrLeaseLost) ||
		errors.As(err, &remote) && remote.class == "IllegalMonitorStateException"
}

func (s shift) String() string {
	var b strings.Builder
	fmt.Fprint(&b, s.violations)
	for _, o := range s.sections {
		fmt.Fprintf(&b, " %d:%d:%d:%d:%d:%d", o.asked.UnixMicro(), o.acquired.UnixMicro(),
			o.released.UnixMicro(), o.done.UnixMicro(), o.place, o.token)
	}
	return b.String()
}

func parseShift(text string) (s shift, err error) {
	first, rest, _ := strings.Cut(text, " ")
	if s.violations, err = strconv.Atoi(first); err != nil {
		return s, err
	}
	for field := range strings.FieldsSeq(rest) {
		var n [6]int64
		parts := strings.Split(field, ":")
		if len(parts) != len(n) {
			return s, fmt.Errorf("a section with %d parts: %s", len(parts), field)
		}
		for i, part := range parts {
			if n[i], err = strconv.ParseInt(part, 10, 64); err != nil {
				return s, err
			}
		}
		s.sections = append(s.sections, section{
			asked: time.UnixMicro(n[0]), acquired: time.UnixMicro(n[1]),
			released: time.UnixMicro(n[2]), done: time.UnixMicro(n[3]), place: n[4], token: n[5],
		})
	}
	return s, nil
}

// lockName returns a name that no other case uses, and no word of the protocol.
var lockNames atomic.Int64

func lockName() string { return "interop-" + strconv.FormatInt(lockNames.Add(1), 10) }
