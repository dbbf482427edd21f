// Package pubsub decides who wakes up when a message arrives on a Redis channel.
//
// A caller that waits for something which a message announces joins the channel,
// looks, and sleeps until it is woken:
//
//	w := hub.Join(channel)
//	defer w.Leave()
//	for !try() {
//		limit := long // what the holder's lease suggests
//		if !w.Live() {
//			limit = short // no message can be relied on
//		}
//		select {
//		case <-w.C():
//		case <-time.After(limit):
//		case <-ctx.Done():
//			return context.Cause(ctx)
//		}
//	}
//
// Join neither blocks nor fails, because the server's confirmation of the
// subscription is itself a wake-up: the try that follows it is the one that
// closes the gap between the first try and the subscription. Nobody waits for
// Redis under a mutex, and no caller's context reaches the shared connection.
//
// # The connection
//
// All waiters of a [Hub] share one connection. It is opened for the first of
// them and closed when no channel has been wanted for a while; a hub at rest has
// no connection and no goroutine. Any doubt about it ends it: a read or write
// error, an answer that was not asked for, or silence. After
// [Options.ProbeInterval] without traffic the hub causes some, and if another
// interval passes, the connection is deaf. It is replaced after a pause that
// grows from 10 ms to 1 s; nothing of the old connection is carried over.
//
// # A channel
//
// One goroutine per connection writes the requests, comparing what is wanted
// with what was asked last, so that a late UNSUBSCRIBE cannot deafen a new
// waiter: it is followed by a SUBSCRIBE. A connection answers in order, and
// therefore
//
//	wanted  someone waits, or someone did a moment ago (Options.Linger)
//	asked   the last request on this connection was SUBSCRIBE
//	open    so many requests are unanswered
//	live    nothing is open, and the last answer was a confirmation
//
// A refusal (ACL, proxy) answers the oldest open request. The channel is then
// not asked for again for 30 s; its waiters are never live, and live on their
// short limits.
//
// # Who wakes up
//
//   - A message wakes the longest waiter of its channel that has no wake-up
//     pending; the message "1" wakes them all. Everything else in a payload is
//     ignored: it is a hint, on which nothing is decided.
//   - A confirmation or refusal wakes all waiters of the channel.
//   - The end of a connection wakes all waiters that were live.
//   - A waiter that leaves hands a pending wake-up on to the next.
//   - Close wakes everybody.
//
// The two messages and the waiting order are those of Redisson's LockPubSub and
// PublishSubscribe; unlike there, a waiter is in the queue before its
// subscription is confirmed, and a wake-up is a flag, not a permit to be counted.
//
// # Why no wake-up is missed
//
// Let a try find the lock taken, and let it be released, with a message, after
// that. If the waiter was not live when it chose its limit, the short limit
// holds. If it was live, the subscription had been confirmed, and there are
// three cases. The confirmation came after the try: its wake-up is pending and
// causes another. Or it came before the try, and the connection delivered the
// message: the waiter is woken, or someone before it, who tries in its stead or
// hands the wake-up on. Or it came before the try, and the connection ended
// before the message: that is noticed within two probe intervals and wakes the
// waiter, which is then not live until the next confirmation wakes it again.
// A release without a message is what the long limit is for.
package pubsub
