package lua

import "strings"

// Grant names the keys and the owner of an acquisition.
type Grant struct {
	Key         string
	Queue       string      // of the waiters, see [QueueOf]; "" for a lock without a queue
	Counter     string      // fencing counter; "" for a lock without tokens
	Channel     string      // for announcing the release of a read/write lock; "" for [UnlockChannel]
	Rivals      [2]string   // keys of Redisson's fair lock of the same name: while such a key exists, Ask grants nothing; "" for a lock without fairness
	ChannelKind ChannelKind // of all channels
	Uncounted   bool        // of a quorum lock: the server does not know who is subscribed to its channels
	Owner       string      // unique to this grant, never used again; with a colon, like Redisson's owners, and no space
}

// Related names a key or a channel of a lock, by Redisson's rule: in the cluster slot of the lock.
func Related(prefix, key string) string {
	if strings.Contains(key, "{") {
		return prefix + ":" + key
	}
	return prefix + ":{" + key + "}"
}

// Own names a key or a channel of this library alone. By [Related] the locks a and {a} would have
// the same name. Own gives different names: a lock {a}, or {a} followed by colons, gets a further
// colon.
func Own(prefix, key string) string {
	name := Related(prefix, key)
	if strings.LastIndexByte(key, '{') == 0 && strings.HasSuffix(strings.TrimRight(key, ":"), "}") {
		name += ":"
	}
	return name
}

// QueueOf names the queue of a lock.
func QueueOf(key string) string { return Own("rlock_queue", key) }

// UnlockChannel is the channel for announcing releases to Redisson's waiters.
func UnlockChannel(key string) string { return Related("redisson_lock__channel", key) }

// GrantChannel is the channel for messages of a lock's queue to a client: see [Message].
func GrantChannel(key, client string) string { return Own("rlock_channel", key) + ":" + client }

// ChannelKind selects the subscribers of a channel: by SUBSCRIBE, by SSUBSCRIBE, or both. A message to
// the first does not reach the second.
type ChannelKind int

// Kinds of channels. Sharded channels are for clusters of Redis 7 or later.
const (
	Ordinary ChannelKind = iota
	Sharded
	Both // a script counts the receivers of Sharded, unless the server refuses SPUBLISH
)

// Publish returns the command by which a script reaches the subscribers, or both with a space between: an
// argument of scripts, and a string.
func (k ChannelKind) Publish() any {
	switch k {
	case Sharded:
		return "SPUBLISH"
	case Both:
		return "PUBLISH SPUBLISH"
	}
	return "PUBLISH"
}
