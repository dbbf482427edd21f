package pubsub

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Redis returns a function that opens a [Source] on rdb, for [NewHub].
//
// probe is the name of a channel that nobody else uses. Every connection
// subscribes to it, and a probe is published to it through rdb as a command: so
// a connection that hangs on to an isolated former master is found out, which
// would go on answering PING. Where the channel or PUBLISH is not permitted, and
// while rdb fails, PING has to do.
//
// In a cluster all channels share one connection, to the owner of probe's slot;
// PUBLISH reaches it from every node.
func Redis(rdb redis.UniversalClient, probe string) func(context.Context) (Source, error) {
	return func(ctx context.Context) (Source, error) {
		ps := rdb.Subscribe(ctx) // without channels: no I/O
		if err := ps.Subscribe(ctx, probe); err != nil {
			_ = ps.Close()
			return nil, err
		}
		ended, end := context.WithCancel(context.Background())
		end()
		return &redisSource{rdb: rdb, ps: ps, probe: probe, ended: ended}, nil
	}
}

type redisSource struct {
	rdb   redis.UniversalClient
	ps    *redis.PubSub
	probe string

	// ended is a context that is over. A PubSub uses the context of a call to
	// dial a replacement, inside a call that has failed and with its mutex held,
	// which blocks every other call, Close included; and the replacement may
	// have missed messages. For reading and writing it asks the context only for
	// a deadline. So with this one it works until the connection breaks, and
	// then fails at once.
	ended context.Context

	answered bool        // the request for the probe channel, which was the first; used by Receive
	echoes   atomic.Bool // a probe may be published, and comes back
}

func (s *redisSource) Subscribe(channel string) error {
	return s.ps.Subscribe(s.ended, channel)
}

func (s *redisSource) Unsubscribe(channel string) error {
	return s.ps.Unsubscribe(s.ended, channel)
}

// Probe publishes in a pipeline, because that has a connection pool of its own:
// an application that has used up the other one is no reason to reconnect.
func (s *redisSource) Probe(ctx context.Context) {
	if s.echoes.Load() {
		_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.Publish(ctx, s.probe, "")
			return nil
		})
		if err == nil {
			return
		}
		if redis.IsPermissionError(err) {
			s.echoes.Store(false) // and do not fill the server's ACL log
		}
	}
	_ = s.ps.Ping(s.ended) // a failure shows as silence
}

func (s *redisSource) Receive() (Event, error) {
	msg, err := s.ps.Receive(s.ended)
	if err != nil {
		return s.refused(err)
	}
	switch msg := msg.(type) {
	case *redis.Message:
		if msg.Channel != s.probe {
			return Event{Kind: Message, Channel: msg.Channel, Payload: msg.Payload}, nil
		}
	case *redis.Subscription:
		switch {
		case msg.Channel == s.probe:
			s.answered = true
			s.echoes.Store(true)
		case msg.Kind == "subscribe":
			return Event{Kind: Subscribed, Channel: msg.Channel}, nil
		default:
			return Event{Kind: Unsubscribed, Channel: msg.Channel}, nil
		}
	}
	return Event{Kind: Pong}, nil
}

// refused tells an error that the server sent on a sound connection from one of
// the connection.
func (s *redisSource) refused(err error) (Event, error) {
	if _, ok := errors.AsType[redis.Error](err); !ok {
		return Event{}, err
	}
	switch {
	case !s.answered:
		s.answered = true // no probe channel, then
	case strings.Contains(err.Error(), "'ping'"):
		// NOPERM for a PING is an answer as good as any.
	default:
		return Event{Kind: Refused, Err: err}, nil
	}
	return Event{Kind: Pong}, nil
}

func (s *redisSource) Close() error { return s.ps.Close() }
