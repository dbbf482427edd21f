// Package balance deducts from accounts, on any number of hosts, and never more
// than is there.
//
// Where the balance is a row and the check is all there is, no lock is needed:
//
//	UPDATE account SET cents = cents - $1 WHERE id = $2 AND cents >= $1
//
// The lock is for a decision that takes more than one statement, or more than
// one system: limits, vouchers, a fraud check.
package balance

import (
	"context"
	"errors"
	"time"

	"github.com/go-rlock/rlock/rlock"
)

// ErrInsufficient says that the account does not hold that much.
var ErrInsufficient = errors.New("balance: insufficient funds")

// Accounts is where the balances are.
type Accounts interface {
	Cents(ctx context.Context, account string) (int64, error)
	SetCents(ctx context.Context, account string, cents int64) error
}

// Deduction takes cents from an account.
type Deduction struct {
	Account string
	Cents   int64
}

// NewDeduct returns a function that makes deductions and returns what is left.
// It waits a second for other deductions from the same account, then gives up
// with [rlock.ErrNotAcquired]; other accounts are not waited for.
func NewDeduct(locks *rlock.Client, accounts Accounts) func(context.Context, Deduction) (left int64, err error) {
	lockFor := func(d Deduction) *rlock.Lock { return locks.NewLock("account:" + d.Account) }
	return rlock.Guard(lockFor, func(ctx context.Context, d Deduction) (int64, error) {
		cents, err := accounts.Cents(ctx, d.Account)
		if err != nil {
			return 0, err
		}
		if cents < d.Cents {
			return cents, ErrInsufficient
		}
		return cents - d.Cents, accounts.SetCents(ctx, d.Account, cents-d.Cents)
	}, rlock.WithWait(time.Second))
}
