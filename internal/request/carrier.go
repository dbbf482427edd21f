package request

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Carrier sends the commands of concurrent requests together: a [Group] to one server,
// [Masters] to the masters of a cluster.
type Carrier interface {
	// Call returns a call: the commands of simultaneous calls are sent together. [Call.Put] takes
	// the call back.
	Call(o Options) *Call

	// Process sends cmd alone, and returns the error of cmd. ErrNotSent means: cmd certainly
	// was not sent.
	Process(ctx context.Context, cmd redis.Cmder) error

	// Pipeline returns a pipeline of the client.
	Pipeline() redis.Pipeliner

	// Server is the server for calls with a key, as far as known. Server does not block.
	Server(key string) Server
}

// Server is a server of a [Carrier]. Hold(true) holds back all calls with Options.Leaves to the server,
// until Hold(false).
type Server interface{ Hold(on bool) }

// Config is the configuration of a [Carrier].
type Config struct {
	Client     redis.UniversalClient
	Begin, End func() // called before the start of a goroutine, and at the end
	Reload     func() // for a cluster: has the client look for the masters anew, in the background; often called
	Senders    int    // batches under way at once to a server
	Callers    bool   // a pipeline of several callers has the contexts of all: see [Callers]
	Copies     *Copies

	// Send sends several commands in one pipeline of rdb, some of the commands as one script if
	// combined is set. Send reports whether the server has refused such a script.
	Send func(ctx context.Context, rdb redis.UniversalClient, cmds []redis.Cmder, combined bool) (refused bool)
}

// NewCarrier returns the carrier for the client. Nothing is sent.
func NewCarrier(config Config) Carrier {
	if cluster, ok := config.Client.(*redis.ClusterClient); ok {
		return newMasters(config, cluster)
	}
	return NewGroup(config)
}

// obeys reports whether a client ends each command at the deadline of the context. With a negative
// time-out, for connections without deadlines, go-redis sets no deadline; and functions of the
// application, called by go-redis to connect or for each command, may take any time.
func obeys(o *redis.Options) bool {
	deadlines := o.ContextTimeoutEnabled && o.ReadTimeout >= 0 && o.WriteTimeout >= 0
	calls := o.Limiter != nil || o.OnConnect != nil ||
		o.CredentialsProvider != nil || o.CredentialsProviderContext != nil || o.StreamingCredentialsProvider != nil
	return deadlines && !calls
}

// Process implements [Carrier].
func (c *Config) Process(ctx context.Context, cmd redis.Cmder) error {
	twin, ok := cmd.(Twin)
	first := &note{Cmder: cmd, since: time.Now()}
	if !ok {
		return process(ctx, c.Client, first)
	}
	answered, err := Race(ctx, c.Copies, func() (redis.Cmder, error) {
		return nil, process(ctx, c.Client, first)
	}, func(ctx context.Context, n int) (redis.Cmder, error) {
		if !first.sent() && !hasIdle(c.Client) || !doubt(ctx) {
			return nil, ErrNotSent
		}
		lane, err := c.Copies.Lane(ctx, c.Client, n)
		if err != nil {
			return nil, err
		}
		other := twin.Twin(ctx)
		return other, process(ctx, lane, &note{Cmder: other, since: time.Now()})
	})
	if answered != nil {
		twin.Take(answered)
	}
	return err
}

// process sends a command by rdb.
func process(ctx context.Context, rdb redis.UniversalClient, n *note) error {
	err := rdb.Process(ctx, n)
	if err != nil && ctx.Err() != nil && !n.sent() {
		n.SetErr(ErrNotSent)
		return ErrNotSent
	}
	return n.errorOf(err)
}

// Pipeline implements [Carrier].
func (c *Config) Pipeline() redis.Pipeliner { return c.Client.Pipeline() }
