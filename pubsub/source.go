package pubsub

import "context"

// Servers knows the server of each channel. All goroutines may call the methods.
type Servers interface {
	// Find returns the name of the server of a channel, as far as is known: Find does not
	// wait for news, if an earlier call or Refresh has found a server.
	Find(ctx context.Context, channel string) (server string, err error)
	// Refresh finds out which server serves which channel now. Refresh may hang; other calls
	// do not wait for Refresh.
	Refresh(ctx context.Context)
	// Open returns a new connection to a server; Find has named that server for channel. Open
	// should give up when ctx ends. While Open still runs, Open may be called again for another
	// connection.
	Open(ctx context.Context, server, channel string) (Source, error)
}

// Source is one connection of a subscriber. No source has to survive an error: the hub closes
// the source and opens a new one.
//
// Subscribe, Unsubscribe and Close are called by one goroutine, Receive by
// another, Probe by any.
type Source interface {
	// Subscribe sends a request and does not wait for the answer: the answer comes through
	// Receive. Requests are answered in order.
	Subscribe(channel string) error
	// Unsubscribe does likewise.
	Unsubscribe(channel string) error
	// Probe causes traffic: on a sound connection, an event follows. Probe may block until ctx
	// ends, and longer. An error says: the connection is not sound, or not to the right
	// server. sent says: the server has sent a message on this connection. If nothing is heard soon
	// after, the connection is deaf.
	Probe(ctx context.Context) (sent bool, err error)
	// Receive waits for the next event. An error of the connection, or Close, ends the wait.
	Receive() (Event, error)
	// Close ends the connection. Close is called once.
	Close() error
}

// Event is a message or an answer from the server.
type Event struct {
	Kind    Kind
	Channel string // of a Message, Subscribed or Unsubscribed
	Payload string // of a Message
	Err     error  // of a Refused
}

// Kind is the kind of an [Event].
type Kind int

const (
	// Message was published on a channel.
	Message Kind = iota
	// Subscribed confirms a subscription.
	Subscribed
	// Unsubscribed confirms the end of a subscription, or comes unasked: the channel is now on
	// another server.
	Unsubscribed
	// Refused answers the oldest unanswered request with an error. The
	// connection is sound.
	Refused
	// Moved is a Refused for now: the channel is on another server, or on none, or the
	// server is busy. If no request is unanswered, Moved is like a Pong.
	Moved
	// Pong shows a sound connection, and nothing else.
	Pong
)
