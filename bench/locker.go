package bench

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Locker is a client of a distributed lock. All goroutines of a worker process share one Locker.
type Locker interface {
	// Lock waits for the lock until ctx ends. held is ctx, or a context that the client derives from ctx, and
	// is passed to nested calls of Lock. ctx limits only the wait: after Lock has returned, the lock is held
	// until unlock is called, even if ctx has ended.
	Lock(ctx context.Context, name string) (held context.Context, unlock func(context.Context) error, err error)
	// Close releases the resources of the client. It is called when no lock is held any more.
	Close() error
}

// Contender is a kind of lock to measure.
type Contender struct {
	Name  string
	About string // a description of one line
	New   func(Target) (Locker, error)

	Reentrant bool // a nested Lock, under the context of a held lock, does not wait
	Redisson  bool // has the same data and messages in Redis as this library, so that both can share a lock
	Renews    bool // can hold a lock for longer than its lease, if Renew in Target is set
	Shared    bool // several goroutines can hold the lock at the same time, as readers do
	Quorum    bool // locks on all servers; runs only if there are several servers
	Variant   bool // runs only if a pattern selects it, see Pick

	Cluster bool // can lock on a cluster

	Kinds []Kind // the kinds of scenarios to run; nil means all that the contender can run

	floor bool
}

// Target is the server or the servers on which a contender locks.
type Target struct {
	Server  Server
	Servers []Server // if the contender is Quorum: all servers, of which Server is the first
	Lease   time.Duration
	Renew   bool // locks are held for longer than Lease, so the client must renew; otherwise it need not

	published *atomic.Int64 // messages of clients made by Dial
}

// Dial returns a client of the server. A message that this client publishes as a command, and not in a script,
// is counted as a probe.
func (t Target) Dial() redis.UniversalClient {
	rdb := t.Server.dial()
	switch cluster, ok := rdb.(*redis.ClusterClient); {
	case t.published == nil:
	case ok: // that of the cluster does not see what goes to its nodes in pipelines
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(publications{t.published}) })
	default:
		rdb.AddHook(publications{t.published})
	}
	return rdb
}

// Server is the address of a single Redis server, or of a master of a cluster.
type Server struct {
	Network, Addr      string
	Username, Password string
	DB                 int
	TLS                bool
	TLSName            string   // the name in the certificate of the server
	TLSAny             bool     // every certificate is accepted
	Pool               int      // number of connections for the commands of a client; 0 means the default of go-redis
	Cluster            []string // if the server is in a cluster: the addresses of the masters
	From               net.IP   // the local address from which the client connects; nil means any; do not set it with TLS
}

// NewServer returns the Server to which a client with these options connects.
func NewServer(o *redis.Options) Server {
	s := Server{Network: o.Network, Addr: o.Addr, Username: o.Username, Password: o.Password, DB: o.DB}
	if o.TLSConfig != nil {
		s.TLS, s.TLSName, s.TLSAny = true, o.TLSConfig.ServerName, o.TLSConfig.InsecureSkipVerify
	}
	return s
}

// Options returns the options of a go-redis client for the server. The options are go-redis's defaults, except
// for the address and for ContextTimeoutEnabled. ContextTimeoutEnabled saves this library a goroutine if only
// one request is in progress, and makes no difference to other libraries.
func (s Server) Options() *redis.Options {
	o := &redis.Options{Network: s.Network, Addr: s.Addr, Username: s.Username, Password: s.Password, DB: s.DB, ContextTimeoutEnabled: true}
	if s.Pool > 0 {
		o.PoolSize, o.PipelinePoolSize = s.Pool, 1
	}
	if s.From != nil {
		o.Dialer = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: s.From}}).DialContext
	}
	if s.TLS {
		o.TLSConfig = &tls.Config{ServerName: s.TLSName, InsecureSkipVerify: s.TLSAny}
	}
	return o
}

// dial returns a client of the server, or of the whole cluster that it is in.
func (s Server) dial() redis.UniversalClient {
	o := s.Options()
	if len(s.Cluster) == 0 {
		return redis.NewClient(o)
	}
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: s.Cluster, Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig,
		PoolSize: o.PoolSize, PipelinePoolSize: o.PipelinePoolSize, ContextTimeoutEnabled: true,
	})
}

// behind returns the server as it is reached through a proxy at addr.
func (s Server) behind(addr string) Server {
	if host, _, err := net.SplitHostPort(s.Addr); err == nil && s.TLSName == "" {
		s.TLSName = host
	}
	s.Network, s.Addr = "tcp", addr
	return s
}
