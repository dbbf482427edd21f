package request

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	soonest    = 100 * time.Millisecond // a request without an answer gets a copy after that at the earliest
	severalFor = 4                      // and after as many times the newest round trip
	nextRound  = 50 * time.Millisecond  // from one round of copies to the next
	mostAtOnce = 4                      // copies in a round
	mostAhead  = 48                     // copies without a success, of one client
	earnedIn   = time.Second            // after that the client may send one copy more
	dialing    = 500 * time.Millisecond // a request that is not sent yet gets a copy after that at the latest
	pingTime   = 400 * time.Millisecond // how long a PING waits for the answer of a fast server
	longest    = time.Hour              // of a request without a bound
)

// Copies sends a request without an answer once more while the first is in progress, by another connection: the
// server may be well, and only the connection dead. A firewall, NAT or load balancer forgets idle
// connections silently, and so does a host that is gone. Neither side closes such a connection, so
// only the missing answer tells. The first request is not given up: a slow server answers it. Whichever
// is answered first counts, and all may be executed, as every script is safe to repeat.
//
//	lease 3 s, attempts of 500 ms, 10 dead connections in the pool, one attempt after another
//	1.0 s  renewal by the 1st: no answer      1.5 s  by the 2nd: no answer
//	2.0 s  by the 3rd: no answer              2.5 s  by the 4th: no answer, and the lease is over
//
//	the same with copies
//	1.00 s by the 1st   1.10 s by the 2nd   1.15 s by the 3rd and 4th   1.20 s by the 5th to 8th
//	1.25 s by the 9th and 10th, and by two new connections: renewed
//
// A slow server must not get more to do. So a copy waits for several times the newest round trip, and
// all copies of a client have one budget: mostAhead at once, and then one in a second. Copies count only
// while they are no use. If a copy takes a third of the time for which the first request has had no answer,
// or less, the connection was at fault: the budget gets the copies of that request back. If the server is
// slow, a copy takes as long as the first request. A first request that still waits for its connection has
// to be eight times as late: a slow server takes several round trips to make one.
//
//	a server that has become slow, 500 ms a round trip, and a client with one idle connection
//	0.00 s  the request waits for a new connection   1.05 s  another one is idle: the first copy
//	1.55 s  the copy is answered after a third of the time, and nothing is dead
//
// With a Sentinel, go-redis asks the Sentinel for each new connection. If the connection to the Sentinel is
// dead as well, go-redis waits for its ReadTimeout first, 5 s by default, which a lease of 3 s does not survive.
//
// A nil Copies sends none.
type Copies struct {
	Background func(func()) // runs a function in a goroutine; the client's Close waits for the goroutine

	mu    sync.Mutex    // guards what follows
	spent int           // copies without a success
	since time.Time     // the first of spent is forgotten earnedIn later
	trip  time.Duration // see answered
}

// patience is how long a request waits for the answer before the first copy. trip is the newest round
// trip, 0 if none is known. When half of the time for the request has passed, nothing is gained by
// waiting any longer: a connection that is still being made will hardly be in time.
func patience(trip, bound time.Duration) time.Duration {
	return min(max(severalFor*trip, soonest), bound/2)
}

// take takes n copies from the budget, or as many as are left.
func (k *Copies) take(n int) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if earned := int(now.Sub(k.since) / earnedIn); earned >= k.spent {
		k.spent, k.since = 0, now
	} else {
		k.spent, k.since = k.spent-earned, k.since.Add(time.Duration(earned)*earnedIn)
	}
	n = min(n, mostAhead-k.spent)
	k.spent += n
	return n
}

// giveBack gives n copies back to the budget.
func (k *Copies) giveBack(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.spent = max(k.spent-n, 0)
}

// answered notes a round trip of a request that is not sent by a [Group]. The servers of a cluster are
// not distinguished, so a longer trip counts for some time.
func (k *Copies) answered(took time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.trip = max(took, k.trip*7/8)
}

func (k *Copies) newest() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.trip
}

