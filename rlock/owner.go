package rlock

import (
	"strconv"
	"sync/atomic"
)

// owners names the grants of a client: `<client id>:<n>`.
type owners struct {
	id    string
	given atomic.Uint64
}

// next returns a name that was never used, with mark behind the client's.
func (o *owners) next(mark string) string {
	var room [48]byte // spares one of two allocations
	name := append(append(append(room[:0], o.id...), mark...), ':')
	return string(strconv.AppendUint(name, o.given.Add(1), 10))
}

// owner names a new grant of the lock. The release of one that polls is announced as
// Redisson does, so those who wait must take it for a foreign owner.
func (l *Lock) owner() string {
	return l.client.next(l.mark)
}
