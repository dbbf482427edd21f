package rlock

// ShardedPubSub says by which channels the clients of a Redis Cluster tell each other about a free
// lock. A PUBLISH reaches every node, and so every waiter, for the price of a message to every
// node; an SPUBLISH stays on the node of the lock. A listener to the one kind does not hear the
// other.
//
// If clients differ, locks still exclude each other. But a client deaf to a release, or to
// a grant, notices either only when asking, at least every 5.5 s. To change the setting of
// many processes, first set ShardedBoth everywhere, to hear and tell in both ways, and then
// the new setting. Use ShardedBoth also beside Redisson clients with another setting.
// Redisson's setting, shardedSubscriptionMode, has the values and the rule of Auto, On and Off;
// Redisson asks the first node within reach, once, at its start.
type ShardedPubSub int

const (
	// ShardedAuto is ShardedOn in a cluster with sharded channels (Redis 7 or later) and the
	// permission for PUBSUB SHARDNUMSUB, and otherwise ShardedOff. The client asks once, beside
	// the first requests; until the answer, the client announces releases in both ways.
	ShardedAuto ShardedPubSub = iota
	// ShardedOn uses SPUBLISH and SSUBSCRIBE, in a cluster only.
	ShardedOn
	// ShardedOff uses PUBLISH and SUBSCRIBE.
	ShardedOff
	// ShardedBoth uses all of them, in a cluster only. Each message is sent twice,
	// and heard twice by clients that do the same.
	ShardedBoth
)
