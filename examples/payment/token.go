package payment

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrToken says that a token was never issued for that order, has expired, or was used before.
var ErrToken = errors.New("payment: the form was sent before, or has expired")

// Tokens stop the second click on the same form. The page with the form gets a token; the request deletes the token to
// check it. Redis deletes a key once, so one request passes: a token needs no lock.
//
// A token does not make a payment happen once: a process may die after the check, and the customer then asks for a new
// form. So behind the token stands [Service.Pay], by the order number.
type Tokens struct {
	Redis redis.UniversalClient
	Valid time.Duration
}

// Issue makes a token for a form of that order.
func (t Tokens) Issue(ctx context.Context, number string) (token string, err error) {
	token = rand.Text()
	return token, t.Redis.Set(ctx, "payment_token:"+token, number, t.Valid).Err()
}

// Use checks a token by deleting it.
func (t Tokens) Use(ctx context.Context, token, number string) error {
	issued, err := t.Redis.GetDel(ctx, "payment_token:"+token).Result()
	switch {
	case errors.Is(err, redis.Nil), err == nil && issued != number:
		return ErrToken
	}
	return err
}
