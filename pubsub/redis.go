package pubsub

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	requests "github.com/go-rlock/rlock/internal/request" // request is a type here
)

// Redis returns the [Servers] of ordinary channels, which use SUBSCRIBE and PUBLISH.
//
// probe is the name of a channel that only the [Hub] uses. Every connection of the hub subscribes to it, and
// the hub publishes probes on it through rdb. So the hub notices a connection to an isolated former master,
// even if that master still answers PING. On a single server, the probe is sent by a script that replicas
// refuse, so the hub also notices a former master that has become a replica. If the Redis user has no
// permission for the channel or for PUBLISH, the script counts the subscribers of a channel instead, and the
// connection is tested with PING. The hub also uses only PING while requests through rdb fail.
//
// In a cluster, all channels share one connection, to the node that owns the slot of probe. A PUBLISH on any
// node reaches that node.
//
// Redis panics if rdb is a [redis.Ring], because the shards of a Ring do not pass messages on to each other. Use
// [Plain] for several servers that are not a cluster.
func Redis(rdb redis.UniversalClient, probe string) Servers {
	if _, ok := rdb.(*redis.Ring); ok {
		panic("pubsub: Redis cannot use a redis.Ring, whose shards do not pass messages on to each other: use a Client or a ClusterClient")
	}
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		return &oneMaster{&masters{cluster: cluster, probe: probe}}
	}
	_, single := rdb.(*redis.Client)
	return &anyServer{rdb, probe, single}
}

// anyServer is the server chosen by rdb.
type anyServer struct {
	rdb    redis.UniversalClient
	probe  string
	single bool // PUBLISH counts all receivers, and a script may name no key
}

func (a *anyServer) Find(context.Context, string) (string, error) { return "", nil }
func (a *anyServer) Refresh(context.Context)                      {}

func (a *anyServer) Open(ctx context.Context, _, _ string) (Source, error) {
	return openOrdinary(ctx, a.rdb, a.probe, a.single)
}

// oneMaster of a cluster serves all channels: the master of the slot of probe.
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
	s.scripted.Store(counts)
	return s, s.begin(ctx)
}

type redisSource struct {
	rdb   redis.UniversalClient
	ps    *redis.PubSub
	probe string

	// The commands of one kind of channel.
	subscribe, unsubscribe func(ctx context.Context, channels ...string) error
	publish                func(p redis.Pipeliner, ctx context.Context, channel string, message any) *redis.IntCmd

	// ended is an ended context. After a failure inside a call, a PubSub dials a replacement
	// with the context of the call, under the mutex of the PubSub: this blocks every other call,
	// Close included, and the replacement may have missed messages. For reading and writing the
	// PubSub asks the context only for a deadline. So with an ended context the PubSub works
	// until the connection breaks, and then fails at once.
	ended context.Context

	answered bool                   // the first request, for the probe channel, has an answer; used by Receive
	echoes   atomic.Bool            // a probe may be published, and comes back
	counts   bool                   // publish should return the number of receivers of a probe
	counted  atomic.Bool            // publish has: some servers that speak Redis do not count
	scripted atomic.Bool            // a probe is a script
	sample   atomic.Pointer[string] // the last confirmed channel, nil after the end of the subscription
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

func (s *redisSource) Subscribe(channel string) error { return s.subscribe(s.ended, channel) }

// Unsubscribe also ends the counting of the channel, before the server can know.
func (s *redisSource) Unsubscribe(channel string) error {
	if sample := s.sample.Load(); sample != nil && *sample == channel {
		s.sample.Store(nil)
	}
	return s.unsubscribe(s.ended, channel)
}

// writing is a probe as a script. By the first line the script may write, so a replica refuses
// the script. If ARGV[2] says so and the server permits, the script publishes to a channel and
// returns {1, receivers}; otherwise {0, subscribers}, -1 if the server does not report the number.
const writing = `#!lua flags=allow-oom
if ARGV[2] == '1' then
    local heard = redis.pcall('publish', ARGV[1], '')
    if type(heard) == 'number' then
        return {1, heard}
    end
end
return {0, redis.pcall('pubsub', 'numsub', ARGV[1])[2] or -1}
`

// Without a receiver, the probe was executed by another server than the sender of the messages.
// After a replica's refusal, the replica may be the sender of the messages, unless a repeated
// probe is received after all: then only old connections of the pool lead to the replica.
func (s *redisSource) Probe(ctx context.Context) (sent bool, err error) {
	a, err := s.ask(ctx)
	refused := isReplica(err)
	for n := 0; n < maxReplicas && isReplica(err); n++ { // go-redis has given the connection up
		a, err = s.ask(ctx)
	}
	switch {
	case isReplica(err):
		return false, errElsewhere
	case err == nil && a.receivers > 0:
		s.counted.Store(true)
	case err == nil && (refused || a.receivers == 0 && s.counts && s.counted.Load()):
		return false, errElsewhere
	}
	if err == nil && a.published {
		return a.receivers > 0, nil
	}
	return false, s.ps.Ping(s.ended)
}

// maxReplicas is how often a probe is repeated after the refusal of a replica.
const maxReplicas = 3

// isReplica reports whether a script was refused because it may write.
func isReplica(err error) bool { return redis.IsReadOnlyError(err) || redis.IsMasterDownError(err) }

// isUnable reports whether the server cannot execute the script, or the user may not. Other
// errors, such as BUSY, pass.
func isUnable(err error) bool {
	reply, ok := errors.AsType[redis.Error](err)
	return ok && !isReplica(err) && (strings.HasPrefix(reply.Error(), "ERR ") || redis.IsPermissionError(err))
}

// once is a command without repetition by go-redis: the refusal of a replica is an answer.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// audience is the server's count for a channel: the receivers of a probe, or the subscribers; -1
// if unknown.
type audience struct {
	published bool
	receivers int64
}

// ask publishes a probe, or, without the permission, counts the subscribers of a channel.
func (s *redisSource) ask(ctx context.Context) (audience, error) {
	if s.scripted.Load() {
		a, err := s.askByScript(ctx)
		if !isUnable(err) {
			return a, err
		}
		s.scripted.Store(false) // before Redis 7, and of some proxies
	}
	if !s.echoes.Load() {
		return audience{receivers: -1}, nil
	}
	var receivers *redis.IntCmd
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		receivers = s.publish(p, ctx, s.probe, "")
		return nil
	})
	if redis.IsPermissionError(err) {
		s.echoes.Store(false) // and do not fill the server's ACL log
	}
	return audience{true, receivers.Val()}, err
}

