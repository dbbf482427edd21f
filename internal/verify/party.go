package verify

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// party is a client process. It obeys lines on its standard input: a job in
// JSON, "free", "rest", "heal", "renew", "close", "sample"; and answers each.
func party([]string) {
	p := &partner{base: runtime.NumGoroutine()}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		switch line := in.Text(); line {
		case "free": // nothing is answered
			close(p.freed)
		case "rest":
			p.rest()
			fmt.Println("rested")
		case "heal":
			close(p.healed)
			p.clients.Wait()
			for _, s := range p.pulse.stop() {
				p.journal.write(event{Kind: opStall, At: s.call, Seen: s.ret})
			}
			fmt.Println("done")
		case "renew": // while the clients are at it
			before := p.renew()
			p.retire(before)
			fmt.Println("renewed", before.close())
		case "close":
			left, err := p.close()
			fmt.Println("closed", left, err)
		case "sample":
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			fmt.Println("sample", m.HeapAlloc, runtime.NumGoroutine())
		default:
			var j job
			if err := json.NewDecoder(strings.NewReader(line)).Decode(&j); err != nil {
				panic(err)
			}
			p.start(j)
			fmt.Println("ready")
		}
	}
}

// partner is the state of a party.
type partner struct {
	base    int // goroutines before the first client
	job     job
	rdbs    []*redis.Client // of each server
	locks   atomic.Pointer[lockers]
	store   store
	journal journal
	queue   queue
	freed   chan struct{} // who stays inside is to leave
	healed  chan struct{}
	clients sync.WaitGroup
	busy    *hog
	pulse   *pulse // of the round
	counts
}

// lockers are the lock clients of a party, one for each server.
type lockers struct{ clients []*rlock.Client }

// start has the party's clients take part in every history. The connections
// stay until close.
func (p *partner) start(j job) {
	p.job, p.freed, p.healed = j, make(chan struct{}), make(chan struct{})
	if p.journal.f != nil {
		_ = p.journal.f.Close()
	}
	p.journal = openJournal(j.Journal)
	if p.rdbs == nil {
		p.connect()
	}
	p.pulse = newPulse()
	if j.Kind == "pool" {
		p.busy = exhaust(p.rdbs[0])
	}
	for h := range j.Histories {
		for n := range j.Clients {
			if (h+n)%parties == j.Party {
				p.clients.Go(func() {
					if j.Fires {
						newHost(p, h, n).run()
					} else {
						newClient(p, h, n).run()
					}
				})
			}
		}
	}
}

// connect makes the clients, of the kind that the row asks for.
func (p *partner) connect() {
	for _, addr := range p.job.Addrs {
		p.rdbs = append(p.rdbs, p.dial(addr))
	}
	p.store = store{redis.NewClient(&redis.Options{Addr: p.job.Store})}
	p.renew()
}

func (p *partner) dial(addr string) *redis.Client {
	opts := &redis.Options{Addr: addr, ClientName: "party"}
	switch p.job.Kind {
	case "retries":
		opts.MaxRetries, opts.ReadTimeout = 10, 200*time.Millisecond
	case "no retries":
		opts.MaxRetries = -1
	case "pool":
		opts.PoolSize, opts.PoolTimeout = 2, 20*time.Millisecond
	case "hidden": // from the look that go-redis takes before it reuses a connection, as with TLS
		opts.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			var d net.Dialer
			conn, err := d.DialContext(ctx, network, addr)
			return struct{ net.Conn }{conn}, err
		}
	case "user":
		opts.Username, opts.Password = "locks", "secret"
	}
	rdb := redis.NewClient(opts)
	if p.job.Kind == "twice" {
		rdb.AddHook(redistest.SendTwice())
	}
	return rdb
}

// renew makes other lock clients and returns those before.
func (p *partner) renew() *lockers {
	locks := new(lockers)
	for _, rdb := range p.rdbs {
		c, err := rlock.New(rdb, &rlock.Options{Trace: rlock.Trace{Waiting: p.waiting}})
		if err != nil {
			panic(err)
		}
		locks.clients = append(locks.clients, c)
	}
	return p.locks.Swap(locks)
}

// waiting is told of refusals, in the middle of the call.
func (p *partner) waiting(_ context.Context, r rlock.Refusal) {
	if e, sure := p.queue.refused(r.Lock); sure && p.job.Lock == fair {
		p.journal.write(e)
	}
}

func (l *lockers) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	errs := make([]error, len(l.clients))
	var all sync.WaitGroup
	for n, c := range l.clients {
		all.Go(func() { errs[n] = c.Close(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// close gives everything back and returns what is left: a number of goroutines,
// and an error or nil.
func (p *partner) close() (left int, err error) {
	err = p.locks.Load().close()
	if !p.job.Fires && p.job.Lock != results { // whose calls of locks nobody has counted
		err = errors.Join(err, p.settle(append(p.retired, p.locks.Load())))
	}
	p.retired = nil
	for _, rdb := range p.rdbs {
		_ = rdb.Close()
	}
	_ = p.store.rdb.Close()
	p.rdbs = nil
	for range 500 {
		if left = runtime.NumGoroutine() - p.base; left <= 0 {
			return 0, err
		}
		time.Sleep(10 * time.Millisecond)
	}
	stacks := make([]byte, 1<<20)
	fmt.Fprintf(os.Stderr, "%s\n", stacks[:runtime.Stack(stacks, true)])
	return left, err
}

// rest ends the application's own load, and returns when the client has
// connections again. A fault ends with all of them cut, and on a busy machine it
// may take a second to open dozens at once: nobody is asleep meanwhile.
func (p *partner) rest() {
	if p.busy != nil {
		p.busy.stop()
		p.busy = nil
	}
	var all sync.WaitGroup
	for _, rdb := range p.rdbs {
		for range rdb.Options().PoolSize {
			all.Go(func() {
				for deadline := time.Now().Add(10 * time.Second); rdb.Ping(context.Background()).Err() != nil && time.Now().Before(deadline); {
					time.Sleep(time.Millisecond)
				}
			})
		}
	}
	all.Wait()
}

// hog takes the connections of the application's pool for a while, again and again.
type hog struct {
	end  context.CancelFunc
	done sync.WaitGroup
}

func exhaust(rdb *redis.Client) *hog {
	ctx, cancel := context.WithCancel(context.Background())
	h := &hog{end: cancel}
	for n := range rdb.Options().PoolSize {
		h.done.Go(func() {
			for ctx.Err() == nil {
				rdb.BLPop(ctx, 300*time.Millisecond, "list") // nobody pushes
				pause(ctx, time.Duration(20+10*n)*time.Millisecond)
			}
		})
	}
	return h
}

func (h *hog) stop() {
	h.end()
	h.done.Wait()
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
