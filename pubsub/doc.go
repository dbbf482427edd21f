// Package pubsub tells those who wait when a message arrives on a Redis channel.
//
// A caller that waits for something which a message announces subscribes to the channel,
// looks, and sleeps until it is woken:
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
//		limit := long // what the holder's lease suggests
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
// Subscribe neither blocks nor fails, because the server's confirmation of the
// subscription is itself a wake-up: the try that follows it is the one that
// closes the gap between the first try and the subscription. Nobody waits for
// Redis under a mutex, and no caller's context reaches the shared connection.
//
// # Servers and connections
//
// [Servers] says which server a channel is on. For ordinary channels ([Redis])
// that is always the same one, chosen by the client; for sharded channels
// ([Sharded], [Both]) it is the master of the slot. All channels of a server
// share one connection. ([Plain] is for ordinary channels of servers that are no cluster:
// that of the slot as well.) It is opened for the first of them and closed when none
// has been wanted for a while; a hub at rest has no connection and no goroutine.
// Servers do not touch each other: what happens to one concerns only the waiters
// of its channels.
//
// Any doubt about a connection ends it: a read or write error, an answer that was
// not asked for, another server in charge, or silence. It is replaced after a
// pause that grows from 10 ms to 1 s, on the server that is in charge by then;
// nothing of the old connection is carried over.
//
// While somebody waits, silence does not mean that the connection works. After
// an interval of 500 ms without traffic it probes: it publishes a message to
// itself through the command client. [Hub.AllowSilence] makes that time shorter or
// longer. The longer everybody has been waiting, the longer it is: a quarter of the
// wait, up to 4 intervals, which are also the longest without a probe on a connection
// with traffic. To a server that is no cluster the message goes in a script that says it
// writes, which a replica refuses. There are five things to find out.
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
// A caller that knows more says so by [Hub.Absent]: a request of its own was answered by a
// server that has no such subscriber.
//
// So a server that stalls keeps its connection for 8 intervals, and one that has
// been replaced loses it at once. However slow it is, a connection is not deaf
// before the server has said that it sent something. A process that stood still
// itself reads first what has come, and probes once more, before it gives anything
// up. While a server cannot be reached, the question who is in charge is asked as
// often.
//
// Unless another silence is allowed, a wait costs two commands in each of its first two
// seconds, 20 in its first 30, and one in 2 s after that: a thousand clients that
// wait send 500 in a second. In return a caller that has just begun to wait is woken
// 0.75 to 1.25 s after its connection became deaf, and 0.5 s after the command client
// knows of another master; a caller that has waited for long, up to 1.5 s later.
// (Probes every 500 ms for ever would cost four times as much, and save a caller
// that has waited for 8 s or more 0.75 s on average.) If the former master is
// silent, it takes 0.3 s after the other nodes of a cluster know of the new one,
// once the silence is noticed; if it still answers, up to 6 s. A connection that has
// died without any sign is given up after 4 s.
//
// # A channel
//
// One goroutine per connection writes the requests, comparing what is wanted
// with what was asked last, so that a late UNSUBSCRIBE cannot deafen a new
// waiter: it is followed by a SUBSCRIBE. A connection answers in order, and
// therefore
//
//	wanted  someone waits, or someone did a moment ago (linger)
//	asked   the last request on this connection was SUBSCRIBE
//	open    so many requests are unanswered
//	live    nothing is open, and the last answer was a confirmation
//
// A server that gives a slot away ends the subscriptions in it unasked, and
// answers MOVED to new ones. Then the channel alone is in doubt, not the
// connection: it has no server until the news about the cluster have arrived, and
// is asked for again on the one that Servers names then. So it is if a server answers
// BUSY, as one does to everything while a script of somebody's runs for too long.
//
// A refusal (ACL, proxy) answers the oldest open request. The channel is then
// not asked for again for 30 s; its waiters are never live, and live on their
// short limits. If it is the end of a subscription that is refused, the server
// goes on sending, until the connection ends, what nobody listens to.
//
// # Who is told
//
//   - A message is given to all subscriptions of its channel, whatever it says.
//   - A confirmation or refusal is a change for all of the channel.
//   - The end of a connection is one for all that were live, the loss of a
//     channel for its own.
//   - Close is one for all.
//
// Unlike in Redisson's PublishSubscribe, a caller waits before its subscription is
// confirmed, and a wake-up is a flag, not a permit to be counted. Who comes to a lock
// next is not decided here: the subscriptions of a channel are few, as package rlock has one
// for all goroutines of a client that want the same lock.
//
// What is noted under the hub's mutex is called after it was released, by whoever released
// it, mostly the goroutine that reads the connection. Two goroutines never make the calls of
// one subscription together: the second leaves its own to the first, behind those that wait
// already. So the calls come in the order in which things happened, and a function may take a
// mutex under which others call the hub. It must not block, because a connection that
// nobody reads is given up in the end, by the hub or by the server.
//
// # Why no wake-up is missed
//
// Let a try find the lock taken, and let it be released, with a message, after
// that. If the subscription was not live when it chose its limit, the short limit
// holds. If it was live, the subscription had been confirmed, and there are
// three cases. The confirmation came after the try: its wake-up is pending and
// causes another. Or it came before the try, and the connection delivered the
// message: the caller is woken. Or it came before the try, and the connection ended
// before the message, or another server sent it: that is noticed, within the
// times above, and wakes the caller, whose subscription is then not live until the next
// confirmation wakes it again.
// A release without a message is what the long limit is for.
package pubsub
