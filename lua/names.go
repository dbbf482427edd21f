package lua

import "strings"

// Grant names one acquisition of a lock: its keys and its owner.
type Grant struct {
	Key         string
	Queue       string      // of those who wait, see [QueueOf]; "" for a lock that has none
	Counter     string      // fencing counter; "" for a lock without tokens
	Channel     string      // where the release of a read/write lock is announced; that of others is [UnlockChannel]
	Rivals      [2]string   // keys of Redisson's fair lock of that name: while they exist, Ask grants nothing; "" for a lock that is not fair
	ChannelKind ChannelKind // of all its channels
	Owner       string      // unique to this grant, never used again; has a colon in it, as Redisson's have, and no space
}

// Related names a key or a channel that belongs to a lock, by Redisson's rule: it is
// in the cluster slot of the lock.
func Related(prefix, key string) string {
	if strings.Contains(key, "{") {
		return prefix + ":" + key
	}
	return prefix + ":{" + key + "}"
}

// Own names a key or a channel that only this library has. Unlike [Related] it gives no two
// locks the same, as those called a and {a} would have: one of the form {a}, or {a} with
// colons behind it, gets one more colon.
func Own(prefix, key string) string {
	name := Related(prefix, key)
	if strings.LastIndexByte(key, '{') == 0 && strings.HasSuffix(strings.TrimRight(key, ":"), "}") {
		name += ":"
	}
	return name
}

// QueueOf names the queue of a lock.
func QueueOf(key string) string { return Own("rlock_queue", key) }

// UnlockChannel is where releases are announced to Redisson's waiters.
func UnlockChannel(key string) string { return Related("redisson_lock__channel", key) }

// GrantChannel is where a client hears that the queue of a lock has granted it the
// lock: see [Message].
func GrantChannel(key, client string) string { return Own("rlock_channel", key) + ":" + client }

// ChannelKind says which subscribers of a channel are told: those of SUBSCRIBE, those of
// SSUBSCRIBE, or both, who otherwise know nothing of each other.
type ChannelKind int

// Kinds of channels. The sharded ones are for clusters of Redis 7 or later.
const (
	Ordinary ChannelKind = iota
	Sharded
	Both // the receivers that a script counts are those of Sharded, unless the server refuses it
)

// publish returns what announce.lua is told, a string.
func (k ChannelKind) publish() any {
	switch k {
	case Sharded:
		return "SPUBLISH"
	case Both:
		return "PUBLISH SPUBLISH"
	}
	return "PUBLISH"
}
