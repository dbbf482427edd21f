package rlock

import (
	"errors"

	"github.com/go-rlock/rlock/internal/kind"
)

// RWLock is a read/write lock: at a time, either any number of readers hold it, or one writer.
// Redisson's RReadWriteLock can share the lock. [RWLock.Reader] and [RWLock.Writer] return its two
// sides, each as a [*Lock].
//
// # Nesting
//
// Under the context of a writer, you can lock for reading and for writing without waiting, and unlock
// in any order. If you unlock the last write hold before a read hold, the lock is downgraded: other
// readers can then acquire it, and no writer can get in between.
//
// Under the context of a reader, locking for writing returns [ErrUpgrade] at once, even after a
// downgrade. If the call waited, two readers that both want to write would wait for each other forever.
//
// A reader must not wait, while it holds the lock, for a second reader to acquire the lock. A writer
// can be queued between the two, and then they deadlock. A second reader that locks under the context
// of the first does not have to wait.
//
// # Waiting
//
//   - Waiting readers and writers of all processes form one queue in Redis. A release grants the lock
//     to the first of them by a message, and wakes no other waiter. If the first is a reader, all
//     queued readers acquire the lock together.
//   - While these readers hold the lock, further readers can join them only if no writer waits. So a
//     batch of readers overtakes a waiting writer once at most, and neither readers nor writers starve.
//   - [Lock.TryLock] does not queue. A reader's TryLock succeeds only if no writer waits, and a
//     writer's TryLock only if no call waits.
//   - In each client, only the first waiting reader and the first waiting writer join the queue in
//     Redis. When the reader is granted the lock, all waiting readers of its client share that grant:
//     they have the same owner and lease, and lose the lock together. A reader of the client that comes
//     up to 2 ms later can also share the grant, if no goroutine of the client waits for the lock at
//     that time. With [WithoutHandoff] or [WithoutRenewal], each reader queues for itself.
//   - A lock [WithPolling] does not queue. A writer that polls acquires the lock only when no other
//     call holds it or waits for it.
//
// # Dead processes
//
// If a waiting process has died, a release skips it, on a single server and in a cluster with sharded
// channels. If a waiting process is suspended, it delays the waiters behind it by the lease, but no
// longer than 2.5 s, and until the next of them sends a request. Several suspended processes delay them
// by about 3.3 s in total.
//
// If a process dies while it reads, writers have to wait until the lease of that reader ends. Renewals
// by other readers do not extend it. The exception is a lock that an old version of Redisson, such as
// 3.52, holds as a reader, because such a version renews the leases of all readers of the lock.
//
// # Fencing
//
// With [WithFencing] each writer gets a new token, and a reader gets the token of the latest writer
// before it. So a resource that rejects smaller tokens accepts the results of all readers since the
// latest writer, and rejects results of readers that have older data.
//
// # Sharing with Redisson
//
// Readers in Java do not use the queue, so a continuous stream of Java readers can starve a writer in
// Go. Redisson does not announce a downgrade, so readers in Go notice it only at their next request,
// within 5.5 s. If the lockWatchdogTimeout of Redisson is shorter than the lease of rlock, each reader
// in Java shortens the lease of the whole lock. If that reader then dies, other holders can lose the
// lock, so use the same time on both sides. While a Java client waits for the lock, a release leaves
// the lock free for all clients, as Redisson does, and notifies the first waiter in the queue.
//
// # Keys
//
// While calls wait, the queue is in `rlock_rwqueue:{name}`. Each read hold has a key of its own that
// expires with its lease. The scripts read the keys of other owners' read holds without declaring them,
// as Redisson's scripts do. Undeclared keys work in Redis and its clusters, because these keys are in
// the slot of the lock. Servers that require declared keys must be configured to permit undeclared keys.
type RWLock struct{ reader, writer *Lock }

// NewRWLock returns the read/write lock of a name. As with [Client.NewLock], nothing is sent, and an
// invalid name or option makes every method return [ErrInvalidOption]. [WithHandoff] is invalid for a
// read/write lock. Do not use a name for both a read/write lock and another kind of lock. If the key
// holds a lock of another kind, calls return [ErrKeyConflict].
func (c *Client) NewRWLock(name string, opts ...LockOption) *RWLock {
	side := func(kindOf kindNumber) *Lock {
		l, shared := c.newLock(name, kindOf, opts), kindOf == readKind
		l.terms.shared = shared
		switch {
		case l.terms.handoff.most > 0, l.terms.handoff.longest > 0:
			l.refuse(errors.New("WithHandoff: a writer is passed on by the server, and how long readers join one another is not to be set"))
		case l.terms.replicas.n > 0:
			l.refuse(errors.New("WithReplicas: only plain locks can wait for replicas"))
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

// Reader returns the lock for reading, which several readers can hold at the same time.
func (rw *RWLock) Reader() *Lock { return rw.reader }

// Writer returns the lock for writing, which excludes all readers and other writers.
func (rw *RWLock) Writer() *Lock { return rw.writer }

// writerFirst is the order of the two sides of a read/write lock in a multi lock.
func writerFirst(a, b *Lock) int {
	switch {
	case a.terms.shared == b.terms.shared:
		return 0
	case a.terms.shared:
		return 1
	}
	return -1
}
