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

// Server is a server inside the test that behaves like Redis. Any goroutine of the test can call its methods.
type Server struct {
	tb      testing.TB
	network *network
	own     *redis.Client // not subject to Hang and Refuse
	owners  atomic.Int64  // made up by TakeOver
	fake    bool          // it was made in a bubble
}

// NewServer starts an empty server, and stops it when the test ends. If the test uses a [testing/synctest]
// bubble, call NewServer inside the bubble.
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

// Client returns a go-redis client that is connected to the server. It has go-redis's default options, except
// those that do not work in a bubble. Functions in edit can change the options. The client is closed when the
// test ends.
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

// Locks returns an rlock client with a connection pool of its own, so each call simulates another process. When
// the test ends, [Server.Heal] is called and the client is closed. If one of its locks is still held then, the
// test fails.
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

// Evict removes the lock at key, without notifying its holder. This simulates an eviction, or a failover to a
// replica that never had the key. The holder notices the loss at its next renewal, within a third of its lease.
// key is the prefix of the client followed by the name of the lock. If the key holds no lock, the test fails.
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

// TakeOver gives the lock at key to a new owner outside of the test, even if the lock is held. It returns the
// name of the new owner. No client renews the lease, so it ends after ttl. If ttl is zero or less, the lease
// never ends. If the key holds a read/write lock, TakeOver makes the new owner its writer. If the lock is free,
// the key becomes a plain lock, so a read/write lock of that name returns [rlock.ErrKeyConflict]. If the key
// holds data other than a lock, the test fails.
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

// Hang makes the server stop responding until [Server.Heal] is called. Connections stay open and new ones are
// accepted, but the server sends no replies. Commands that clients send in this time are executed after Heal,
// even if the client has given up. This simulates a suspended server, or a network that loses packets.
func (s *Server) Hang() { s.network.set(hanging) }

// Refuse breaks all connections, and the server refuses new ones until [Server.Heal] is called. This simulates
// a server that is down. The server keeps its data.
func (s *Server) Refuse() { s.network.set(refusing) }

// Heal ends the effect of [Server.Hang] and [Server.Refuse].
func (s *Server) Heal() { s.network.set(healthy) }
