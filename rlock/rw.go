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
//   - Calls that wait stand in one queue on the server, readers and writers of all processes, as those for a
//     plain lock do. Whoever frees the lock grants it to the first by a message, and wakes nobody else. If
//     the first is a reader, all readers in the queue enter at once. As long as they are inside, further
//     readers enter only while no writer waits. So a batch of readers passes a waiting writer once at most,
//     and no side starves the other. [Lock.TryLock] does not queue: a reader enters only while no writer
//     waits, a writer only while nobody queues.
//   - Of each client the first waiting reader and the first waiting writer queue. The reader's grant is that of
//     all waiting readers of the client, with one owner, lease and loss, and of those that come within 2 ms
//     while none waits. With [WithoutHandoff] or [WithoutRenewal] each reader queues for itself.
//   - A dead waiter is passed over by the script of the release, on a single server and with sharded channels
//     in a cluster. A hanging one delays the others by its claim, the lease but at most 2.5 s, and until the
//     next of them asks. Several hanging ones delay them by about 3.3 s together.
//   - A dead reader keeps writers out for the reader's own lease, however long other readers renew their
//     leases; unless there is an old Redisson reader, such as 3.52: an old Redisson renews every reader of the
//     lock.
//   - A lock [WithPolling] does not queue: a writer that polls enters when nobody is inside and nobody queues.
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
// Readers in Java do not look at the queue: a stream of Java readers may starve a writer
// in Go. Redisson announces no downgrade: readers in Go come in at their next request, after
// 5.5 s at the latest. And a reader in Java with a shorter lockWatchdogTimeout than the lease
// time here cuts the lease of the whole lock down to the shorter one, with harm if that reader
// then dies: give both sides the same time. While somebody in Java waits for the lock, a release leaves it
// to all, as Redisson does, and has the first in the queue ask.
//
// # On the server
//
// Beside Redisson's data there is the queue, `rlock_rwqueue:{name}`, while calls wait. Each read hold has
// a key with the lease of that hold. Scripts look at the read holds of other owners without declaring the
// keys, as Redisson's scripts do: the keys are in the slot of the lock. This is enough for Redis and its
// clusters, but servers that insist on declared keys have to be told.
type RWLock struct{ reader, writer *Lock }

// NewRWLock returns the read/write lock of a name, otherwise like [Client.NewLock]. One name must
// not be used for locks of both kinds; if so, the second is [ErrKeyConflict]. [WithHandoff]
// is [ErrInvalidOption].
func (c *Client) NewRWLock(name string, opts ...LockOption) *RWLock {
	side := func(kindOf kindNumber) *Lock {
		l, shared := c.newLock(name, kindOf, opts), kindOf == readKind
		l.terms.shared = shared
		switch {
		case l.terms.handoff.most > 0, l.terms.handoff.longest > 0:
			l.refuse(errors.New("WithHandoff: a writer is passed on by the server, and how long readers join one another is not to be set"))
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
		l.terms.tickets = !l.terms.polls
		l.use(kind.NewReadWrite(&c.server, c.opts.Prefix+name, l.terms.fenced, shared))
		return l
	}
	return &RWLock{side(readKind), side(writeKind)}
}

// Reader returns the side that many may hold at once.
func (rw *RWLock) Reader() *Lock { return rw.reader }

// Writer returns the side that excludes all others.
func (rw *RWLock) Writer() *Lock { return rw.writer }
