package rlock

// ShardedPubSub selects the channels by which the clients of a Redis Cluster notify each other about a
// released lock. A PUBLISH is sent to every node of the cluster, so it reaches every waiter. An
// SPUBLISH stays on the node of the lock. A client that listens with SUBSCRIBE does not receive an
// SPUBLISH, and a client that listens with SSUBSCRIBE does not receive a PUBLISH.
//
// If clients have different settings, locks still exclude each other. However, a waiting client may not
// receive the message of a release, and then notices it only at its next request, within 5.5 s. To
// change the setting in many processes, first set ShardedBoth in all of them, because this setting
// sends and receives both kinds of messages. After that, set the new value in all processes. Also use
// ShardedBoth together with Redisson clients that have another setting.
//
// In Redisson, the setting shardedSubscriptionMode has the values Auto, On and Off with the same rules.
// With Auto, Redisson asks the first node that it can reach for sharded channels, once, at its start.
type ShardedPubSub int

const (
	// ShardedAuto is like ShardedOn in a cluster that has sharded channels (Redis 7 or later), if the
	// Redis user has the permission for PUBSUB SHARDNUMSUB. In all other cases, ShardedAuto is like
	// ShardedOff. The client makes this choice once, at the same time as its first requests. Until it
	// has the answer, it publishes releases in both ways.
	ShardedAuto ShardedPubSub = iota
	// ShardedOn uses SPUBLISH and SSUBSCRIBE. It has an effect only in a cluster.
	ShardedOn
	// ShardedOff uses PUBLISH and SUBSCRIBE.
	ShardedOff
	// ShardedBoth uses both kinds of commands. It has an effect only in a cluster. Each message is sent
	// twice, and clients with the same setting receive it twice.
	ShardedBoth
)
