package pubsub

import "context"

// Servers knows which server a channel is on. Its methods may be called from any
// goroutine.
type Servers interface {
	// Find returns the name of the server that serves a channel, as far as is
	// known: it waits for nothing that an earlier call, or Refresh, could have
	// found out.
	Find(ctx context.Context, channel string) (server string, err error)
	// Refresh finds out who serves what now. It may hang, and other calls then
	// do not have to wait for it.
	Refresh(ctx context.Context)
	// Open returns a new connection to a server, of which channel is one that
	// Find has placed there. It should give up when ctx ends; until it does, it
	// may be called again for another connection.
	Open(ctx context.Context, server, channel string) (Source, error)
}

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
	// may block until ctx ends, and longer. An error says that the connection
	// is not sound, or not to the right server. sent says that the server has
	// sent what must be heard: if nothing is, soon after, the connection is deaf.
	Probe(ctx context.Context) (sent bool, err error)
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
	// Unsubscribed confirms the end of one, or tells of it: the channel is now
	// on another server.
	Unsubscribed
	// Refused answers the oldest unanswered request with an error. The
	// connection is sound.
	Refused
	// Moved is a Refused for now: the channel is on another server, or on none, or the
	// server is busy. If no request is unanswered, it is like a Pong.
	Moved
	// Pong shows that the connection is sound, and nothing else.
	Pong
)
