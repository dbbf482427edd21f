package pubsub

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Redis returns what [NewHub] needs for ordinary channels: SUBSCRIBE and PUBLISH.
//
// probe is the name of a channel that nobody else uses. Every connection
// subscribes to it, and a probe is published to it through rdb as a command: so
// a connection that hangs on to an isolated former master is found out, which
// would go on answering PING. Where the channel or PUBLISH is not permitted, and
// while rdb fails, PING has to do.
//
// In a cluster all channels share one connection, to the owner of probe's slot;
// PUBLISH reaches it from every node.
func Redis(rdb redis.UniversalClient, probe string) Servers {
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		return &oneMaster{&masters{cluster: cluster, probe: probe}}
	}
	_, single := rdb.(*redis.Client)
	return &anyServer{rdb, probe, single}
}

// anyServer is the one that rdb chooses.
type anyServer struct {
	rdb    redis.UniversalClient
	probe  string
	single bool // PUBLISH counts all receivers
}

func (a *anyServer) Find(context.Context, string) (string, error) { return "", nil }
func (a *anyServer) Refresh(context.Context)                      {}

func (a *anyServer) Open(ctx context.Context, _, _ string) (Source, error) {
	return openOrdinary(ctx, a.rdb, a.probe, a.single)
}

// oneMaster of a cluster serves all channels: that of the slot of probe.
type oneMaster struct{ *masters }

func (o *oneMaster) Find(ctx context.Context, _ string) (string, error) {
	return o.masters.Find(ctx, o.probe)
}

func (o *oneMaster) Open(ctx context.Context, _, _ string) (Source, error) {
	return openOrdinary(ctx, o.cluster, o.probe, false) // PUBLISH counts the receivers of one node
}

func openOrdinary(ctx context.Context, rdb redis.UniversalClient, probe string, counts bool) (Source, error) {
	ps := rdb.Subscribe(ctx) // without channels: no I/O
	s := &redisSource{
		rdb: rdb, ps: ps, probe: probe, counts: counts,
		subscribe: ps.Subscribe, unsubscribe: ps.Unsubscribe, publish: redis.Pipeliner.Publish,
	}
	return s, s.begin(ctx)
}

type redisSource struct {
	rdb   redis.UniversalClient
	ps    *redis.PubSub
	probe string

	// The commands of one kind of channel.
	subscribe, unsubscribe func(ctx context.Context, channels ...string) error
	publish                func(p redis.Pipeliner, ctx context.Context, channel string, message any) *redis.IntCmd

	// ended is a context that is over. A PubSub uses the context of a call to
	// dial a replacement, inside a call that has failed and with its mutex held,
	// which blocks every other call, Close included; and the replacement may
	// have missed messages. For reading and writing it asks the context only for
	// a deadline. So with this one it works until the connection breaks, and
	// then fails at once.
	ended context.Context

	answered bool        // the request for the probe channel, which was the first; used by Receive
	echoes   atomic.Bool // a probe may be published, and comes back
	counts   bool        // publish returns how many have received a probe
	counted  atomic.Bool // it did: not everything that speaks Redis counts
}

// begin connects.
func (s *redisSource) begin(ctx context.Context) error {
	ended, end := context.WithCancel(context.Background())
	end()
	s.ended = ended
	err := s.subscribe(ctx, s.probe)
	if err != nil {
		_ = s.ps.Close()
	}
	return err
}

func (s *redisSource) Subscribe(channel string) error   { return s.subscribe(s.ended, channel) }
func (s *redisSource) Unsubscribe(channel string) error { return s.unsubscribe(s.ended, channel) }

// Probe publishes in a pipeline, because that has a connection pool of its own:
// an application that has used up the other one is no reason to reconnect.
//
// A probe that nobody has received was executed by another server than the one
// that sends the messages.
func (s *redisSource) Probe(ctx context.Context) (sent bool, err error) {
	if s.echoes.Load() {
		var receivers *redis.IntCmd
		_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			receivers = s.publish(p, ctx, s.probe, "")
			return nil
		})
		switch {
		case err == nil && receivers.Val() > 0:
			s.counted.Store(true)
			return true, nil
		case err == nil && s.counts && s.counted.Load():
			return false, errElsewhere
		case err == nil:
			return false, nil
		case redis.IsPermissionError(err):
			s.echoes.Store(false) // and do not fill the server's ACL log
		}
	}
	return false, s.ps.Ping(s.ended)
}

func (s *redisSource) Receive() (Event, error) {
	msg, err := s.ps.Receive(s.ended)
	if err != nil {
		return s.refused(err)
	}
	return s.event(msg)
}

// event translates what a PubSub has received.
func (s *redisSource) event(msg any) (Event, error) {
	switch msg := msg.(type) {
	case *redis.Message:
		if msg.Channel != s.probe {
			return Event{Kind: Message, Channel: msg.Channel, Payload: msg.Payload}, nil
		}
	case *redis.Subscription:
		begins := msg.Kind == "subscribe" || msg.Kind == "ssubscribe"
		switch {
		case msg.Channel == s.probe && !begins:
			return Event{}, errElsewhere
		case msg.Channel == s.probe:
			s.answered = true
			s.echoes.Store(true)
		case begins:
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
	_, moved := redis.IsMovedError(err)
	busy := isBusy(err)
	switch {
	case !s.answered && busy: // by the time of another connection it may not be
		return Event{}, err
	case !s.answered:
		s.answered = true // no probe channel, then
	case strings.Contains(err.Error(), "'ping'"):
		// NOPERM for a PING is an answer as good as any.
	case moved, busy, redis.IsClusterDownError(err):
		return Event{Kind: Moved, Err: err}, nil
	default:
		return Event{Kind: Refused, Err: err}, nil
	}
	return Event{Kind: Pong}, nil
}

// isBusy tells of a server that runs a script of somebody's for too long, and refuses all
// else until that ends.
func isBusy(err error) bool { return redis.HasErrorPrefix(err, "BUSY") }

func (s *redisSource) Close() error { return s.ps.Close() }
