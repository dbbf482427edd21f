package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// aclWorld is a server with an administrator and a user of few rights.
type aclWorld struct {
	t     *testing.T
	srv   *redistest.Server
	admin *redis.Client
	user  *redis.Client

	waiting chan struct{} // told when a client of either was refused a lock and waits
}

// newACLWorld makes the user as the line says, apart from one item.
func newACLWorld(t *testing.T, line, without string) *aclWorld {
	t.Helper()
	w := &aclWorld{t: t, srv: redistest.Start(t), waiting: make(chan struct{}, 1)}
	w.admin = w.srv.Client(t)
	var args []any
	for word := range strings.FieldsSeq(line) {
		if word != without {
			args = append(args, word)
		}
	}
	require.NoError(t, w.admin.Do(t.Context(), args...).Err())
	w.user = w.srv.Client(t, asUser)
	return w
}

func asUser(o *redis.Options) { o.Username, o.Password = "u", "PASSWORD" }

// works uses a feature under a name, and returns why it could not.
func (w *aclWorld) works(f feature, name string) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	if err := errors.Join(w.admin.ScriptFlush(ctx).Err(), w.admin.FlushAll(ctx).Err()); err != nil {
		return err
	}
	switch f {
	case listing:
		return w.list(ctx, name)
	case recording:
		return w.record(ctx)
	case observing:
		return w.observe(ctx, name)
	case watching:
		return w.watch(ctx, name)
	case database:
		return w.srv.Client(w.t, asUser, func(o *redis.Options) { o.DB = 1 }).Do(ctx, "hello").Err()
	}
	mine, theirs := w.client(w.user), w.client(w.admin)
	defer closeWithin(mine, closeTimeout)
	defer closeWithin(theirs, closeTimeout)
	switch f {
	case locking:
		return w.mutex(ctx, mine.NewLock(name), theirs.NewLock(name))
	case fencing:
		return w.fence(ctx, mine.NewLock(name, rlock.WithFencing()), theirs.NewLock(name, rlock.WithFencing()))
	case waking:
		return w.wake(ctx, mine.NewLock(name), theirs.NewLock(name))
	case foreign:
		return w.redisson(ctx, mine.NewLock(name))
	case probing:
		return w.probe(ctx, mine.NewLock(name), theirs.NewLock(name))
	case queueing:
		return w.queue(ctx, mine.NewFairLock(name), theirs.NewFairLock(name))
	case sharing:
		return w.share(ctx, mine.NewRWLock(name), theirs.NewRWLock(name))
	case inspectBoth:
		both := theirs.NewRWLock(name, rlock.WithFencing())
		return w.inspect(ctx, mine, both.Reader(), both.Writer())
	case electing:
		return elect(ctx, mine, name)
	case replicating:
		return replicate(ctx, mine.NewLock(name, rlock.WithReplicas(1, 10*time.Millisecond)))
	}
	return w.inspect(ctx, mine, theirs.NewLock(name, rlock.WithFencing()))
}

func (w *aclWorld) client(rdb *redis.Client) *rlock.Client {
	c, err := rlock.New(rdb, &rlock.Options{
		Prefix: aclPrefix, LeaseTime: 3 * time.Second, UnlockTimeout: time.Second,
		Trace: rlock.Trace{Waiting: func(context.Context, rlock.Refusal) { notice(w.waiting) }},
	})
	require.NoError(w.t, err)
	return c
}

