package redistest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const masterName = "mymaster"

// Sentinels is a master with two replicas, and three Sentinels that take half a
// second of silence for a failure. Clients are the user app, whom nothing is
// forbidden; the Sentinels are the default user.
type Sentinels struct {
	Servers   []*Server // in the order of their start; the first began as master
	Sentinels []*Server

	tb testing.TB
}

// StartSentinels returns when the Sentinels know each other and the replicas.
func StartSentinels(tb testing.TB) *Sentinels {
	tb.Helper()
	s := &Sentinels{tb: tb}
	for i := range 3 {
		args := []string{
			"--user", "app", "on", "nopass", "~*", "&*", "+@all",
			"--masteruser", "app", "--masterauth", "any",
			"--repl-diskless-sync-delay", "0",
		}
		if i > 0 {
			args = append(args, s.Servers[0].replicaOf()...)
		}
		s.Servers = append(s.Servers, Start(tb, args...))
	}
	for range 3 {
		conf := filepath.Join(tb.TempDir(), "sentinel.conf") // they write to it
		if err := os.WriteFile(conf, fmt.Appendf(nil, `
bind 127.0.0.1
protected-mode no
sentinel monitor %[1]s 127.0.0.1 %[2]d 2
sentinel down-after-milliseconds %[1]s 500
sentinel failover-timeout %[1]s 2000
sentinel parallel-syncs %[1]s 2
`, masterName, s.Servers[0].port), 0o600); err != nil {
			tb.Fatal(err)
		}
		sentinel := start(tb, []string{conf, "--sentinel"})
		s.Sentinels = append(s.Sentinels, sentinel)
	}
	s.debug("PUBLISH-PERIOD 100 INFO-PERIOD 100 PING-PERIOD 100 ASK-PERIOD 100") // instead of 2, 10, 1 and 1 s
	Eventually(tb, "the Sentinels agree", func() bool {
		return s.Master() == s.Servers[0] && s.follow(s.Servers[0], s.Servers[1:]) && s.agree()
	})
	// A Sentinel that sees a second master for 4 of these undoes a promotion that
	// it has not heard of. The leader notices a promotion within a second. A replica
	// that it has not heard for 3 INFO or 5 PING periods is not promoted.
	s.debug("PUBLISH-PERIOD 1000 INFO-PERIOD 300 PING-PERIOD 200")
	return s
}

// debug sets the Sentinels' hidden timings.
func (s *Sentinels) debug(periods string) {
	s.tb.Helper()
	for _, sentinel := range s.Sentinels {
		if _, err := sentinel.ask("SENTINEL DEBUG " + periods); err != nil {
			s.tb.Fatal(err)
		}
	}
}

// agree reports whether each Sentinel sees all others and all replicas.
func (s *Sentinels) agree() bool {
	for _, sentinel := range s.Sentinels {
		info, err := sentinel.ask("INFO sentinel")
		if err != nil || !strings.Contains(info, "status=ok") || !strings.Contains(info, "slaves=2,sentinels=3") {
			return false
		}
	}
	return true
}

// Client returns a client that asks the Sentinels for the master. It is closed
// when the test ends.
func (s *Sentinels) Client(tb testing.TB, edit ...func(*redis.FailoverOptions)) *redis.Client {
	opts := &redis.FailoverOptions{MasterName: masterName, Username: "app", Password: "any"}
	for _, sentinel := range s.Sentinels {
		opts.SentinelAddrs = append(opts.SentinelAddrs, sentinel.Addr())
	}
	for _, f := range edit {
		f(opts)
	}
	rdb := redis.NewFailoverClient(opts)
	tb.Cleanup(func() { _ = rdb.Close() }) // the test may have closed it
	return rdb
}

// Master returns the server that all Sentinels call the master, or nil while they
// differ.
func (s *Sentinels) Master() *Server {
	votes := make(map[string]int)
	for _, sentinel := range s.Sentinels {
		info, err := sentinel.ask("INFO sentinel")
		if err != nil {
			return nil
		}
		_, addr, _ := strings.Cut(info, ",address=")
		addr, _, _ = strings.Cut(addr, ",")
		votes[addr]++
	}
	i := slices.IndexFunc(s.Servers, func(srv *Server) bool { return votes[srv.Addr()] == len(s.Sentinels) })
	if i < 0 {
		return nil
	}
	return s.Servers[i]
}