// Race makes a request by first and, as long as there is no answer, by again at the same time: in rounds, until
// ctx ends. again gets the number of the copy, from 0 on. The first answer ends the race: no error, or an
// error reply of Redis. Without any answer Race returns the error of first; after the end of ctx Race
// sends no more, and waits. Copies without an answer are left to themselves: see [Doubtful].
func Race[T any](ctx context.Context, k *Copies, first func() (T, error), again func(ctx context.Context, n int) (T, error)) (T, error) {
	if k == nil {
		return first()
	}
	trip, began := k.newest(), time.Now()
	r := newRace[T](k, func() time.Duration { return time.Since(began) / 3 }) // when the first was sent is not known
	bound := longest
	if deadline, ok := ctx.Deadline(); ok {
		bound = time.Until(deadline)
	}
	r.launch(false, first)
	a := r.run(ctx, patience(trip, bound), again)
	if !a.copied && IsAnswer(a.err) {
		k.answered(a.took)
	}
	return a.value, a.err
}

// race is one request with its copies.
type race[T any] struct {
	*Copies
	useful  func() time.Duration // the longest time that a copy can take to show that the connection of the first request is dead
	answers chan result[T]
	over    chan struct{} // closed when no answer is wanted any more
}

func newRace[T any](k *Copies, useful func() time.Duration) *race[T] {
	return &race[T]{k, useful, make(chan result[T]), make(chan struct{})}
}

// result is how a request, or a copy, has ended.
type result[T any] struct {
	value  T
	err    error
	copied bool
	took   time.Duration
}

// IsAnswer reports whether Redis has answered.
func IsAnswer(err error) bool {
	_, reply := errors.AsType[redis.Error](err)
	return err == nil || reply
}

// launch makes a request in a goroutine. If a hook of the client ends the goroutine, there is no answer.
func (r *race[T]) launch(copied bool, request func() (T, error)) {
	r.Background(func() {
		began := time.Now()
		a := result[T]{err: ErrNoAnswer, copied: copied}
		defer func() { r.tell(a) }()
		a.value, a.err = request()
		a.took = time.Since(began)
	})
}

// tell ends the first request, or a copy.
func (r *race[T]) tell(a result[T]) {
	select {
	case r.answers <- a:
	case <-r.over:
	}
}

// run sends copies after wait, and returns the first answer. The first request is under way.
func (r *race[T]) run(ctx context.Context, wait time.Duration, again func(ctx context.Context, n int) (T, error)) (failed result[T]) {
	defer close(r.over)
	own, cancel := context.WithCancel(ctx) // ends the wait of copies for a connection
	defer cancel()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	left := ctx.Done()
	open, sent, round := 1, 0, 1
	for {
		select {
		case a := <-r.answers:
			if IsAnswer(a.err) {
				if a.copied && a.took <= r.useful() {
					r.giveBack(sent)
				}
				return a
			}
			if open--; !a.copied || failed.err == nil {
				failed = a
			}
			if open == 0 {
				return failed
			}
		case <-timer.C:
			for range r.take(round) {
				number := sent
				r.launch(true, func() (T, error) { return again(own, number) })
				open, sent = open+1, sent+1
			}
			round = min(2*round, mostAtOnce)
			timer.Reset(nextRound)
		case <-left:
			left = nil
			timer.Stop()
		}
	}
}

// Doubtful returns ctx for a request, and a function that reports whether copies of the request have been
// sent. Then the outcome is in doubt even after an answer: a copy, or the first request, may still be
// executed.
func Doubtful(ctx context.Context) (context.Context, func() bool) {
	d := &doubtful{Context: ctx}
	return d, d.copied.Load
}

type doubtful struct {
	context.Context
	copied atomic.Bool
}

type doubtKey struct{}

func (d *doubtful) Value(key any) any {
	if key == (doubtKey{}) {
		return d
	}
	return d.Context.Value(key)
}

// doubt tells [Doubtful] that copies are sent, and reports whether ctx goes on. In this order: whoever
// leaves knows of the copies, or none is sent.
func doubt(ctx context.Context) bool {
	if d, ok := ctx.Value(doubtKey{}).(*doubtful); ok {
		d.copied.Store(true)
	}
	return ctx.Err() == nil
}

