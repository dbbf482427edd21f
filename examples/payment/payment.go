// Package payment pays each order once, however often and on however many hosts
// it is asked to: customers click twice, gateways repeat their callbacks.
//
// Four things stand in a row, and each needs the next one:
//
//  1. A first check answers most repetitions, without a lock.
//  2. The lock makes those that come at the same time wait for the first one.
//  3. A second check, under the lock, tells them that it has paid.
//  4. The unique key of the ledger refuses the second row should the lock have
//     been lost in between. The lock spares work; the key is what guarantees.
package payment

import (
	"context"
	"errors"
	"time"

	"github.com/go-rlock/rlock/rlock"
)

var (
	// ErrUnpaid is returned by a [Ledger] that has no receipt of that order.
	ErrUnpaid = errors.New("payment: unpaid")

	// ErrDuplicate is returned by a [Ledger] that has one already.
	ErrDuplicate = errors.New("payment: duplicate order number")
)

// Order is what is to be paid.
type Order struct {
	Number string
	Cents  int64
}

// Receipt says that an order is paid.
type Receipt struct {
	Number    string
	Reference string // of the charge
}

// Ledger keeps receipts in a table whose unique key is the order number.
type Ledger interface {
	Find(ctx context.Context, number string) (Receipt, error) // ErrUnpaid
	Insert(ctx context.Context, r Receipt) error              // ErrDuplicate
}

// Gateway moves the money. It takes the order number as its idempotency key: a
// second charge under the same number is the first one.
type Gateway interface {
	Charge(ctx context.Context, o Order) (reference string, err error)
}

// Service pays orders.
type Service struct {
	ledger  Ledger
	gateway Gateway
	once    func(context.Context, Order) (Receipt, error)
}

// New returns a service; each host has one.
func New(locks *rlock.Client, ledger Ledger, gateway Gateway) *Service {
	s := &Service{ledger: ledger, gateway: gateway}
	lockFor := func(o Order) *rlock.Lock { return locks.NewLock("payment:" + o.Number) }
	s.once = rlock.Guard(lockFor, s.pay, rlock.WithWait(10*time.Second))
	return s
}

// Pay pays the order unless it is paid, and returns the receipt. After an error,
// also [rlock.ErrLeaseLost], it is not known whether it is: call again.
func (s *Service) Pay(ctx context.Context, o Order) (Receipt, error) {
	if r, err := s.ledger.Find(ctx, o.Number); !errors.Is(err, ErrUnpaid) {
		return r, err
	}
	return s.once(ctx, o)
}

// pay is called under the order's lock.
func (s *Service) pay(ctx context.Context, o Order) (Receipt, error) {
	if r, err := s.ledger.Find(ctx, o.Number); !errors.Is(err, ErrUnpaid) {
		return r, err
	}
	reference, err := s.gateway.Charge(ctx, o)
	if err != nil {
		return Receipt{}, err
	}
	r := Receipt{o.Number, reference}
	if err := s.ledger.Insert(ctx, r); errors.Is(err, ErrDuplicate) {
		return s.ledger.Find(ctx, o.Number)
	} else if err != nil {
		return Receipt{}, err
	}
	return r, nil
}
