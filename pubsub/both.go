package pubsub

import "github.com/redis/go-redis/v9"

// bothSource hears ordinary and sharded messages on one connection. Each channel is asked for
// twice, first as an ordinary channel, and two answers count as one: a subscription is
// confirmed when both halves are.
//
// A channel on the move to another server leaves the ordinary half behind until the
// connection ends; meanwhile messages come twice.
type bothSource struct {
	*redisSource

	// The answer to the first half of a request, used by Receive: a refusal or
	// the name of the channel. Nil and "" between requests.
	refusal *Event
	half    string
}

func (b *bothSource) Subscribe(channel string) error {
	if err := b.ps.Subscribe(b.ended, channel); err != nil {
		return err
	}
	return b.redisSource.Subscribe(channel)
}

func (b *bothSource) Unsubscribe(channel string) error {
	if err := b.ps.Unsubscribe(b.ended, channel); err != nil {
		return err
	}
	return b.redisSource.Unsubscribe(channel)
}

func (b *bothSource) Receive() (Event, error) {
	msg, err := b.receive()
	if err != nil {
		return b.halfRefused(err)
	}
	sub, ok := msg.(*redis.Subscription)
	if !ok || sub.Channel == b.probe {
		return b.event(msg)
	}
	between := b.half == "" && b.refusal == nil
	if sub.Kind == "subscribe" || sub.Kind == "unsubscribe" {
		if !between {
			return Event{}, errOutOfStep
		}
		b.half = sub.Channel
		return Event{Kind: Pong}, nil
	}
	if between || b.refusal == nil && b.half != sub.Channel {
		return b.event(msg) // unasked: the server takes the channel away
	}
	refusal := b.refusal
	b.half, b.refusal = "", nil
	if refusal != nil {
		return *refusal, nil
	}
	return b.event(msg)
}

// halfRefused is refused for half of a request.
func (b *bothSource) halfRefused(err error) (Event, error) {
	if isBusy(err) { // maybe to a PING, and not to half of a request
		return Event{}, err
	}
	e, err := b.refused(err)
	switch {
	case err != nil || e.Kind == Pong:
		return e, err
	case b.half == "" && b.refusal == nil:
		b.refusal = &e
		return Event{Kind: Pong}, nil
	default:
		b.half, b.refusal = "", nil
		return e, nil
	}
}
