// Package pubsub calls waiting code when a message arrives on a Redis channel.
//
// A caller waits for an event. The event is announced on a channel. So the caller
// subscribes to the channel, looks, and sleeps until a message or a change wakes the caller:
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
// Subscribe neither blocks nor fails: the server's confirmation of the subscription is
// a wake-up, and the try after the confirmation closes the gap between the first try
// and the subscription. Nobody waits for Redis under a mutex, and no caller's context
// reaches the shared connection.
//
// # Servers and connections
//
// [Servers] names the server of a channel. For ordinary channels ([Redis]) there is one
// server, chosen by the client. For sharded channels ([Sharded], [Both]) and for ordinary
// channels of servers without a cluster ([Plain]) it is the master of the slot. All channels of
// a server share one connection. The hub opens the connection for the first channel, and
// closes the connection when no channel has been wanted for a while; a hub at rest has no
// connection and no goroutine. Servers do not touch each other: trouble with one server
// concerns only the waiters of its channels.
//
// Any doubt about a connection ends the connection: a read or write error, an unexpected
// answer, another server in charge, or silence. After a pause, growing from 10 ms to 1 s,
// the hub opens a new connection, to the server in charge by then. Nothing of the old
// connection is carried over.
//
// # Silence
//
// While somebody waits, silence does not prove a working connection. After an interval of
// 500 ms without traffic the hub probes: the command client publishes a message to the
// hub's own connection. [Hub.AllowSilence] makes the interval before a probe shorter or longer.
// The longer everybody has been waiting, the rarer the probes: a quarter of the wait apart,
// and at most 4 intervals, also on a connection with traffic. An allowed silence may be longer, up
// to 20 intervals. To a server without a cluster the message goes in a script declared as writing,
// and a replica refuses such a script. There are five cases.
//
//	nobody received the probe  commands go to another server, as after a
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
// A caller may know more: a server has answered the caller's own request, and has no such
// subscriber. [Hub.Absent] tells the hub.
//
// So a stalled server keeps its connection for 8 intervals, and a replaced server loses its
// connection at once. However slow a server is, its connection is not deaf before
// the server has confirmed a sent message. A process back from standing still
// reads first all that has come, and probes once more, before the hub gives anything up. While
// a server cannot be reached, the hub asks as often who is in charge.
//
// The price: unless another silence is allowed, a wait costs two commands in each of its first
// two seconds, 20 in its first 30, and one in 2 s after that. A thousand waiting clients
// send 500 in a second. In return, a caller in the first second of a wait is woken 0.75 to
// 1.25 s after the connection became deaf, and 0.5 s after the command client knows of another
// master; a caller after a long wait, up to 1.5 s later. (Probes every 500 ms for ever would cost
// four times as much, and save 0.75 s on average for a caller after 8 s or more.) A
// silent former master costs 0.3 s after the silence is noticed, once the other nodes of the
// cluster know of the new master; a former master still answering, up to 6 s. A connection
// that has died without any sign is given up after 4 s.
//
// # A channel
//
// One goroutine per connection writes the requests. The goroutine compares the wanted state of a
// channel with the last request for the channel, so a late UNSUBSCRIBE never leaves a new waiter deaf:
//
//	                       wanted  asked  open
//	waiter 1 left long ago no      no     1     UNSUBSCRIBE is sent
//	waiter 2 comes         yes     yes    2     SUBSCRIBE is sent behind
//	"unsubscribed"         yes     yes    1     a newer request is open: no effect
//	"subscribed"           yes     yes    0     live: waiter 2 is told
//
// A connection answers in order, and therefore
//
//	wanted  someone waits, or someone did a moment ago (linger)
//	asked   the last request on this connection was SUBSCRIBE
//	open    so many requests are unanswered
//	live    nothing is open, and the last answer was a confirmation
//
// A server ends the subscriptions of a slot unasked when the slot moves away, and
// answers MOVED to new ones. Then only the channel is in doubt, not the
// connection. The channel has no server until the news about the cluster have arrived,
// and is asked for again on the server that [Servers] names then. The answer BUSY has the same
// effect: a server gives BUSY to everything while somebody's script runs for too long.
//
// A refusal (ACL, proxy) answers the oldest open request. The hub then leaves the channel alone
// for 30 s; the waiters of the channel are never live, and sleep by their short limits. If the
// end of a subscription is refused, the server goes on sending messages to nobody, until
// the connection ends.
//
// # Who is told
//
//   - A message goes to all subscriptions of its channel, whatever the message says.
//   - A confirmation or refusal is a change for all subscriptions of the channel.
//   - The end of a connection is a change for all live channels, the loss of a
//     channel for its own subscriptions.
//   - Close is a change for all.
//
// A caller waits before the subscription is confirmed, and a wake-up is a flag, not a permit
// to be counted; Redisson's PublishSubscribe differs in both. The order of the waiters of a lock
// is not decided here: a channel has few subscriptions, as package rlock has one for all
// goroutines of a client with the same lock.
//
// Under its mutex the hub only notes the calls to be made. The goroutine that unlocks the mutex makes
// the calls afterwards: mostly the goroutine that reads the connection. The calls of one subscription are
// never made by two goroutines together: the second goroutine adds its calls behind the waiting
// calls of the first.
//
//	reader of the connection      a goroutine in Close
//	message 1 is noted, unlock
//	calls message("1") …          the end is noted, unlock: the reader is
//	   … returns                  calling, so the call is left to the reader
//	calls changed()
//
// So the calls come in the order of events, and a function may take a mutex under which
// others call the hub. The function must not block: the hub or the server gives up
// a connection that nobody reads.
//
// # Why no wake-up is missed
//
// A try finds the lock taken. Later the lock is released, with a message. If the
// subscription was not live when the caller chose the limit, the short limit holds. If the
// subscription was live, there had been a confirmation, and one of three orders applies:
//
//	try: taken    confirmed     release: message    the confirmation wakes the caller, for another try
//	confirmed     try: taken    release: message    the message wakes the caller
//	confirmed     try: taken    connection ends     the end is noticed within the times above, and
//	                            release: unheard    wakes the caller, not live now: the short limit
//	                                                holds until the next confirmation wakes the caller
//
// A message sent by another server than the one of the connection is the third order. A release
// without a message ends with the long limit.
package pubsub
