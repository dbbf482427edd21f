package kind

import (
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// redirects are the nodes of a cluster that requests are being sent on to. The client of the
// cluster may not know such a node, as it has no slot yet, and to look for it would mean to load
// the map of the cluster: from any node, which may hang. So each has a client of its own, that is
// closed when nobody uses it. The zero value is usable, by several goroutines.
type redirects struct {
	mu     sync.Mutex // guards what follows
	byAddr map[string]*redirect
}

type redirect struct {
	rdb   *redis.Client
	users int
}

// open returns a client of the node at addr. It is as the client of another node, from. done must
// be called when it is not used any more.
func (r *redirects) open(cluster *redis.ClusterClient, from *redis.Client, addr string) (_ *redis.Client, done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	to := r.byAddr[addr]
	if to == nil {
		opts := likeThose(from.Options())
		opts.Addr = endpoint(addr, from.Options().Addr)
		opts.PushNotificationProcessor = cluster.Options().PushNotificationProcessor
		to = &redirect{rdb: cluster.Options().NewClient(opts)}
		if r.byAddr == nil {
			r.byAddr = make(map[string]*redirect)
		}
		r.byAddr[addr] = to
	}
	to.users++
	return to.rdb, func() {
		r.mu.Lock()
		to.users--
		unused := to.users == 0
		if unused {
			delete(r.byAddr, addr)
		}
		r.mu.Unlock()
		if unused {
			_ = to.rdb.Close() // all that was sent is answered, or given up
		}
	}
}

// likeThose returns the options of a client as it was given them, without what it has for itself
// or for all its connections.
func likeThose(of *redis.Options) *redis.Options {
	opts := *of
	opts.MaxRetries = -1 // none; 0 would be the default
	for _, d := range []*time.Duration{&opts.ReadTimeout, &opts.WriteTimeout} {
		if *d <= 0 { // -1: none, -2: without deadlines. The client has added 1 to them
			*d--
		}
	}
	opts.MinIdleConns = 0
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	opts.ClientSideCache, opts.ClientSideCacheConfig = nil, nil
	return &opts
}

// endpoint is an address as it stands in a redirection, in the form that is dialled. A node that
// does not know its own name is where the other one is, which has redirected.
func endpoint(addr, other string) string {
	i := strings.LastIndexByte(addr, ':')
	host, port := strings.Trim(addr[:max(i, 0)], "[]"), addr[i+1:]
	if host == "" || host == "?" {
		host, _, _ = net.SplitHostPort(other)
	}
	return net.JoinHostPort(host, port)
}
