package pubsub

import "context"

// Source is one connection of a subscriber. It is not expected to survive an
// error: the hub closes it and opens another.
//
// Subscribe, Unsubscribe and Close are called by one goroutine, Receive by
// another, Probe by any.
type Source interface {
	// Subscribe sends a request and does not wait for the answer, which comes
	// through Receive. Requests are answered in order.
	Subscribe(channel string) error
	// Unsubscribe does likewise.
	Unsubscribe(channel string) error
	// Probe causes traffic: if the connection is sound, an event follows. It
	// may block until ctx ends, and longer.
	Probe(ctx context.Context)
	// Receive waits for the next event. It is ended by an error of the
	// connection, or by Close.
	Receive() (Event, error)
	// Close ends the connection. It is called once.
	Close() error
}

// Event is something that has come from the server.
type Event struct {
	Kind    Kind
	Channel string // of a Message, Subscribed or Unsubscribed
	Payload string // of a Message
	Err     error  // of a Refused
}

// Kind says what an [Event] is.
type Kind int

const (
	// Message was published on a channel.
	Message Kind = iota
	// Subscribed confirms a subscription.
	Subscribed
	// Unsubscribed confirms the end of one.
	Unsubscribed
	// Refused answers the oldest unanswered request with an error. The
	// connection is sound.
	Refused
	// Pong shows that the connection is sound, and nothing else.
	Pong
)
