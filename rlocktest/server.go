package rlocktest

import (
	"context"
	"crypto/fips140"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/go-rlock/rlock/rlock"
)

// closeLimit is how long the end of a test waits for its holders. In a bubble it
// costs nothing.
const closeLimit = 10 * time.Second

// Server is a Redis inside the test. Its methods may be called from any
// goroutine of the test.
type Server struct {
	tb      testing.TB
	network *network
	own     *redis.Client // not subject to Hang and Refuse
	owners  atomic.Int64  // made up by TakeOver
	fake    bool          // it was made in a bubble
}

// NewServer starts an empty server that ends with the test. In a
// [testing/synctest] bubble, call it inside the bubble.
func NewServer(tb testing.TB) *Server {
	tb.Helper()
	mini := miniredis.NewMiniRedis()
	mini.ClockTTL(true)
	// The first Dial is what starts a server without a listener.
	first, err := mini.Dial()
	if err != nil {
		tb.Fatal(err)
	}
	_ = first.Close()
	tb.Cleanup(mini.Close)
	mini.Server().SetPreHook(info())
	serve := func(conn net.Conn) {
		fips140.WithoutEnforcement(func() { mini.Server().ServeConn(conn) }) // it names scripts by SHA-1
	}
	s := &Server{tb: tb, network: newNetwork(serve), fake: fakeTime()}
	s.own = s.client(newNetwork(serve))
	return s
}

// info answers INFO server, by which a quorum lock tells servers apart and learns their
// age: this one has forgotten nothing, so it is old.
func info() server.Hook {
	text := fmt.Sprintf("# Server\r\nrun_id:%s\r\nuptime_in_seconds:%d\r\n", rand.Text(), 24*60*60)
	return func(peer *server.Peer, command string, args ...string) bool {
		if !strings.EqualFold(command, "info") || len(args) != 1 || !strings.EqualFold(args[0], "server") {
			return false
		}
		peer.WriteBulk(text)
		return true
	}
}

// Client returns a client of the server, with go-redis's default options as far
// as a bubble allows, changed by edit. It is closed when the test ends.
func (s *Server) Client(edit ...func(*redis.Options)) *redis.Client {
	s.tb.Helper()
	if s.fake != fakeTime() { // the runtime would end the whole program
		s.tb.Fatal("rlocktest: NewServer was called outside of this bubble: call it inside")
	}
	return s.client(s.network, edit...)
}

// fakeTime reports whether the caller is in a bubble: its clock begins at the year 2000.
func fakeTime() bool { return time.Now().Year() < 2020 }

func (s *Server) client(n *network, edit ...func(*redis.Options)) *redis.Client {
	// What go-redis shares between its clients, or leaves running for a while
	// when one is closed, must not come into play in a bubble.
	opts := &redis.Options{
		Addr:             n.name, // of two servers, a multi lock may have locks of one name
		Dialer:           n.dial,
		PoolSize:         poolSize, // the timers of those who wait for a connection are shared
		PipelinePoolSize: poolSize, // after that many failures a goroutine tries to connect every second
		DialerRetries:    1,        // a second one sleeps before it
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled, // looks the server's name up
		},
	}
	for _, f := range edit {
		f(opts)
	}
	rdb := redis.NewClient(opts)
	s.tb.Cleanup(func() { _ = rdb.Close() }) // the test may have closed it
	return rdb
}

const poolSize = 4096

// Locks returns a client for locks on the server, with a connection pool of its
// own: another process, as it were. When the test ends, the server is healed and
// the client closed. A lock that is still held then fails the test.
func (s *Server) Locks(opts *rlock.Options) *rlock.Client {
	s.tb.Helper()
	client, err := rlock.New(s.Client(), opts)
	if err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(func() {
		s.Heal()
		ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
		defer cancel()
		if err := client.Close(ctx); err != nil {
			s.tb.Errorf("rlocktest: %v", err)
		}
	})
	return client
}

// Evict removes the lock at key, which is the lock's name behind the client's
// prefix. Nobody is told, as when the server evicts the key or fails over to a
// replica that never had it: the holder learns it at its next renewal, within a
// third of its lease. It is an error of the test if the key holds no lock.
func (s *Server) Evict(key string) {
	s.tb.Helper()
	err := s.expect(key, "hash")
	if err == nil {
		err = s.own.Del(context.Background(), key).Err()
	}
	if err != nil {
		s.tb.Errorf("rlocktest: evict %q: %v", key, err)
	}
}

// expect returns an error if a key does not hold one of some types; "none" is that of a key that
// there is not.
func (s *Server) expect(key string, types ...string) error {
	switch found, err := s.own.Type(context.Background(), key).Result(); {
	case err != nil:
		return err
	case found == "none" && !slices.Contains(types, found):
		return errors.New("there is no lock")
	case !slices.Contains(types, found):
		return fmt.Errorf("it holds a %s, not a lock", found)
	}
	return nil
}

// TakeOver gives the lock at key to an owner outside of the test, in place of
// the present holder, if there is one. It returns the owner's name. Nobody
// renews the lease, of ttl; zero or less means that it has no end. A read/write lock that is
// held becomes a writer's; what is free becomes a plain lock, which a read/write lock
// finds to be of another kind. It is an error of the test if the key holds something else.
func (s *Server) TakeOver(key string, ttl time.Duration) (owner string) {
	s.tb.Helper()
	owner = fmt.Sprintf("rlocktest:%d", s.owners.Add(1))
	ctx := context.Background()
	fields := []any{owner, 1}
	if err := s.expect(key, "hash", "none"); err != nil {
		s.tb.Errorf("rlocktest: take over %q: %v", key, err)
		return owner
	}
	if s.own.HExists(ctx, key, "mode").Val() {
		fields = []any{"mode", "write", owner + ":write", 1}
	}
	_, err := s.own.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		tx.Del(ctx, key)
		tx.HSet(ctx, key, fields...)
		if ttl > 0 {
			tx.PExpire(ctx, key, ttl)
		}
		return nil
	})
	if err != nil {
		s.tb.Errorf("rlocktest: take over %q: %v", key, err)
	}
	return owner
}

// Hang makes the server fall silent until [Server.Heal]: connections stay open
// and new ones are accepted, but nothing is answered. What is sent meanwhile is
// executed after Heal, even if the client has given up: as by a server that was
// stopped, or behind a network that was cut.
func (s *Server) Hang() { s.network.set(hanging) }

// Refuse breaks all connections, and new ones are refused until [Server.Heal]:
// as by a server that is down. The data survives.
func (s *Server) Refuse() { s.network.set(refusing) }

// Heal ends [Server.Hang] and [Server.Refuse].
func (s *Server) Heal() { s.network.set(healthy) }
