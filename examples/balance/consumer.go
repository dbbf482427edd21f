package balance

import (
	"context"
	"errors"

	"github.com/go-rlock/rlock/rlock"
)

// ErrProcessed says that the book has a message of that id already.
var ErrProcessed = errors.New("balance: message was processed before")

// Message is a deduction that a broker delivers at least once: also twice, to two hosts, at the same time.
type Message struct {
	ID string
	Deduction
}

// Book is where the balances are, beside the ids of the messages that were processed.
type Book interface {
	Cents(ctx context.Context, account string) (int64, error)
	Processed(ctx context.Context, id string) (bool, error)

	// Process writes the balance and the id in one transaction. The id is a unique key: ErrProcessed.
	Process(ctx context.Context, id, account string, cents int64) error
}

// NewConsumer returns a function for each message, which any number of goroutines may call. After nil the message is
// acknowledged; after an error, also [rlock.ErrLeaseLost], the broker delivers it again.
//
// Messages of different accounts run in parallel. The lock makes those of one account wait for each other, so that none
// reads a balance that another is about to write. The unique key is what guarantees that a message counts once.
func NewConsumer(locks *rlock.Client, book Book) func(context.Context, Message) error {
	return func(ctx context.Context, m Message) error {
		return locks.NewLock("account:"+m.Account).Do(ctx, func(ctx context.Context) error {
			if done, err := book.Processed(ctx, m.ID); done || err != nil {
				return err
			}
			cents, err := book.Cents(ctx, m.Account)
			if err != nil {
				return err
			}
			if cents >= m.Cents {
				cents -= m.Cents // otherwise it is refused, which is an outcome too
			}
			if err := book.Process(ctx, m.ID, m.Account, cents); !errors.Is(err, ErrProcessed) {
				return err
			}
			return nil
		})
	}
}
