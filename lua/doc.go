// Package lua has the atomic steps on the server: the scripts of a lock, and typed
// calls around the scripts. The package has no goroutines, no retries and no clock.
//
// # Data
//
// A lock is a hash: a field for each owner, with the hold count as the value, and a TTL
// on the key. Redisson's RLock has the same layout, and the same message on the unlock
// channel, so Go and Java may share a lock.
//
// # Safe to repeat, safe to arrive late
//
// A request whose reply was lost may be sent again, and the first copy may
// still arrive after that. Two rules make every script harmless then:
//
//   - An owner string belongs to a single grant and is never used again. Acquire by
//     the present owner is a success; Release, Renew and Count by a former owner
//     touch no later owner's grant. Redisson has an owner for each thread instead,
//     and needs a latch key for each unlock.
//   - Effects are absolute. Count gives the new hold count, not the change, and
//     Release ends the grant at any count.
//
// ForceRelease is the exception, as ForceRelease names no owner: a repetition may
// remove the next grant.
//
// # Sending
//
// Commands are sent once: go-redis repeats a command without a reply up to three
// times, silently, unless the command has a NoRetry method. Only the caller knows the
// meaning of a second answer, so only the caller repeats. The package itself answers
// NOSCRIPT, by sending the source; such a script has not been executed.
//
// [Send] combines the acquires of several callers into a single script, and likewise the
// releases, and the requests for a place in a queue; each is a part with a separate outcome.
// In Redis a script call costs as much as four or five commands in the script.
//
// Scripts declare the keys to touch, apart from the read holds of other owners of a
// read/write lock. Scripts declare a single key wherever a single key is enough: in a
// cluster a script with two keys fails with TRYAGAIN while the slot migrates, unless both
// keys exist on the same node. Renewals, counts, releases and forced releases of read/write
// locks then go again with the key of the lock alone. Channels travel as arguments, not as keys.
package lua
