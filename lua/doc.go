// Package lua contains the Lua scripts with which Redis executes each step of a lock atomically, and a Go
// function for each of them. The package starts no goroutines, repeats no requests and reads no clock.
//
// # Data
//
// A lock is a hash whose key has a TTL. The hash has one field for each owner, with the hold count as its
// value. An owner is the name of one grant, which is one acquisition of the lock with all nested holds. A
// refused owner can get a ticket, which is an entry in the queue of the lock. Redisson's RLock has the same
// data, and sends the same message on the unlock channel, so programs in Go and Java can share a lock.
//
// # Safe to repeat, safe to arrive late
//
// If the reply to a request is lost, the client can send the request again, and the first request can still
// arrive after the second. Two rules ensure that this does no harm:
//
//   - The name of an owner belongs to one grant and is never used again. If the owner already holds the lock,
//     Acquire succeeds. If an owner no longer holds the lock, Release, Renew and Count do not affect the grant
//     of a later owner.
//   - Effects are absolute. Count sets the new hold count instead of changing it by a number, and Release ends
//     the grant whatever its hold count is.
//
// ForceRelease is not safe to repeat, because it names no owner. A repeated ForceRelease can remove the lock of
// the next owner.
//
// # Sending
//
// The package sends each command once, because only its caller knows what the answer to a repeated command
// means. go-redis would repeat a command without a reply up to three times, so the commands have a NoRetry
// method that prevents this. The package itself only handles NOSCRIPT: the script was not executed, and the
// package sends its source.
//
// [Send] combines calls of several callers into one script: acquires, releases, or requests for a place in a
// queue. Each of the combined calls has its own result. Combining calls saves CPU time, because in Redis the
// call of a script costs as much as four or five commands in the script.
//
// Scripts declare the keys that they use, except the keys of other owners' read holds of a read/write lock.
// Scripts declare only one key if one is enough, because in a cluster a script with two keys fails with
// TRYAGAIN while the slot migrates, unless both keys exist on the same node. If this happens to a renewal,
// count, release or forced release of a read/write lock, the package sends the script again with only the key
// of the lock. Channels are passed as arguments, not as keys.
package lua
