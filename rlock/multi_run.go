package rlock

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/lua"
)

// together returns those of the next members that one script can take, as far as
// this client knows: it is one server that has them, and no goroutine of the
// client holds one of them or queues for it.
func together(held context.Context, next []*Lock) []*Lock {
	n := 0
	for n < len(next) {
		l := next[n]
		p, ok := l.protocol.(*plain)
		if !ok || l.client != next[0].client || holdIn(held, l) != nil || l.gates.busy(l) || l.gates.holder(l) != nil {
			break
		}
		if n > 0 && (p.key() == next[n-1].protocol.key() || !sameSlot(l.client, p.key(), next[0].protocol.key())) {
			break
		}
		n++
	}
	return next[:n]
}

// sameSlot reports whether keys are known to have the same cluster slot.
func sameSlot(c *Client, a, b string) bool {
	_, cluster := c.rdb.(*redis.ClusterClient)
	return !cluster || hashTag(a) == hashTag(b)
}

// hashTag is the part of a key that its slot depends on. [checkName] has seen to
// it that braces make one.
func hashTag(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		key, _, _ = strings.Cut(rest, "}")
	}
	return key
}

// takeRun takes members in one script: all of them or, with an error, none. busy is
// the first one that somebody else holds.
func (h *Hold) takeRun(held, wait context.Context, run []*Lock, once bool) (busy int, _ context.Context, err error) {
	first := run[0]
	c, began := first.client, time.Now()
	if err := first.begin(); err != nil {
		return 0, held, err
	}
	defer c.done()
	if wait.Err() != nil {
		return 0, held, first.tooLate(wait)
	}
	p := patience{attempt: first.bound(), total: max(first.lease, 5*time.Second), once: once, stop: c.closing}
	if once {
		p.total = p.attempt
	}
	grants, wanted := make([]*grant, len(run)), make([]lua.Wanted, len(run))
	for i, l := range run {
		grants[i] = l.newGrant(c.owner())
		wanted[i] = lua.Wanted{Grant: l.protocol.(*plain).of(grants[i].owner), Lease: l.lease}
	}
	a := send(wait, first, p, func(ctx context.Context) (lua.ReplyAll, error) {
		return lua.AcquireAll(ctx, c.scripts, wanted)
	}, func(r lua.ReplyAll, err error) {
		for _, g := range grants {
			g.late(reply{Reply: lua.Reply{Acquired: r.Acquired}}, err)
		}
	})
	if err = a.err; err == nil && !a.value.Acquired {
		busy, err = a.value.Busy, &NotAcquiredError{Name: run[a.value.Busy].name, TTL: a.value.TTL}
	}
	for i, g := range grants {
		g.sent, g.armed, g.doubted = a.sent, run[i].lease, a.doubt
		if err == nil {
			g.token = a.value.Tokens[i]
			var part *Hold
			if held, part, err = g.start(held); err == nil {
				run[i].reportAcquired(began)
				h.parts = append(h.parts, part)
				continue
			}
		}
		g.abandon(a.err == nil && a.value.Acquired)
	}
	return busy, held, err
}