// Failover has a Sentinel switch to another master while this one is well. A
// Sentinel to which all replicas seem too slow, as on a busy machine, gives up and is
// asked again. See AwaitSwitch.
func (s *Sentinels) Failover() {
	s.tb.Helper()
	old := s.Master()
	var asked time.Time
	s.eventually("a Sentinel fails over", func() bool {
		if time.Since(asked) > limit/2 {
			if _, err := s.Sentinels[0].ask("SENTINEL FAILOVER " + masterName); err == nil { // refused while another is under way
				asked = time.Now()
			}
		}
		master := s.Master()
		return master != nil && master != old
	})
}

// Depose lets the Sentinels believe that the master is down. It goes on serving
// clients, and nobody can make it a replica; Restore ends that. It does not wait
// for the switch.
func (s *Sentinels) Depose() {
	s.tb.Helper()
	s.setDefaultUser(s.Master(), "-@all")
}

// Restore ends a Depose of old: the Sentinels make it a replica.
func (s *Sentinels) Restore(old *Server) {
	s.tb.Helper()
	s.setDefaultUser(old, "+@all")
	s.AwaitReplicas()
}

func (s *Sentinels) setDefaultUser(srv *Server, rule string) {
	s.tb.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: "app", Password: "any"})
	defer func() { _ = rdb.Close() }()
	if err := rdb.ACLSetUser(context.Background(), "default", rule).Err(); err != nil {
		s.tb.Fatal(err)
	}
}

// AwaitSwitch waits until all Sentinels name another master than old, which
// accepts writes, and returns it. A client asks only one of them.
func (s *Sentinels) AwaitSwitch(old *Server) *Server {
	s.tb.Helper()
	var master *Server
	s.eventually("there is another master", func() bool {
		master = s.Master()
		return master != nil && master != old && strings.Contains(master.replication(), "role:master")
	})
	return master
}

// AwaitReplicas waits until all other servers are replicas of the master, and
// have caught up. After a [Server.Kill] call [Sentinels.Rejoin] first.
func (s *Sentinels) AwaitReplicas() {
	s.tb.Helper()
	s.eventually("all others follow the master", func() bool {
		master := s.Master()
		others := slices.DeleteFunc(slices.Clone(s.Servers), func(srv *Server) bool { return srv == master })
		return master != nil && s.follow(master, others) && s.agree()
	})
}

// Rejoin restarts a killed server as a replica of the master.
func (s *Sentinels) Rejoin(srv *Server) {
	s.tb.Helper()
	srv.args = append(srv.args, s.Master().replicaOf()...)
	srv.Restart()
	s.AwaitReplicas()
}

// follow reports whether these servers are replicas of master without delay.
func (s *Sentinels) follow(master *Server, replicas []*Server) bool {
	for _, r := range replicas {
		info := r.replication()
		if !strings.Contains(info, fmt.Sprintf("master_port:%d\r", master.port)) || !strings.Contains(info, "master_link_status:up") {
			return false
		}
	}
	return strings.Count(master.replication(), "state=online") == len(replicas)
}

// replicaOf returns the options of a replica of s.
func (s *Server) replicaOf() []string {
	return []string{"--replicaof", "127.0.0.1", strconv.Itoa(s.port)}
}

// replication returns INFO replication as the user app, or "".
func (s *Server) replication() string {
	rdb := redis.NewClient(&redis.Options{
		Addr: s.Addr(), Username: "app", Password: "any",
		MaxRetries: -1, DialerRetries: 1, ReadTimeout: time.Second,
	})
	defer func() { _ = rdb.Close() }()
	return rdb.Info(context.Background(), "replication").Val()
}

func (s *Sentinels) eventually(what string, cond func() bool) {
	s.tb.Helper()
	inTime(s.tb, 3*limit, what, cond) // an election may have to be repeated
}
