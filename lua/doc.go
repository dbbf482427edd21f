// Package lua holds what happens atomically on the server: the scripts of a
// lock and typed calls around them. It has no goroutines, no retries and no
// clock.
//
// # Data
//
// A lock is a hash: one field per owner, its value the hold count, a TTL on the
// key. That is the layout of Redisson's RLock, and the message on the unlock
// channel is Redisson's too, so Go and Java may share a lock.
//
// # Safe to repeat, safe to arrive late
//
// A request whose reply was lost may be sent again, and the first copy may
// still arrive after that. Two rules make every script harmless then:
//
//   - An owner string belongs to one grant and is never used again. Acquire by
//     an owner that holds already is a success; Release, Renew and Count by one
//     that does not hold touch no other owner's grant. Redisson keeps one owner
//     per thread and needs a latch key per unlock instead.
//   - Effects are absolute. Count says what the hold count must be, not by how
//     much it changes, and Release ends the grant whatever the count says.
//
// ForceRelease is the exception, as it names no owner: whoever repeats it may
// remove the next grant.
//
// # Sending
//
// Commands are sent once: go-redis repeats a command whose reply it did not
// get, up to three times and without telling, unless the command's NoRetry
// method says no. Only the caller can know what a second answer means, so only
// the caller repeats. NOSCRIPT is answered here, by sending the source; such a
// script has not been executed.
//
// [Send] joins the acquires of several callers to one script, their releases to another,
// and so those who ask for a place in a queue; each is a part with an outcome of its own.
// In Redis a script call costs as much as four or five of the commands in it.
//
// Scripts declare the keys they touch, but those of a read/write lock not the read holds
// of other owners, and only one key wherever one is enough: in a cluster a script with
// two keys fails with TRYAGAIN while its slot migrates, unless both exist on one node.
// Renewals, counts, releases and forced releases of read/write locks then go again with the key
// of the lock alone. Channels travel as arguments, they are not keys.
package lua
