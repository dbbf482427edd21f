package netfault

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// Match reports whether a fault is meant for a request. It must not call the Proxy.
type Match = func(args []string) bool

// Command matches requests by name, in upper or lower case.
func Command(names ...string) Match {
	return func(args []string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, args[0]) })
	}
}

// Arg matches requests with this argument, such as a key or the SHA-1 of a script.
func Arg(arg string) Match {
	return func(args []string) bool { return slices.Contains(args[1:], arg) }
}

// rule is a fault of single requests.
type rule struct {
	match       Match
	left        int     // times it fires; -1: no end
	chance      *chance // nil: always
	action      action
	least, most time.Duration // late
	held        *Held         // hold
}

type action int

const (
	cutReply action = iota
	hold
	late
)

func (r *rule) lateness() time.Duration {
	return r.least + time.Duration(r.chance.rng.Int64N(int64(r.most-r.least)+1))
}

// chance decides at random, the same way for the same seed.
type chance struct {
	rate float64
	rng  *rand.Rand
}

func newChance(rate float64, seed uint64) *chance {
	return &chance{rate, rand.New(rand.NewPCG(seed, 0))}
}

func (c *chance) hit() bool { return c.rng.Float64() < c.rate }

// Held is a request kept back by [Proxy.Hold].
type Held struct {
	caught   chan struct{} // closed when conn and args are set
	released chan struct{} // closed by Deliver
	replied  chan struct{} // closed when the server has answered
	release  sync.Once
	conn     *conn
	args     []string
}

// Wait returns when a request has been caught.
func (h *Held) Wait(ctx context.Context) error {
	select {
	case <-h.caught:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Args returns the request, or nil if none has been caught.
func (h *Held) Args() []string {
	select {
	case <-h.caught:
		return h.args
	default:
		return nil
	}
}

// Deliver sends the request to the server and returns when the server has
// answered. The client gets the reply if it still has its connection.
func (h *Held) Deliver(ctx context.Context) error {
	if h.Args() == nil {
		return errors.New("netfault: no request to deliver")
	}
	h.release.Do(func() { close(h.released) })
	select {
	case <-h.replied:
		return nil
	case <-h.conn.serverGone:
	case <-ctx.Done():
	}
	select {
	case <-h.replied: // as well
		return nil
	default:
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return errors.New("netfault: connection lost before the server's reply")
}
