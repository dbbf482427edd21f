package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/go-rlock/rlock/rlock"
)

// nestedModel is what should be true of one lock under random calls of one
// client.
type nestedModel struct {
	mu    *rlock.Lock
	grant int // number of the current grant; its holds are those that are live
	all   []*modelHold
}

type modelHold struct {
	ctx    context.Context
	hold   *rlock.Hold
	grant  int
	parent *modelHold
	live   bool
	ended  bool // the context; it never comes back
}

// under reports whether h, or a hold taken under it, is live.
func (m *nestedModel) under(h *modelHold) bool {
	if h.live {
		return true
	}
	for _, other := range m.all {
		if other.parent == h && m.under(other) {
			return true
		}
	}
	return false
}

func (m *nestedModel) live() (n int) {
	for _, h := range m.all {
		if h.live {
			n++
		}
	}
	return n
}

// add notes a hold that was taken under parent, nil for a new grant.
func (m *nestedModel) add(ctx context.Context, hold *rlock.Hold, parent *modelHold) {
	if parent == nil {
		m.grant++
	}
	m.all = append(m.all, &modelHold{ctx: ctx, hold: hold, grant: m.grant, parent: parent, live: true})
}

func TestNestedModel(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	c := newClient(t, srv, nil)
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		m := &nestedModel{mu: c.NewLock(fmt.Sprint("model ", n))}
		defer func() {
			for _, h := range m.all {
				_ = h.hold.Unlock(h.ctx)
			}
		}()
		pick := func(t *rapid.T) *modelHold {
			if len(m.all) == 0 {
				t.Skip("nothing was locked yet")
			}
			return m.all[rapid.IntRange(0, len(m.all)-1).Draw(t, "hold")]
		}
		// try locks under ctx, which belongs to h; nil for a context without owner.
		try := func(t *rapid.T, ctx context.Context, h *modelHold) {
			held, hold, err := m.mu.TryLock(ctx)
			switch free := m.live() == 0; {
			case ctx.Err() != nil:
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorIs(t, err, rlock.ErrUnlocked)
			case free:
				require.NoError(t, err)
				m.add(held, hold, nil)
			case h != nil && h.grant == m.grant:
				require.NoError(t, err)
				m.add(held, hold, h)
			default:
				require.ErrorIs(t, err, rlock.ErrNotAcquired)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"lock":          func(t *rapid.T) { try(t, context.Background(), nil) },
			"nest":          func(t *rapid.T) { h := pick(t); try(t, h.ctx, h) },
			"without owner": func(t *rapid.T) { try(t, rlock.Detach(pick(t).ctx), nil) },
			"without end":   func(t *rapid.T) { h := pick(t); try(t, context.WithoutCancel(h.ctx), h) },
			"unlock": func(t *rapid.T) {
				h := pick(t)
				err := h.hold.Unlock(context.Background())
				if h.live {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, rlock.ErrNotHeld)
				}
				h.live = false
			},
			"": func(t *rapid.T) {
				live := m.live()
				require.Equal(t, live, holds(t, rdb, m.mu.Name()))
				for i, h := range m.all {
					h.ended = h.ended || !m.under(h)
					if !h.ended {
						require.NoError(t, h.ctx.Err(), "context %d: it, or a hold under it, is live", i)
						require.Equal(t, live, m.mu.HoldCount(h.ctx))
					} else if !errors.Is(context.Cause(h.ctx), rlock.ErrUnlocked) {
						require.FailNow(t, "context goes on", "%d: no hold under it is live: %v", i, context.Cause(h.ctx))
					}
				}
			},
		})
	})
}
