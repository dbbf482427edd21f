package rlock_test

import (
	"context"
	"crypto/fips140"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
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

// executedBy is how many scripts a node has executed.
func executedBy(t *testing.T, node *redistest.Server) int64 {
	t.Helper()
	calls := node.CommandCalls(t)
	return calls["eval"] + calls["evalsha"]
}

// No replica executes a command of a lock, even if the client is set up to read from
// replicas: neither a node that has always been a replica, nor a former master that the
// client still takes for the master.
func TestReplicasAreNotAsked(t *testing.T) {
	redistest.Long(t, "a cluster with replicas")
	cluster := redistest.StartCluster(t, 3, 1)
	for i, edit := range []func(*redis.ClusterOptions){
		func(o *redis.ClusterOptions) { o.ReadOnly = true },
		func(o *redis.ClusterOptions) { o.RouteByLatency = true },
		func(o *redis.ClusterOptions) { o.RouteRandomly = true },
	} {
		old := cluster.Nodes[i] // each time another, as nobody votes for a new one twice in a short time
		t.Run([]string{"ReadOnly", "RouteByLatency", "RouteRandomly"}[i], func(t *testing.T) {
			if i == 1 && redistest.RaceEnabled {
				t.Skip("go-redis 9.23 measures the latency of a new node while NewClusterClient still sets its options: a data race")
			}
			c := clientOn(t, cluster.Client(t, edit), nil)
			one := clientOn(t, cluster.Client(t, edit), &rlock.Options{LeaseTime: renewSoon})
			another := clientOn(t, cluster.Client(t, edit), &rlock.Options{LeaseTime: renewSoon})
			use := func() {
				t.Helper()
				var wg sync.WaitGroup
				for i := range 64 {
					for _, mu := range []*rlock.Lock{
						c.NewLock(strconv.Itoa(i)), c.NewFairLock("fair" + strconv.Itoa(i)), c.NewRWLock("rw" + strconv.Itoa(i)).Reader(),
					} {
						wg.Go(func() { assert.NoError(t, mu.Do(t.Context(), func(context.Context) error { return nil })) })
					}
				}
				for i := range 12 {
					wg.Go(func() { assert.NoError(t, everyRequest(t.Context(), one, another, strconv.Itoa(i))) })
				}
				wg.Wait()
			}
			use()
			use() // on connections of the pipelines
			cluster.Failover(cluster.Replica(old))
			executed := make(map[*redistest.Server]int64)
			for _, node := range cluster.Nodes {
				if info := node.Client(t).Info(t.Context(), "replication").Val(); strings.Contains(info, "role:slave") {
					executed[node] = executedBy(t, node)
				}
			}
			require.Len(t, executed, 3)
			require.Contains(t, executed, old)
			use()
			for node, before := range executed {
				require.Equal(t, before, executedBy(t, node))
			}
		})
	}
}

// renewSoon is a lease that is renewed for the first time after a second at the latest.
const renewSoon = 3 * time.Second

// everyRequest has two clients make what requests there are.
func everyRequest(ctx context.Context, one, another *rlock.Client, name string) error {
	var all []error
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, f := range []func() error{
		func() error {
			return waitedFor(ctx, one.NewLock(name, rlock.WithFencing()), another.NewLock(name, rlock.WithFencing()))
		},
		func() error { return waitedFor(ctx, one.NewFairLock("fair"+name), another.NewFairLock("fair"+name)) },
		func() error {
			return waitedFor(ctx, one.NewRWLock("1w"+name).Writer(), another.NewRWLock("1w"+name).Writer())
		},
		func() error {
			return waitedFor(ctx, one.NewRWLock("2w"+name).Writer(), another.NewRWLock("2w"+name).Reader())
		},
		func() error {
			return waitedFor(ctx, one.NewRWLock("3w"+name).Reader(), another.NewRWLock("3w"+name).Writer())
		},
		func() error { // in one slot, and in two
			slot := rlock.NewMultiLock(one.NewLock("{m"+name+"}1"), one.NewLock("{m"+name+"}2"))
			slots := rlock.NewMultiLock(one.NewLock("1m"+name), one.NewLock("2m"+name))
			return slot.Do(ctx, func(ctx context.Context) error { return slots.Do(ctx, func(context.Context) error { return nil }) })
		},
	} {
		wg.Go(func() {
			err := f()
			mu.Lock()
			defer mu.Unlock()
			all = append(all, err)
		})
	}
	wg.Wait()
	return errors.Join(all...)
}

// waitedFor locks a lock, also nested, until it was renewed and the other waits for it, and
// hands it over.
func waitedFor(ctx context.Context, mu, other *rlock.Lock) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	held, hold, err := mu.Lock(ctx)
	if err != nil {
		return err
	}
	_, nested, err := mu.Lock(held)
	if err != nil {
		return err
	}
	if err := nested.Unlock(held); err != nil {
		return err
	}
	waiter := make(chan error, 1)
	go func() {
		waiter <- other.Do(ctx, func(ctx context.Context) error {
			if token := other.Token(ctx); token < hold.Token() || token == hold.Token() && token > 0 {
				return fmt.Errorf("token %d after %d", token, hold.Token())
			}
			return nil
		})
	}()
	for until := hold.Until(); !hold.Until().After(until); time.Sleep(5 * time.Millisecond) {
		if held.Err() != nil {
			return context.Cause(held)
		}
	}
	return errors.Join(hold.Unlock(held), <-waiter)
}