// eval sends a probe, and copies of a probe without an answer.
func (s *redisSource) eval(ctx context.Context, channel string, publish int) (once, error) {
	k := copiesOf(ctx)
	probe := func() once { return once{redis.NewCmd(ctx, "eval", writing, 0, channel, publish)} }
	return requests.Race(ctx, k, func() (once, error) { return s.evalOnce(ctx, probe) },
		func(ctx context.Context, n int) (once, error) {
			lane, err := k.Lane(ctx, s.rdb, n)
			if err != nil {
				return once{}, err
			}
			answer := probe()
			return answer, lane.Process(ctx, answer)
		})
}

// evalOnce sends a probe by an idle connection for commands: a client that waits sends its probes and the
// requests of its waiters by the same connection. Pipelines have a connection pool of their own: an
// application's exhausted pool is no reason to reconnect.
func (s *redisSource) evalOnce(ctx context.Context, probe func() once) (once, error) {
	answer := probe()
	if s.rdb.PoolStats().IdleConns > 0 {
		half, cancel := context.WithTimeout(ctx, patience/4*probeInterval)
		defer cancel()
		if err := s.rdb.Process(half, answer); err == nil || half.Err() == nil && !errors.Is(err, redis.ErrPoolTimeout) {
			return answer, err
		}
		answer = probe() // somebody else has taken the connection
	}
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { return p.Process(ctx, answer) })
	return answer, err
}

type copiesKey struct{}

// withCopies has a probe send copies.
func withCopies(ctx context.Context, k *requests.Copies) context.Context {
	return context.WithValue(ctx, copiesKey{}, k)
}

// copiesOf returns nil if there are to be none.
func copiesOf(ctx context.Context) *requests.Copies {
	k, _ := ctx.Value(copiesKey{}).(*requests.Copies)
	return k
}

func (s *redisSource) askByScript(ctx context.Context) (audience, error) {
	channel, publish, sample := s.probe, 1, s.sample.Load()
	switch {
	case s.echoes.Load():
	case sample == nil: // nobody is told anything
		return audience{receivers: -1}, nil
	default:
		channel, publish = *sample, 0
	}
	answer, err := s.eval(ctx, channel, publish)
	if err != nil {
		return audience{}, err
	}
	numbers, err := answer.Int64Slice()
	if err != nil || len(numbers) != 2 {
		return audience{receivers: -1}, err
	}
	a := audience{numbers[0] == 1, numbers[1]}
	if publish == 1 && !a.published {
		s.echoes.Store(false)
	}
	if publish == 0 && s.sample.Load() != sample { // the subscription may have ended before the count
		a.receivers = -1
	}
	return a, nil
}

func (s *redisSource) Receive() (Event, error) {
	msg, err := s.receive()
	if err != nil {
		return s.refused(err)
	}
	return s.event(msg)
}

// receive waits without a deadline: some connections refuse deadlines, such as connections
// through SSH.
func (s *redisSource) receive() (any, error) { return s.ps.ReceiveTimeout(s.ended, -1) }

// event translates a message of a PubSub.
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
			s.sample.Store(&msg.Channel)
			return Event{Kind: Subscribed, Channel: msg.Channel}, nil
		default:
			return Event{Kind: Unsubscribed, Channel: msg.Channel}, nil
		}
	}
	return Event{Kind: Pong}, nil
}

// refused distinguishes an error reply, on a sound connection, from an error of the connection.
func (s *redisSource) refused(err error) (Event, error) {
	if _, ok := errors.AsType[redis.Error](err); !ok {
		return Event{}, err
	}
	_, moved := redis.IsMovedError(err)
	busy := isBusy(err)
	switch {
	case !s.answered && busy: // by the time of the next connection the server may be free
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

// isBusy reports whether the server runs a script of an application for too long, and refuses all other
// commands until the script ends.
func isBusy(err error) bool { return redis.HasErrorPrefix(err, "BUSY") }

func (s *redisSource) Close() error { return s.ps.Close() }
