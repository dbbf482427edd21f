package lua

import "strings"

// Grant has the keys and the owner of one acquisition.
type Grant struct {
	Key         string
	Queue       string      // name of the queue of waiters, see [QueueOf]; "" for a lock without a queue
	Counter     string      // key of the fencing counter; "" for a lock without tokens
	Channel     string      // channel on which the release of a read/write lock is published; "" means [UnlockChannel]
	Rivals      [2]string   // keys of Redisson's fair lock of the same name: while one of them exists, Ask does not grant the lock; "" for a lock that is not fair
	ChannelKind ChannelKind // kind of all channels
	Uncounted   bool        // for a quorum lock: true if the server does not know which clients are subscribed to its channels
	Owner       string      // name of the owner, unique to this grant and never used again; it has a colon, like Redisson's owners, and no space
}

// Related returns the name of a key or a channel that belongs to a lock, formed by Redisson's rule. The key or
// channel is in the cluster slot of the lock.
func Related(prefix, key string) string {
	if strings.Contains(key, "{") {
		return prefix + ":" + key
	}
	return prefix + ":{" + key + "}"
}

// Own returns the name of a key or a channel that only this library uses. [Related] would return the same name
// for the locks a and {a}. Own returns different names, because it adds a colon for a lock {a}, or {a} followed
// by colons.
func Own(prefix, key string) string {
	name := Related(prefix, key)
	if strings.LastIndexByte(key, '{') == 0 && strings.HasSuffix(strings.TrimRight(key, ":"), "}") {
		name += ":"
	}
	return name
}

// QueueOf returns the name of the queue of a lock.
func QueueOf(key string) string { return Own("rlock_queue", key) }

// UnlockChannel returns the name of the channel on which releases are published for the waiters of Redisson.
func UnlockChannel(key string) string { return Related("redisson_lock__channel", key) }

// GrantChannel returns the name of the channel on which a client receives messages of the queue of a lock, see
// [Message].
func GrantChannel(key, client string) string { return Own("rlock_channel", key) + ":" + client }

// ChannelKind selects the commands of a channel: SUBSCRIBE, SSUBSCRIBE, or both. A message that is published
// for one kind does not reach subscribers of the other.
type ChannelKind int

// Kinds of channels. Sharded channels are for clusters of Redis 7 or later.
const (
	Ordinary ChannelKind = iota
	Sharded
	Both // a script counts the receivers of Sharded, unless the server refuses SPUBLISH
)

// Publish returns the command with which a script publishes a message. For [Both] it returns two commands,
// separated by a space. The result is a string, to be used as an argument of scripts.
func (k ChannelKind) Publish() any {
	switch k {
	case Sharded:
		return "SPUBLISH"
	case Both:
		return "PUBLISH SPUBLISH"
	}
	return "PUBLISH"
}
