package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/go-rlock/rlock/examples/balance"
	"github.com/go-rlock/rlock/examples/fencing"
	"github.com/go-rlock/rlock/examples/flashsale"
	"github.com/go-rlock/rlock/examples/nested"
	"github.com/go-rlock/rlock/examples/nightly"
	"github.com/go-rlock/rlock/examples/payment"
	"github.com/go-rlock/rlock/rlock"
)

// together calls f ten times at once on each host, and returns how many calls returned nil, and the errors other
// than those of the kind expected.
func together(hosts [2]host, expected error, f func(host, n int) error) (succeeded int, err error) {
	var mu sync.Mutex // guards the results
	var calls sync.WaitGroup
	for h := range hosts {
		for n := range 10 {
			calls.Go(func() {
				failed := f(h, n)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case failed == nil:
					succeeded++
				case expected == nil || !errors.Is(failed, expected):
					err = errors.Join(err, failed)
				}
			})
		}
	}
	calls.Wait()
	return succeeded, err
}

func showFlashsale(ctx context.Context, out io.Writer, hosts [2]host) error {
	item := fmt.Sprint("lamp-", time.Now().UnixNano()) // of this show only, as the Redis may be a real one
	tag := "sale:{" + item + "}"
	defer hosts[0].rdb.Del(context.WithoutCancel(ctx), tag+":stock", tag+":orders") // a real sale keeps them
	var sales [2]*flashsale.Sale
	for i, h := range hosts {
		sales[i] = flashsale.New(h.rdb, h.locks, item)
	}
	if err := sales[0].Open(ctx, 7); err != nil {
		return err
	}
	sold, err := together(hosts, flashsale.ErrSoldOut, func(h, n int) error {
		return sales[h].Buy(ctx, fmt.Sprint("customer ", h, n))
	})
	fmt.Fprintf(out, "  7 lamps, 20 customers on 2 hosts: %d sold\n", sold)
	return err
}

// table is a database whose queries take a while.
type table struct {
	mu       sync.Mutex // guards what follows
	cents    map[string]int64
	receipts map[string]payment.Receipt
	charges  int
}

func (t *table) Cents(_ context.Context, account string) (int64, error) {
	time.Sleep(time.Millisecond)
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cents[account], nil
}

func (t *table) SetCents(_ context.Context, account string, cents int64) error {
	time.Sleep(time.Millisecond)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cents[account] = cents
	return nil
}

func (t *table) Find(_ context.Context, number string) (payment.Receipt, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.receipts[number]
	if !ok {
		return r, payment.ErrUnpaid
	}
	return r, nil
}

func (t *table) Insert(_ context.Context, r payment.Receipt) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.receipts[r.Number]; ok {
		return payment.ErrDuplicate
	}
	t.receipts[r.Number] = r
	return nil
}

func (t *table) Charge(_ context.Context, o payment.Order) (string, error) {
	t.mu.Lock()
	t.charges++
	t.mu.Unlock()
	time.Sleep(100 * time.Millisecond)
	return "charge of " + o.Number, nil
}

func showBalance(ctx context.Context, out io.Writer, hosts [2]host) error {
	accounts := &table{cents: map[string]int64{"alice": 100}}
	var deduct [2]func(context.Context, balance.Deduction) (int64, error)
	for i, h := range hosts {
		deduct[i] = balance.NewDeduct(h.locks, accounts)
	}
	succeeded, err := together(hosts, balance.ErrInsufficient, func(h, _ int) error {
		_, err := deduct[h](ctx, balance.Deduction{Account: "alice", Cents: 30})
		return err
	})
	fmt.Fprintf(out, "  20 requests for 30 of 100 cents: %d were paid out, %d cents are left\n", succeeded, accounts.cents["alice"])
	return err
}

func showPayment(ctx context.Context, out io.Writer, hosts [2]host) error {
	bank := &table{receipts: make(map[string]payment.Receipt)}
	var services [2]*payment.Service
	for i, h := range hosts {
		services[i] = payment.New(h.locks, bank, bank)
	}
	receipts, err := together(hosts, nil, func(h, _ int) error {
		_, err := services[h].Pay(ctx, payment.Order{Number: "2026-0042", Cents: 1999})
		return err
	})
	fmt.Fprintf(out, "  20 clicks on the same order: %d receipts, %d charge\n", receipts, bank.charges)
	return err
}

// errBusy is the answer of the handler while another request ships the same order.
var errBusy = errors.New("409")

func showNested(ctx context.Context, out io.Writer, hosts [2]host) error {
	var most [2]int
	var handlers [2]http.Handler
	for i, h := range hosts {
		locks := nested.Locks{Client: h.locks}
		handlers[i] = nested.NewHandler(&nested.Service{Locks: locks, Repo: &nested.Repository{
			Locks: locks,
			Store: func(ctx context.Context, id, _ string) error {
				most[i] = max(most[i], locks.Order(id).HoldCount(ctx)) // under the lock of the order
				time.Sleep(10 * time.Millisecond)
				return nil
			},
		}})
	}
	shipped, err := together(hosts, errBusy, func(h, _ int) error {
		w := httptest.NewRecorder()
		handlers[h].ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/orders/42/ship", nil))
		switch w.Code {
		case http.StatusOK:
			return nil
		case http.StatusConflict:
			return errBusy
		}
		return errors.New(strings.TrimSpace(w.Body.String()))
	})
	fmt.Fprintf(out, "  handler, service and repository lock order 42, %d deep: of 20 requests at once %d shipped it, the others got 409\n",
		max(most[0], most[1]), shipped)
	return err
}

func showNightly(ctx context.Context, out io.Writer, hosts [2]host) error {
	var mu sync.Mutex // guards runs
	runs := 0
	night := time.Now().UTC().Format("2006-01-02T15:04:05.000000000") // a real job has the date of the schedule
	var start [2]func(context.Context, string) (bool, error)
	for i, h := range hosts {
		start[i] = nightly.New(h.rdb, h.locks, func(context.Context, string) error {
			mu.Lock()
			defer mu.Unlock()
			runs++
			return nil
		})
	}
	for range 2 { // both hosts start the job, and again 300 ms later, as if their schedules did not agree
		for _, run := range start {
			if _, err := run(ctx, night); err != nil {
				return err
			}
		}
		time.Sleep(300 * time.Millisecond)
	}
	fmt.Fprintf(out, "  2 hosts started the job of a night twice each: it ran %d time\n", runs)
	return nil
}

func showFencing(ctx context.Context, out io.Writer, hosts [2]host) error {
	const name = "record:42"
	store := new(fencing.Store)
	frozen := make(chan error, 1)
	has, released := make(chan struct{}), make(chan struct{})
	go func() {
		// A host that stands still does not renew.
		mu := hosts[0].locks.NewLock(name, rlock.WithFencing(), rlock.WithoutRenewal(), rlock.WithLeaseTime(time.Second))
		frozen <- fencing.Update(ctx, mu, store, func(context.Context) (string, error) {
			close(has)
			<-released
			return "by the first host", nil
		})
	}()
	select {
	case <-has:
	case err := <-frozen:
		return err
	}
	err := fencing.Update(ctx, hosts[1].locks.NewLock(name, rlock.WithFencing()), store, func(context.Context) (string, error) {
		return "by the second host", nil
	})
	close(released)
	late := <-frozen
	if err != nil {
		return err
	}
	if !errors.Is(late, fencing.ErrStale) {
		return fmt.Errorf("the late write was not refused: %w", late)
	}
	fmt.Fprintf(out, "  the first host stood still for longer than its lease, and then wrote: refused, the record is %q\n", store.Value())
	return nil
}
