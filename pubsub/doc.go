// Package pubsub calls waiting code when a message arrives on a Redis channel.
//
// Use it to wait for an event that is announced on a channel, such as the release of a lock. The caller
// subscribes to the channel, checks whether the event has happened, and sleeps until a message or a change of
// the subscription wakes it:
//
//	wake := make(chan struct{}, 1)
//	woken := func() {
//		select {
//		case wake <- struct{}{}:
//		default: // one wake-up is enough
//		}
//	}
//	s := hub.Subscribe(channel, func(payload string) { woken() }, woken)
//	defer s.Close()
//	for !try() {
//		limit := long // the end of the holder's lease, say
//		if !s.Live() {
//			limit = short // no message can be relied on
//		}
//		select {
//		case <-wake:
//		case <-time.After(limit):
//		case <-ctx.Done():
//			return context.Cause(ctx)
//		}
//	}
//
// A [Hub] passes the messages of all channels to their subscribers. [Hub.Subscribe] does not block and cannot
// fail. When the server confirms the subscription, the caller is woken and tries again, so it misses no event
// between its first try and the subscription. No goroutine waits for Redis while it holds a mutex, and the
// shared connection does not depend on the context of a caller.
//
// # Servers and connections
//
// A [Servers] value knows the server of each channel. For ordinary channels ([Redis]) there is one server,
// which the go-redis client selects. For sharded channels ([Sharded], [Both]), and for ordinary channels of
// servers that are not a cluster ([Plain]), the server of a channel is the master of its slot. All channels of
// a server share one connection. The hub opens it for the first channel, and closes it when no channel has had
// subscribers for a while. A hub that is not used has no connection and no goroutine. If a server fails, only
// the waiters of its channels are affected.
//
// The hub closes a connection in four cases: after a read or write error, after an unexpected answer, when
// another server has become the master, and when the connection is silent for too long. After a pause, which
// grows from 10 ms to 1 s, it opens a new connection to the server that is the master then. On the new
// connection, the hub subscribes to all channels again.
//
// # Silence
//
// If no message arrives, this can mean that there is no event, or that the connection is broken. So while there
// are subscribers, the hub sends a probe after an interval of 500 ms without traffic: it publishes a message
// that its own connection must receive. [Hub.AllowSilence] changes the time before a probe, up to 20 intervals
// of 500 ms. If all subscribers have been waiting for a long time, the pause between two probes is a quarter of
// their wait, but no longer than 4 intervals, even on a connection with traffic. On a server that is not part
// of a cluster, a script publishes the probe. The script is declared as writing, so a replica refuses it. A
// probe has one of five results:
//
//	no connection received it  commands go to another server, as after a
//	                           failover: the connection is given up at once
//	a replica refused it       another server is the master: the same, unless
//	                           the probe is received by another way to the server
//	it was received, and does  the connection is "deaf": it is probed again half an
//	not arrive                 interval after the answer, and given up after one and
//	                           a half
//	another server is in       so says a map of the cluster that is loaded anew
//	charge                     for the first two probes of a connection, twice
//	                           per interval while one is unanswered for longer
//	                           than that, and otherwise every 8 intervals
//	no answer                  the connection is given up after 8 intervals
//
// If the answer to a caller's own request shows that the server has no subscriber of a channel, the caller can
// report this with [Hub.Absent].
//
// So the hub closes a connection at once if the server was replaced, and after 8 intervals if the server has
// stopped responding. If a server is only slow, the hub does not conclude that messages are lost before the
// server has confirmed a probe. If the process was suspended, the hub first reads everything that has arrived,
// and sends one more probe, before it closes a connection. While a server cannot be reached, the hub looks up
// the master at the same intervals.
//
// With the default interval, a client that waits sends two commands in each of the first two seconds, 20
// commands in the first 30 s, and one every 2 s after that. So a thousand clients in a long wait send 500
// commands per second in total. In return, a caller in the first second of its wait is woken 0.75 to 1.25 s
// after the connection has stopped receiving messages, and 0.5 s after the go-redis client knows of another
// master. After a long wait, the caller is woken up to 1.5 s later than that. Probes every 500 ms would cost
// four times as much in a long wait, and would save 0.75 s on average. If a former master does not respond, the
// hub finds the new master 0.3 s after it has noticed the silence, provided that the other nodes of the cluster
// know the new master. If the former master still answers, this takes up to 6 s. A connection that is broken
// without any error is closed after 4 s.
//
// # A channel
//
// One goroutine per connection writes the requests. It compares the wanted state of a channel with the last
// request for that channel, so a late UNSUBSCRIBE cannot end the subscription of a new waiter:
//
//	                       wanted  asked  open
//	waiter 1 left long ago no      no     1     UNSUBSCRIBE is sent
//	waiter 2 comes         yes     yes    2     SUBSCRIBE is sent behind
//	"unsubscribed"         yes     yes    1     a newer request is open: no effect
//	"subscribed"           yes     yes    0     live: waiter 2 is woken
//
// Because a server answers the requests of a connection in order, the words in this table mean the following:
//
//	wanted  the channel has a subscriber, or had one in the last second
//	asked   the last request on this connection was SUBSCRIBE
//	open    the number of requests that the server has not answered
//	live    open is 0, and the last answer has confirmed a SUBSCRIBE
//
// When a slot moves to another server, the old server ends the subscriptions of that slot without a request,
// and answers MOVED to new ones. The hub keeps its connection to the old server, because only the channel has
// moved. The moved channel has no server until the hub has loaded the new map of the cluster. The hub then
// subscribes to it on the server that [Servers] returns. The answer BUSY has the same effect as MOVED. A server
// gives this answer to every request while a script runs for too long.
//
// A server can also refuse a subscription, for example because of its ACL or a proxy. The hub then does not
// subscribe to the channel for 30 s. During this time, Live returns false for the channel, so its waiters use
// their short limits. If a server refuses to end a subscription, it continues to send messages, which the hub
// ignores, until the connection ends.
//
// # Which subscriptions are notified
//
//   - The function message is called for all subscriptions of the channel of a message, whatever its payload
//     is.
//   - After the server has confirmed or refused to subscribe to a channel, the function changed is called for
//     all subscriptions of the channel.
//   - When a connection ends, changed is called for all of its live channels. When only one channel is lost,
//     changed is called for the subscriptions of that channel.
//   - At [Hub.Close], changed is called for all subscriptions.
//
// A caller does not wait for the confirmation of its subscription, and several wake-ups count as one. In
// Redisson's PublishSubscribe, a caller waits for the confirmation, and wake-ups are counted. Package pubsub
// does not decide the order of the waiters of a lock. A channel has few subscriptions, because package rlock
// makes one for all goroutines of a client that want the same lock.
//
// While it holds its mutex, the hub only records the calls that it has to make. The goroutine that unlocks the
// mutex makes these calls afterwards. Usually this is the goroutine that reads the connection. Two goroutines
// never make calls of the same subscription at the same time. If one goroutine is making such a call, a second
// one leaves its calls to the first:
//
//	reader of the connection      a goroutine in Close
//	message 1 is noted, unlock
//	calls message("1") …          the end is noted, unlock: the reader is
//	   … returns                  calling, so the call is left to the reader
//	calls changed()
//
// So the calls are made in the order of the events, and a function can lock a mutex that other goroutines hold
// while they call the hub. A function must not block, because a connection that is not read is closed by the
// hub or by the server.
//
// # Why no wake-up is missed
//
// Suppose that a try finds the lock taken, and that the lock is released later with a message. If Live returned
// false when the caller chose its limit, the caller wakes after the short limit. If Live returned true, the
// subscription had been confirmed, and the events happened in one of three orders:
//
//	try: taken    confirmed     release: message    the confirmation wakes the caller, for another try
//	confirmed     try: taken    release: message    the message wakes the caller
//	confirmed     try: taken    connection ends     the end is noticed within the times above, and
//	                            release: unheard    wakes the caller, not live now: the short limit
//	                                                holds until the next confirmation wakes the caller
//
// If the message is published on another server than the one of the connection, the third order applies. If the
// release publishes no message, the caller wakes after the long limit.
package pubsub