// Lane is one way to a server: by an idle connection of one of the two pools of go-redis, for single
// commands and for pipelines, or by a new connection.
type Lane struct {
	redis.UniversalClient
	piped bool // by the pool of pipelines
}

// Lane returns the way of copy n. Copies go in turn by the pool with more idle connections, and by the
// other: one after another may be dead, and new ones may not be had.
//
// A request keeps a dead connection for 5 s, by default. If idle connections take up all places of a pool,
// all may be dead, and there is no room for a new one. Then a PING goes first, with a time-out of its own,
// as go-redis drops a connection without an answer. The client with that time-out has no hooks of the
// application, which a PING can do without.
func (k *Copies) Lane(ctx context.Context, rdb redis.UniversalClient, n int) (Lane, error) {
	singles, even := rdb.PoolStats(), n%2 == 0
	pipelines := (*redis.PoolStats)(singles.PipelineStats)
	if pipelines == nil {
		pipelines = &redis.PoolStats{}
	}
	l := Lane{rdb, even}
	if singles.IdleConns != pipelines.IdleConns {
		l.piped = (pipelines.IdleConns > singles.IdleConns) == even
	}
	client, ok := rdb.(*redis.Client)
	if !ok {
		return l, nil
	}
	opts := client.Options()
	pool, size := singles, opts.PoolSize
	if l.piped {
		pool, size = pipelines, cmp.Or(opts.PipelinePoolSize, redis.DefaultPipelinePoolSize)
	}
	limit := max(severalFor*k.newest(), pingTime)
	if pool.IdleConns == 0 || int(pool.TotalConns) < size || opts.ReadTimeout <= limit { // 0: connections may refuse deadlines
		return l, nil
	}
	ping := unrepeated{redis.NewStatusCmd(ctx, "ping")}
	err := Lane{client.WithTimeout(limit), l.piped}.Process(ctx, ping)
	if IsAnswer(err) {
		err = nil
	}
	return l, err
}

// hasIdle reports whether a client has an idle connection. A request that still waits for a connection
// gets a copy only then: otherwise the copy would wait, too, and the request would be in doubt for nothing.
func hasIdle(rdb redis.UniversalClient) bool {
	stats := rdb.PoolStats()
	return stats.IdleConns > 0 || stats.PipelineStats != nil && stats.PipelineStats.IdleConns > 0
}

// unrepeated is a command that go-redis does not repeat.
type unrepeated struct{ redis.Cmder }

func (unrepeated) NoRetry() bool { return true }

// Process sends a command.
func (l Lane) Process(ctx context.Context, cmd redis.Cmder) error {
	if !l.piped {
		return l.UniversalClient.Process(ctx, cmd)
	}
	pipe := l.UniversalClient.Pipeline()
	_ = pipe.Process(ctx, cmd) // only queues
	if _, err := pipe.Exec(ctx); err != nil && cmd.Err() == nil {
		cmd.SetErr(err) // of a hook
	}
	return cmd.Err()
}

// Pipeline returns a pipeline.
func (l Lane) Pipeline() redis.Pipeliner {
	client, ok := l.UniversalClient.(*redis.Client)
	if !ok || l.piped {
		return l.UniversalClient.Pipeline()
	}
	conn := client.Conn() // its connection is one for single commands
	return &singlePipe{conn.Pipeline(), conn}
}

// singlePipe is a pipeline by a connection for single commands.
type singlePipe struct {
	redis.Pipeliner
	conn *redis.Conn
}

func (p *singlePipe) Exec(ctx context.Context) ([]redis.Cmder, error) {
	defer func() { _ = p.conn.Close() }()
	return p.Pipeliner.Exec(ctx)
}

// Twin is a command that can be sent twice at the same time: go-redis writes each answer into a command of
// its own.
type Twin interface {
	redis.Cmder
	Twin(ctx context.Context) redis.Cmder // returns the same command once more
	Take(twin redis.Cmder)                // makes the answer to twin the answer to this command, although go-redis may still be waiting for another
}
