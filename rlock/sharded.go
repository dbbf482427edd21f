package rlock

// ShardedPubSub says by which channels the clients of a Redis Cluster tell each
// other that a lock is free. Those of PUBLISH reach every node, and so every
// waiter, for the price of a message to every node; those of SPUBLISH stay on the
// node of the lock. A client that listens to one does not hear the other.
//
// If clients differ, locks still exclude each other, but a client that does not hear of a
// release, or that it was granted the lock, notices it only when it asks, at least every 5.5 s.
// To change the setting of many processes, set ShardedBoth everywhere first, which hears and
// tells all, and then the new one. Use ShardedBoth also beside Redisson clients that have
// another setting. Redisson's own, shardedSubscriptionMode, has the values and the rule of Auto,
// On and Off; it asks the first node that it reaches, once, when it starts.
type ShardedPubSub int

const (
	// ShardedAuto is ShardedOn in a cluster whose servers have sharded channels
	// (Redis 7 or later) and permit PUBSUB SHARDNUMSUB, and otherwise ShardedOff.
	// The client asks once, beside its first requests; until it knows, it announces
	// releases in both ways.
	ShardedAuto ShardedPubSub = iota
	// ShardedOn uses SPUBLISH and SSUBSCRIBE, in a cluster only.
	ShardedOn
	// ShardedOff uses PUBLISH and SUBSCRIBE.
	ShardedOff
	// ShardedBoth uses all of them, in a cluster only. Each message is sent twice,
	// and heard twice by clients that do the same.
	ShardedBoth
)
