package bench

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/rlock"
)

// Locker is a client of some distributed lock, as a worker process uses it: all
// its goroutines share one.
type Locker interface {
	// Lock waits for the lock until ctx ends. held is ctx, or what the client
	// makes of it: a nested Lock is called with it.
	Lock(ctx context.Context, name string) (held context.Context, unlock func(context.Context) error, err error)
	// Close frees what the client has open. No lock is held any more.
	Close() error
}

// Contender is a kind of lock to measure.
type Contender struct {
	Name  string
	About string // one line for a list
	New   func(Target) (Locker, error)

	Reentrant bool // a Lock under the context of a held one enters
	Redisson  bool // keeps and announces locks as this library does, so that both can share one
	Renews    bool // keeps a held lock for longer than its lease, if Target.Renew says so
}

// Target is what a contender is to lock on.
type Target struct {
	Server Server
	Lease  time.Duration
	Renew  bool // locks are held for longer than Lease; otherwise renewing is the client's own choice
}

// Server is a single Redis server.
type Server struct {
	Network, Addr      string
	Username, Password string
	DB                 int
	TLS                bool
	TLSName            string // as in the certificate
	TLSAny             bool   // any certificate will do
}

// NewServer takes from the options of a client what leads to the server.
func NewServer(o *redis.Options) Server {
	s := Server{Network: o.Network, Addr: o.Addr, Username: o.Username, Password: o.Password, DB: o.DB}
	if o.TLSConfig != nil {
		s.TLS, s.TLSName, s.TLSAny = true, o.TLSConfig.ServerName, o.TLSConfig.InsecureSkipVerify
	}
	return s
}

// Options are those of a go-redis client of the server: defaults, apart from
// where it is.
func (s Server) Options() *redis.Options {
	o := &redis.Options{Network: s.Network, Addr: s.Addr, Username: s.Username, Password: s.Password, DB: s.DB}
	if s.TLS {
		o.TLSConfig = &tls.Config{ServerName: s.TLSName, InsecureSkipVerify: s.TLSAny}
	}
	return o
}

// behind returns the server as it is reached through a proxy at addr.
func (s Server) behind(addr string) Server {
	if host, _, err := net.SplitHostPort(s.Addr); err == nil && s.TLSName == "" {
		s.TLSName = host
	}
	s.Network, s.Addr = "tcp", addr
	return s
}

// Contenders are those of this package: this library, and a plain lock on its
// wire format to compare it with.
func Contenders() []Contender {
	return []Contender{
		{Name: "rlock", About: "this library, default options", New: newRlock, Reentrant: true, Redisson: true, Renews: true},
		{Name: plainName, About: "the same scripts with one subscription, FIFO inside the process, nothing else", New: newPlain, Redisson: true},
	}
}

type rlocker struct {
	rdb    *redis.Client
	client *rlock.Client
}

func newRlock(t Target) (Locker, error) {
	rdb := redis.NewClient(t.Server.Options())
	client, err := rlock.New(rdb, &rlock.Options{LeaseTime: t.Lease})
	return &rlocker{rdb, client}, err
}

func (l *rlocker) Lock(ctx context.Context, name string) (context.Context, func(context.Context) error, error) {
	held, hold, err := l.client.NewLock(name).Lock(ctx)
	if err != nil {
		return ctx, nil, err
	}
	return held, hold.Unlock, nil
}

func (l *rlocker) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	err := l.client.Close(ctx)
	_ = l.rdb.Close()
	return err
}
