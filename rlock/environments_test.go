package rlock_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// requireHandedOver fails unless a lock passes from one client to another that waits for it.
func requireHandedOver(t *testing.T, from, to *rlock.Client) {
	t.Helper()
	ctx := t.Context()
	held, hold := lock(t, ctx, from.NewLock("a"))
	waits := async(func() error { return to.NewLock("a").Do(ctx, func(context.Context) error { return nil }) })
	redistest.Eventually(t, "the other one queues", func() bool {
		state, err := from.NewLock("a").Inspect(ctx)
		return err == nil && state.Waiters == 1
	})
	require.NoError(t, held.Err())
	require.NoError(t, hold.Unlock(ctx))
	require.NoError(t, <-waits)
}

// rotating are credentials that change. It implements [auth.StreamingCredentialsProvider].
type rotating struct {
	mu        sync.Mutex // guards what follows
	password  string
	listeners map[auth.CredentialsListener]bool
}

func (r *rotating) current() auth.Credentials {
	r.mu.Lock()
	defer r.mu.Unlock()
	return auth.NewBasicCredentials("app", r.password)
}

func (r *rotating) Subscribe(l auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listeners[l] = true
	return auth.NewBasicCredentials("app", r.password), func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.listeners, l)
		return nil
	}, nil
}

// rotate has new connections log in with another password, and those that listen log in anew.
func (r *rotating) rotate(password string) {
	r.mu.Lock()
	r.password = password
	var all []auth.CredentialsListener
	for l := range r.listeners {
		all = append(all, l)
	}
	r.mu.Unlock()
	for _, l := range all {
		l.OnNext(r.current())
	}
}

// A lock that is held when the password changes stays held, and the lock is handed over with the new one.
func TestRotatingCredentials(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(*redis.Options, *rotating){
		"StreamingCredentialsProvider": func(o *redis.Options, r *rotating) { o.StreamingCredentialsProvider = r },
		"CredentialsProviderContext": func(o *redis.Options, r *rotating) {
			o.CredentialsProviderContext = func(context.Context) (string, string, error) {
				user, password := r.current().BasicAuth()
				return user, password, nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, ctx := newServer(t), t.Context()
			admin := srv.Client(t)
			require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "app", "on", ">old", "~*", "&*", "+@all").Err())
			r := &rotating{password: "old", listeners: make(map[auth.CredentialsListener]bool)}
			edit := func(o *redis.Options) { use(o, r) }
			from, to := clientOn(t, srv.Client(t, edit), nil), clientOn(t, srv.Client(t, edit), nil)
			requireHandedOver(t, from, to)

			held, hold := lock(t, ctx, from.NewLock("held"))
			require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "app", ">new").Err())
			r.rotate("new")
			require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "app", "<old").Err())
			require.NoError(t, admin.ClientKillByFilter(ctx, "USER", "app").Err()) // as at the end of a token
			requireHandedOver(t, from, to)
			require.NoError(t, held.Err())
			require.NoError(t, hold.Unlock(ctx))
		})
	}
}

// With RESP3 the server sends pushes between the replies: here one on each connection for each key that is written.
func TestClientTracking(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	edit := func(o *redis.Options) {
		o.Protocol = 3
		o.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
			return cn.Do(ctx, "CLIENT", "TRACKING", "ON", "BCAST").Err()
		}
	}
	from, to := clientOn(t, srv.Client(t, edit), nil), clientOn(t, srv.Client(t, edit), nil)
	for range 20 {
		requireHandedOver(t, from, to)
	}
}

// A client that asks for maintenance notifications works with a server that has none.
func TestMaintenanceNotifications(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	edit := func(o *redis.Options) {
		o.Protocol = 3
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeAuto}
	}
	requireHandedOver(t, clientOn(t, srv.Client(t, edit), nil), clientOn(t, srv.Client(t, edit), nil))
}

// The nodes of a cluster announce an address that only the dialer can reach.
func TestClusterBehindNAT(t *testing.T) {
	t.Parallel()
	const announced = "192.0.2.1" // for documents: nobody has it
	srv, ctx := newServer(t, "--cluster-enabled", "yes", "--cluster-announce-ip", announced), t.Context()
	admin := srv.Client(t)
	require.NoError(t, admin.ClusterAddSlotsRange(ctx, 0, 16383).Err())
	redistest.Eventually(t, "the cluster serves", func() bool { return strings.Contains(admin.ClusterInfo(ctx).Val(), "cluster_state:ok") })
	client := func() *rlock.Client {
		rdb := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: []string{srv.Addr()},
			Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, strings.Replace(addr, announced, "127.0.0.1", 1))
			},
		})
		t.Cleanup(func() { require.NoError(t, rdb.Close()) })
		return clientOn(t, rdb, nil)
	}
	requireHandedOver(t, client(), client())
}

func TestIPv6(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("this host has no IPv6: ", err)
	}
	require.NoError(t, l.Close())
	srv := newServer(t, "--bind", "127.0.0.1", "::1")
	edit := func(o *redis.Options) { o.Addr = strings.Replace(o.Addr, "127.0.0.1", "[::1]", 1) }
	requireHandedOver(t, clientOn(t, srv.Client(t, edit), nil), clientOn(t, srv.Client(t, edit), nil))
}
