package request

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// copying is the copies of one call of a batch. Only one call is copied, as the server may be slow, and a
// batch may have a thousand. When a copy is answered, the connection of the batch is dead, and all other
// calls end with ErrDeadConnection: they are made again at once, together.
type copying struct {
	call  *Call
	first Twin // the command of call; call itself may be another caller's by now
	race  *race[twins]
	stop  func()  // ends the sending of copies
	rest  []*Call // the calls of the batch that no copy has ended; guarded by Group.mu
}

// twins are a copy of a call's command, and of the trailer.
type twins struct{ cmd, trailer redis.Cmder }

// copied is the command of a batch to be copied, or its original.
func (b *batch) copied() redis.Cmder {
	if b.copying != nil {
		return b.copying.first
	}
	return b.calls[0].cmd
}

// copy begins to send copies of the first call whose caller waits, when it is time: when the batch has had no
// answer for the patience since it was sent, or has not been sent for the time of making a connection. That
// time is not less than the patience: a server that answers slowly makes a connection slowly as well. A
// first request on a new connection to a server 50 ms away is not late: it has waited for three round trips
// before it was sent. mu is held.
func (g *Group) copy(b *batch, now time.Time) {
	if b.abandoned || b.copyAt.IsZero() || now.Before(b.copyAt) {
		return
	}
	due := b.note.since.Add(min(max(dialing, b.patience), b.deadline.Sub(b.note.since)/2))
	if at := b.note.at.Load(); at != 0 {
		due = b.note.since.Add(time.Duration(at) + b.patience)
	} else if !now.Before(due) && !hasIdle(g.Client) {
		due = now.Add(nextRound)
	}
	if now.Before(due) {
		b.copyAt = due
		return
	}
	b.copyAt = time.Time{}
	i := slices.IndexFunc(b.calls, func(c *Call) bool { return c.state == sent })
	if i < 0 {
		return
	}
	c := b.calls[i]
	first, ok := c.cmd.(Twin)
	if !ok {
		return
	}
	c.copied = true
	own, stop := context.WithDeadline(context.WithoutCancel(c.ctx), b.deadline) // calls nothing of the application
	b.copying = &copying{c, first, newRace[twins](g.Copies, b.note.useful), stop, b.calls}
	trailer := c.opts.Trailer
	g.Begin()
	go func() {
		defer g.End()
		defer stop()
		a := b.copying.race.run(own, 0, func(ctx context.Context, n int) (twins, error) {
			return g.sendCopy(ctx, n, first, trailer)
		})
		if a.copied && IsAnswer(a.err) {
			g.won(b, a)
		}
	}()
}

// sendCopy sends copy n of a command, followed by a trailer.
func (g *Group) sendCopy(ctx context.Context, n int, first Twin, trailer Trailer) (t twins, err error) {
	lane, err := g.Copies.Lane(ctx, g.Client, n)
	if err != nil {
		return t, err
	}
	t = twins{first.Twin(ctx), trailer.Command(ctx)}
	if t.trailer == nil && !g.guard {
		return t, process(ctx, lane, &note{Cmder: t.cmd, since: time.Now()})
	}
	sending := note{since: time.Now()}
	cmds := []redis.Cmder{t.cmd}
	if t.trailer != nil {
		cmds = append(cmds, t.trailer)
	}
	g.Send(ctx, &marking{lane, &sending, g.guard}, cmds, false)
	return t, sending.errorOf(t.cmd.Err())
}

// won ends calls of a batch after the answer to a copy. A batch that is larger than the newest answered
// one may only take longer, and then all calls but the copied one go on waiting.
func (g *Group) won(b *batch, a result[twins]) {
	g.mu.Lock()
	if b.ended || b.abandoned {
		g.mu.Unlock()
		return
	}
	dead := len(b.calls) == 1 || time.Since(b.note.since) >= severalFor*g.pace.expected(len(b.calls))
	rest := b.copying.rest[:0:0]
	for _, c := range b.copying.rest {
		switch {
		case c.state == sent && c == b.copying.call:
			c.answer = &a.value
			c.complete(over, a.err)
			b.left++
		case c.state == sent && dead:
			c.complete(over, ErrDeadConnection)
			b.left++
		default:
			rest = append(rest, c)
		}
	}
	b.copying.rest = rest
	b.copying.call = nil // it is its caller's again, for another request
	b.cancelUnawaited()
	if !dead {
		g.mu.Unlock()
		return
	}
	b.abandoned = true
	if b.trailer != nil {
		g.hung++
	} else {
		g.open = slices.DeleteFunc(g.open, func(other *batch) bool { return other == b })
	}
	g.start()
	g.mu.Unlock()
	for _, c := range rest {
		if c.opts.Late != nil {
			c.opts.Late(ErrNoAnswer)
		}
	}
}

// waiting are the calls of a batch, but for those that a copy has ended. Group.mu is held.
func (b *batch) waiting() []*Call {
	if b.copying != nil {
		return b.copying.rest
	}
	return b.calls
}
