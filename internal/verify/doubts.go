package verify

import (
	"slices"

	"github.com/anishathalye/porcupine"
)

// finish deals with what has no return: its process was killed.
func (b *builder) finish() {
	for _, call := range b.calls {
		switch call.Kind {
		case opLock, opTry:
			b.doubts = append(b.doubts, span{call.At, open})
			b.tokens = append(b.tokens, span{call.At, open})
		case opWrite:
			g := b.grants[call.Grant]
			b.addFence(call.Client, action{do: mayWrite, grant: call.Grant, token: g.token, value: call.Value}, call.At, open)
		}
	}
	for id, g := range b.grants {
		b.end(id, g, g.seen)
	}
	b.strayReaders()
	b.lockOps = slices.DeleteFunc(b.lockOps, func(o porcupine.Operation) bool {
		a := o.Input.(action)
		return a.do == refuse && (b.doubtful(o, a.shared) || b.split(o))
	})
}

// split reports whether nobody need have had a quorum lock that was refused: another call,
// which was refused as well, may have had as many servers.
func (b *builder) split(o porcupine.Operation) bool {
	return b.variety == quorum && slices.ContainsFunc(b.lockOps, func(other porcupine.Operation) bool {
		return other.Input.(action).do == refuse && other.ClientId != o.ClientId && other.Call < o.Return && o.Call < other.Return
	})
}

// strayReaders marks the readers that may have another token than that of the
// newest writer of the history: any, if the server forgot the counter; a greater one,
// if a writer's may not be recorded.
func (b *builder) strayReaders() {
	for n, o := range b.fenceOps {
		if a := o.Input.(action); a.do == acquire && a.shared {
			a.stray = b.forgotten(span{0, o.Return})
			a.spent = slices.ContainsFunc(b.tokens, func(s span) bool { return s.call < o.Return && o.Call < s.ret })
			b.fenceOps[n].Input = a
		}
	}
}

// doubtful reports whether a refusal says nothing. It says that somebody holds the
// lock, unless that may have been a grant that nobody got, or the servers are young; or
// that somebody waits, if nobody may overtake those who do, or no reader a writer; or that
// a client keeps the lock, which nobody holds.
func (b *builder) doubtful(o porcupine.Operation, shared bool) bool {
	overlaps := func(s span, reach int64) bool { return s.call < o.Return && o.Call < s.ret+reach }
	return b.young || b.variety == retained || slices.ContainsFunc(b.doubts, func(d span) bool { return overlaps(d, b.reach) }) ||
		slices.ContainsFunc(b.waits, func(w wait) bool {
			return (b.variety == fair || b.variety == readWrite && !(shared && w.shared)) && overlaps(w.span, 0)
		})
}
