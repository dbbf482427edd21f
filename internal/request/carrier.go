package request

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Carrier sends the commands of concurrent requests together: a [Group] to one server,
// [Masters] to the masters of a cluster.
type Carrier interface {
	// Call returns a request to make, whose commands are sent together with those of others.
	// [Call.Put] takes it back.
	Call(o Options) *Call

	// Process sends cmd alone, and returns the error of cmd. ErrNotSent means: cmd certainly
	// was not sent.
	Process(ctx context.Context, cmd redis.Cmder) error

	// Pipeline is that of the client.
	Pipeline() redis.Pipeliner

	// Server is the one that calls with a key are sent to, as far as is known. It does not
	// block.
	Server(key string) Server
}

// Server is one that a [Carrier] sends to. Hold(true) holds back the calls to it whose options
// say that they may leave something behind, until Hold(false).
type Server interface{ Hold(on bool) }

// Config is what a [Carrier] needs.
type Config struct {
	Client     redis.UniversalClient
	Begin, End func() // are called before a goroutine is started, and when it ends
	Reload     func() // for a cluster: has its client look for the masters anew, in the background; often called
	Senders    int    // batches under way at once to a server
	Callers    bool   // what is sent for several callers has their contexts: see [Callers]

	// Send sends several commands in one pipeline of rdb, some of the commands as one script if
	// combined is set. It reports whether the server has refused that.
	Send func(ctx context.Context, rdb redis.UniversalClient, cmds []redis.Cmder, combined bool) (refused bool)
}

// NewCarrier returns what fits the client. Nothing is sent.
func NewCarrier(config Config) Carrier {
	if cluster, ok := config.Client.(*redis.ClusterClient); ok {
		return newMasters(config, cluster)
	}
	return NewGroup(config)
}

// obeys reports whether a client ends each command at the deadline of its context. With a negative
// time-out, for connections that know no deadlines, go-redis sets none at all; and functions of the
// application that it calls, to connect or for each command, may take any time.
func obeys(o *redis.Options) bool {
	deadlines := o.ContextTimeoutEnabled && o.ReadTimeout >= 0 && o.WriteTimeout >= 0
	calls := o.Limiter != nil || o.OnConnect != nil ||
		o.CredentialsProvider != nil || o.CredentialsProviderContext != nil || o.StreamingCredentialsProvider != nil
	return deadlines && !calls
}

// Process implements [Carrier].
func (c *Config) Process(ctx context.Context, cmd redis.Cmder) error {
	n := note{Cmder: cmd, since: time.Now()}
	err := c.Client.Process(ctx, &n)
	if err != nil && ctx.Err() != nil && !n.sent() {
		cmd.SetErr(ErrNotSent)
		return ErrNotSent
	}
	return n.errorOf(err)
}

// Pipeline implements [Carrier].
func (c *Config) Pipeline() redis.Pipeliner { return c.Client.Pipeline() }