// mutex locks, nests, renews and unlocks, meets a lock of somebody else, waits, and
// passes the lock on.
func (w *aclWorld) mutex(ctx context.Context, mine, theirs *rlock.Lock) error {
	held, hold, err := mine.Lock(ctx)
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	_, inner, err := mine.Lock(held)
	if err != nil {
		return errors.Join(fmt.Errorf("nested: %w", err), hold.Unlock(ctx))
	}
	if err := errors.Join(inner.Unlock(ctx), hold.Unlock(ctx)); err != nil {
		return fmt.Errorf("unlock: %w", err)
	}
	if err := errors.Join(w.renewal(ctx, mine.Name()), w.turns(ctx, mine, theirs), w.expiry(ctx, mine)); err != nil {
		return err
	}
	_, hold, err = theirs.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = hold.Unlock(ctx) }()
	if _, _, err := mine.TryLock(ctx); !errors.Is(err, rlock.ErrNotAcquired) {
		return fmt.Errorf("busy: %w", cmp.Or(err, errNotExclusive))
	}
	if _, err := mine.ForceUnlock(ctx); err != nil {
		return fmt.Errorf("force-unlock: %w", err)
	}
	return nil
}

func (w *aclWorld) renewal(ctx context.Context, name string) error {
	renewed := make(chan struct{}, 1)
	c, err := rlock.New(w.user, &rlock.Options{
		Prefix: aclPrefix, LeaseTime: 3 * time.Second,
		Trace: rlock.Trace{Renewed: func(rlock.Renewal) { notice(renewed) }},
	})
	require.NoError(w.t, err)
	defer closeWithin(c, closeTimeout)
	held, hold, err := c.NewLock(name).Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = hold.Unlock(ctx) }()
	select {
	case <-renewed:
		return nil
	case <-held.Done():
		return fmt.Errorf("renewal: %w", context.Cause(held))
	}
}

func (w *aclWorld) fence(ctx context.Context, mine, theirs *rlock.Lock) error {
	if err := w.turns(ctx, mine, theirs); err != nil {
		return err
	}
	var last int64
	for range 2 {
		_, hold, err := mine.Lock(ctx)
		if err != nil {
			return err
		}
		if err := hold.Unlock(ctx); err != nil {
			return err
		}
		if hold.Token() <= last {
			return fmt.Errorf("token %d after %d", hold.Token(), last)
		}
		last = hold.Token()
	}
	return nil
}

// turns has each wait for the other, in the queue.
func (w *aclWorld) turns(ctx context.Context, mine, theirs *rlock.Lock) error {
	for _, pair := range [][2]*rlock.Lock{{theirs, mine}, {mine, theirs}} {
		_, hold, err := pair[0].Lock(ctx)
		if err != nil {
			return err
		}
		next := w.waiter(ctx, pair[1])
		if err := errors.Join(hold.Unlock(ctx), <-next); err != nil {
			return fmt.Errorf("turns: %w", err)
		}
	}
	return nil
}

// waiter waits for a lock and releases it; that it queues by now is certain, if it
// can at all.
func (w *aclWorld) waiter(ctx context.Context, mu *rlock.Lock) <-chan error {
	done := make(chan error, 1)
	go func() { done <- mu.Do(ctx, func(context.Context) error { return nil }) }()
	within(3*time.Second, func() bool { return len(done) == 1 || w.queued(ctx, mu.Name()) == 1 })
	return done
}

// queued returns how many have a ticket.
func (w *aclWorld) queued(ctx context.Context, name string) int64 {
	return w.admin.ZCount(ctx, relative("rlock_queue", name), "1", "+inf").Val()
}

// redissonOwner is how Redisson names one.
const redissonOwner = "8743c9c0-0795-4907-87fd-6c719a6b4586:61"

// expiry waits until the lock of a dead Redisson ends.
func (w *aclWorld) expiry(ctx context.Context, mine *rlock.Lock) error {
	if err := w.takeAsRedisson(ctx, mine.Name(), 500*time.Millisecond); err != nil {
		return err
	}
	// A call that waits goes on for some seconds after a refusal, so the lock may be free before the call fails.
	if _, _, err := mine.TryLockFor(ctx, 300*time.Millisecond); !errors.Is(err, rlock.ErrNotAcquired) {
		return fmt.Errorf("behind Redisson: %w", err)
	}
	if err := <-w.waiter(ctx, mine); err != nil {
		return fmt.Errorf("after Redisson: %w", err)
	}
	return nil
}