// fips locks, waits, unlocks and runs a Script in a process that may use approved cryptography only.
func fips(args []string) {
	rdb := redis.NewClient(&redis.Options{Addr: args[0]})
	var clients [2]*rlock.Client
	for i := range clients {
		c, err := rlock.New(rdb, nil)
		if err != nil {
			panic(err)
		}
		clients[i] = c
	}
	for _, lockOf := range []func(*rlock.Client) rlock.Locker{
		func(c *rlock.Client) rlock.Locker { return c.NewLock("plain", rlock.WithFencing()) },
		func(c *rlock.Client) rlock.Locker { return c.NewFairLock("fair") },
		func(c *rlock.Client) rlock.Locker { return c.NewRWLock("rw").Writer() },
		func(c *rlock.Client) rlock.Locker {
			return rlock.NewMultiLock(c.NewLock("a"), c.NewLock("b"))
		},
	} {
		inside := make(chan error)
		err := lockOf(clients[0]).Do(context.Background(), func(ctx context.Context) error {
			go func() {
				inside <- lockOf(clients[1]).Do(context.Background(), func(context.Context) error { return nil })
			}()
			return nil
		})
		if other := <-inside; err != nil || other != nil {
			panic(fmt.Sprint(err, other))
		}
	}
	script := rlock.NewScript(`return redis.call('incr', KEYS[2])`)
	ctx, hold, err := clients[0].NewLock("script").Lock(context.Background())
	for range 2 { // by its source, and by its hash
		if err == nil {
			_, err = script.Run(ctx, hold, []string{"count"})
		}
	}
	if err = errors.Join(err, hold.Unlock(ctx)); err != nil {
		panic(err)
	}
	fmt.Println("enforced", fips140.Enforced())
}

func TestFIPS(t *testing.T) {
	srv := redistest.Start(t)
	t.Setenv("GODEBUG", "fips140=only")
	child := redistest.Spawn(t, "fips", srv.Addr())
	require.Equal(t, "true", child.Expect("enforced ", 20*time.Second))
}

// Every request, hand-offs by message and a loss, by either protocol, whoever obeys
// deadlines, and with a single connection.
func TestProtocols(t *testing.T) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		for _, obeys := range []bool{false, true} {
			for _, connections := range []int{1, 0} { // 0: go-redis' default
				t.Run(fmt.Sprintf("RESP%d, ContextTimeoutEnabled %t, PoolSize %d", protocol, obeys, connections), func(t *testing.T) {
					t.Parallel()
					srv := newServer(t)
					client := func() *rlock.Client {
						return clientOn(t, srv.Client(t, func(o *redis.Options) {
							o.Protocol, o.ContextTimeoutEnabled, o.PoolSize, o.PipelinePoolSize = protocol, obeys, connections, connections
						}), &rlock.Options{LeaseTime: renewSoon})
					}
					one, another := client(), client()
					require.NoError(t, everyRequest(t.Context(), one, another, "a"))
					for _, typ := range []string{"normal", "pubsub"} {
						for _, conn := range srv.Clients(t, typ) {
							if resp := conn["resp"]; resp != "" { // old servers do not tell
								require.Equal(t, fmt.Sprint(protocol), resp, conn)
							}
						}
					}

					mu := one.NewLock("gone")
					held, hold := lock(t, t.Context(), mu)
					require.NoError(t, srv.Client(t).Del(t.Context(), "gone").Err())
					select {
					case <-held.Done():
					case <-time.After(20 * time.Second):
						require.FailNow(t, "the loss was not noticed")
					}
					require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost)
					require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
				})
			}
		}
	}
}
