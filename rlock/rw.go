package rlock

import (
	"errors"

	"github.com/go-rlock/rlock/internal/kind"
)

// RWLock is a read/write lock: several readers hold it at once, or one writer,
// with Redisson's RReadWriteLock among them. Both sides are a [*Lock].
//
// # Rules
//
//   - Under the context of a writer, the reader nests, and so does the writer.
//     The holds are unlocked in any order. When the last write hold is unlocked
//     before a read hold, the lock is downgraded: other readers are woken and may
//     enter, and no writer was inside in between.
//   - Under the context of a reader, the writer is [ErrUpgrade] at once, also
//     after a downgrade: two readers that waited for each other to leave would
//     wait forever.
//   - Readers of a client join one another: while the first reader asks, and until 2 ms after
//     the request was sent, later readers enter without a request, and share the first reader's
//     owner, lease and loss. Queued readers ask one after another, each when the reader before
//     is in. With [WithoutHandoff] each reader asks.
//   - Writers are not starved. While a writer waits for readers to leave, no new reader
//     of this library enters, in any process, other than to join a reader inside: the writer
//     waits only for the readers inside at its arrival. When a writer leaves, or
//     becomes a reader, any waiter may be next, reader or writer. [Lock.TryLock] does not
//     wait and keeps nobody out.
//   - A writer that dies while waiting keeps new readers out for 10 s at most.
//   - A reader that dies keeps writers out for the reader's own lease, however long other
//     readers renew their leases; unless there is an old Redisson reader, such as 3.52: an
//     old Redisson renews every reader of the lock.
//
// So a reader must not wait, inside the lock, for a second reader to enter, unless the second reader
// locks under the same context: a writer may wait between the two.
//
// # Fencing
//
// With [WithFencing] each writer has a new token, and a reader has the token of the newest writer
// before. A resource that refuses smaller tokens thus accepts the results of all readers since then,
// and nothing from a reader of older data.
//
// # Beside Redisson
//
// Readers in Java do not look for waiting writers: a stream of Java readers may starve a writer
// in Go. Redisson announces no downgrade: readers in Go come in at their next request, after
// 5.5 s at the latest. And a reader in Java with a shorter lockWatchdogTimeout than the lease
// time here cuts the lease of the whole lock down to the shorter one, with harm if that reader
// then dies: give both sides the same time.
//
// # On the server
//
// Beside Redisson's data there is one key, `rlock_rwlock_intent:{name}`, while a
// writer waits for readers. Each read hold has a key with the lease of that hold.
// Scripts look at the read holds of other owners without declaring the keys, as Redisson's scripts
// do: the keys are in the slot of the lock. This is enough for Redis and its clusters, but
// servers that insist on declared keys have to be told.
type RWLock struct{ reader, writer *Lock }

// NewRWLock returns the read/write lock of a name, otherwise like [Client.NewLock]. One name must
// not be used for locks of both kinds; if so, the second is [ErrKeyConflict]. [WithHandoff]
// is [ErrInvalidOption].
func (c *Client) NewRWLock(name string, opts ...LockOption) *RWLock {
	side := func(shared bool) *Lock {
		l := c.newLock(name, opts)
		l.terms.shared, l.kind = shared, writeKind
		if shared {
			l.kind = readKind
		}
		switch {
		case l.terms.handoff.most > 0, l.terms.handoff.longest > 0:
			l.refuse(errors.New("WithHandoff: a writer is not passed on in memory, and how long readers join one another is not to be set"))
		case l.terms.replicas.n > 0:
			l.refuse(errors.New("WithReplicas: only plain locks can wait for replicas"))
		case l.terms.retention > 0:
			l.refuse(errors.New("WithRetention: only plain locks are kept"))
		}
		if l.terms.handoff = l.terms.handoff.withDefaults(l.terms.fixed); shared {
			l.terms.handoff.most = 0 // a reader is joined, which takes no more than time
		} else {
			l.terms.handoff = handoff{}
		}
		l.use(kind.NewReadWrite(&c.server, c.opts.Prefix+name, l.terms.fenced, shared))
		return l
	}
	return &RWLock{side(true), side(false)}
}

// Reader returns the side that many may hold at once.
func (rw *RWLock) Reader() *Lock { return rw.reader }

// Writer returns the side that excludes all others.
func (rw *RWLock) Writer() *Lock { return rw.writer }
