package pubsub

import "context"

// Servers knows which server each channel belongs to. Its methods must be safe for concurrent use.
type Servers interface {
	// Find returns the name of the server of a channel. If an earlier call of Find or Refresh has found the
	// server, Find returns that name without a request.
	Find(ctx context.Context, channel string) (server string, err error)
	// Refresh finds out which channels belong to which server now. A call of Refresh can take a long time, and
	// other methods must not wait for it.
	Refresh(ctx context.Context)
	// Open returns a new connection to the server that Find has returned for channel. Open should return when
	// ctx ends. It can be called again while an earlier call is still in progress.
	Open(ctx context.Context, server, channel string) (Source, error)
}

// Source is one connection of a subscriber. A Source need not work after an error, because the hub then closes
// it and opens a new one.
//
// One goroutine calls Subscribe, Unsubscribe and Close, another one calls Receive, and any goroutine can call
// Probe.
type Source interface {
	// Subscribe sends a request to subscribe to a channel, and does not wait for the answer. Receive returns
	// the answers, in the order of the requests.
	Subscribe(channel string) error
	// Unsubscribe sends a request to end a subscription, and does not wait for the answer.
	Unsubscribe(channel string) error
	// Probe makes the server send something on the connection, so that Receive returns an event if the
	// connection works. Probe can block until ctx ends, or longer. An error means that the connection does not
	// work, or that it leads to the wrong server. If sent is true, the server has sent a message on this
	// connection. If Probe returns sent but no event arrives soon after that, messages of the server do not
	// reach this connection.
	Probe(ctx context.Context) (sent bool, err error)
	// Receive waits for the next event. It returns an error when the connection fails or is closed.
	Receive() (Event, error)
	// Close closes the connection. The hub calls it only once.
	Close() error
}

// Event is a message or another answer from the server.
type Event struct {
	Kind    Kind
	Channel string // set for Message, Subscribed and Unsubscribed
	Payload string // set for Message
	Err     error  // set for Refused
}

// Kind says what an [Event] is.
type Kind int

const (
	// Message is a message that was published on a channel.
	Message Kind = iota
	// Subscribed confirms a subscription.
	Subscribed
	// Unsubscribed confirms the end of a subscription. If Unsubscribed arrives without a request, the channel
	// is now on another server.
	Unsubscribed
	// Refused is an error in answer to the oldest unanswered request. The connection still works.
	Refused
	// Moved is a temporary refusal, because the channel is on another server or on none, or because the server
	// is busy. If no request is unanswered, Moved is like Pong.
	Moved
	// Pong only shows that the connection works.
	Pong
)