func (w *aclWorld) takeAsRedisson(ctx context.Context, name string, lease time.Duration) error {
	return errors.Join(w.admin.HSet(ctx, aclPrefix+name, redissonOwner, 1).Err(), w.admin.PExpire(ctx, aclPrefix+name, lease).Err())
}

// wake waits for a lock, is told that it is its own, and tells the next.
func (w *aclWorld) wake(ctx context.Context, mine, theirs *rlock.Lock) error {
	return wakes(ctx, mine, theirs, w.admin.Subscribe, func() []string {
		return w.admin.PubSubChannels(ctx, relative("rlock_channel", mine.Name())+":*").Val()
	}, func() bool { return w.queued(ctx, mine.Name()) == 1 })
}

// wakes listens to its own channel while it waits, and not any longer; and when it
// passes the lock on, the other is told by a message that listen lets one hear.
func wakes(ctx context.Context, mine, theirs *rlock.Lock, listen func(context.Context, ...string) *redis.PubSub, channels func() []string, queued func() bool) error {
	next := make(chan error, 1)
	begin := func(mu *rlock.Lock) (channel string) {
		go func() { next <- mu.Do(ctx, func(context.Context) error { return nil }) }()
		within(3*time.Second, func() bool { return len(next) == 1 || len(channels()) == 1 && queued() })
		if listening := channels(); len(listening) == 1 {
			return listening[0]
		}
		return ""
	}
	_, hold, err := theirs.Lock(ctx)
	if err != nil {
		return err
	}
	listens := begin(mine) != ""
	if err := errors.Join(hold.Unlock(ctx), <-next); err != nil {
		return fmt.Errorf("wait: %w", err)
	}
	switch {
	case !listens:
		return errors.New("not subscribed")
	case !within(5*time.Second, func() bool { return len(channels()) == 0 }):
		return errors.New("still subscribed")
	}
	if _, hold, err = mine.Lock(ctx); err != nil {
		return err
	}
	channel := begin(theirs)
	listener := listen(ctx, channel)
	defer func() { _ = listener.Close() }()
	_, err = listener.Receive(ctx)
	if err = errors.Join(err, hold.Unlock(ctx), <-next); err != nil {
		return fmt.Errorf("pass on to %s: %w", channel, err)
	}
	if _, err = listener.ReceiveTimeout(ctx, 3*time.Second); err != nil {
		return fmt.Errorf("the next was not told: %w", err)
	}
	return nil
}

// redisson is told of the release of one of Redisson's clients, and tells one.
func (w *aclWorld) redisson(ctx context.Context, mine *rlock.Lock) error {
	if err := w.takeAsRedisson(ctx, mine.Name(), 4*time.Second); err != nil {
		return err
	}
	channel := relative("redisson_lock__channel", mine.Name())
	listeners := func() int64 { return w.admin.PubSubNumSub(ctx, channel).Val()[channel] }
	next := w.waiter(ctx, mine)
	heard := within(3*time.Second, func() bool { return len(next) == 1 || listeners() == 1 })
	if err := errors.Join(w.admin.Del(ctx, aclPrefix+mine.Name()).Err(), w.admin.Publish(ctx, channel, 0).Err(), <-next); err != nil {
		return fmt.Errorf("wait for Redisson: %w", err)
	}
	_, hold, err := mine.Lock(ctx)
	if err != nil {
		return err
	}
	left := within(5*time.Second, func() bool { return listeners() == 0 })
	listener := w.admin.Subscribe(ctx, channel)
	defer func() { _ = listener.Close() }()
	if _, err := listener.Receive(ctx); err != nil {
		return err
	}
	if err := hold.Unlock(ctx); err != nil {
		return err
	}
	_, err = listener.ReceiveTimeout(ctx, 3*time.Second)
	switch {
	case !heard:
		return errors.New("not subscribed for Redisson")
	case !left:
		return errors.New("still subscribed for Redisson")
	case err != nil:
		return fmt.Errorf("Redisson was not told: %w", err)
	}
	return nil
}
