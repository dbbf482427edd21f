// Package flashsale sells a limited stock to a crowd, on any number of hosts, and
// never a piece too many: once under a lock, once with a counter in a script.
package flashsale

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/rlock"
)

// ErrSoldOut is the answer to those who come too late.
var ErrSoldOut = errors.New("flashsale: sold out")

// Sale is the sale of one item.
type Sale struct {
	rdb           redis.UniversalClient
	lock          *rlock.Lock
	stock, orders string // keys, in one cluster slot
}

// New returns the sale of an item, the same on every host.
func New(rdb redis.UniversalClient, locks *rlock.Client, item string) *Sale {
	tag := "sale:{" + item + "}"
	return &Sale{rdb, locks.NewLock("lock:" + tag), tag + ":stock", tag + ":orders"}
}

// Open puts pieces on sale.
func (s *Sale) Open(ctx context.Context, pieces int) error {
	return s.rdb.Set(ctx, s.stock, pieces, 0).Err()
}

// Buy sells a piece under the lock: the stock is still what was read when the
// order is written. This is the way if stock, orders and payment are in
// different systems, and one statement or script cannot change them all.
func (s *Sale) Buy(ctx context.Context, customer string) error {
	return s.lock.Do(ctx, func(ctx context.Context) error {
		stock, err := s.rdb.Get(ctx, s.stock).Int()
		if err != nil {
			return err
		}
		if stock <= 0 {
			return ErrSoldOut
		}
		_, err = s.rdb.TxPipelined(ctx, func(tx redis.Pipeliner) error {
			tx.Set(ctx, s.stock, stock-1, 0)
			tx.RPush(ctx, s.orders, customer)
			return nil
		})
		return err
	})
}

var sell = redis.NewScript(`
local stock = redis.call('get', KEYS[1])
if not stock then
	return redis.error_reply('ERR nothing is on sale')
end
if tonumber(stock) <= 0 then
	return 0
end
redis.call('decr', KEYS[1])
redis.call('rpush', KEYS[2], ARGV[1])
return 1`)

// BuyCounted sells a piece without a lock. Redis runs a script alone, so where
// everything the sale changes is on one server nobody has to wait for anybody,
// and no lease can end between the look and the change: prefer it.
func (s *Sale) BuyCounted(ctx context.Context, customer string) error {
	sold, err := sell.Run(ctx, s.rdb, []string{s.stock, s.orders}, customer).Bool()
	if err == nil && !sold {
		err = ErrSoldOut
	}
	return err
}

// Orders returns the customers who got a piece.
func (s *Sale) Orders(ctx context.Context) ([]string, error) {
	return s.rdb.LRange(ctx, s.orders, 0, -1).Result()
}
