package redistest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const slots = 16384

// Cluster is a Redis Cluster whose nodes take 1.5 s of silence for a failure.
// A test may kill, stop and restart the nodes as it likes.
type Cluster struct {
	Nodes []*Server // the masters as they were at the start, their replicas, and what was added

	tb    testing.TB
	args  []string
	ids   map[*Server]string
	admin map[*Server]*redis.Client
}

// StartCluster returns when all nodes agree. args are further options of every
// node. One master without replicas is a cluster too, and the quickest.
func StartCluster(tb testing.TB, masters, replicasPerMaster int, args ...string) *Cluster {
	tb.Helper()
	c := &Cluster{
		tb:    tb,
		args:  args,
		ids:   make(map[*Server]string),
		admin: make(map[*Server]*redis.Client),
	}
	for range masters * (1 + replicasPerMaster) {
		c.start()
	}
	ctx := context.Background()
	for i, node := range c.Nodes[:masters] {
		rdb := c.patient(node)
		c.must(rdb.ClusterAddSlotsRange(ctx, slots*i/masters, slots*(i+1)/masters-1).Err())
		c.must(rdb.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
	}
	for _, node := range c.Nodes[1:] {
		c.meet(node)
	}
	for i, node := range c.Nodes[masters:] {
		c.replicate(node, c.Nodes[i%masters])
	}
	c.AwaitHealthy()
	return c
}

// start adds a node that belongs to no cluster yet.
func (c *Cluster) start() *Server {
	c.tb.Helper()
	args := []string{
		"--cluster-enabled", "yes",
		"--cluster-node-timeout", "1500",
		"--cluster-announce-ip", "127.0.0.1", // a node learns its own from others
		"--cluster-replica-validity-factor", "0",
		"--repl-diskless-sync-delay", "0",
	}
	if !before7() {
		args = append(args, "--cluster-allow-replica-migration", "no") // a master without slots stays one
	}
	node := Start(c.tb, append(args, c.args...)...)
	rdb := node.Client(c.tb, func(o *redis.Options) {
		o.MaxRetries, o.DialerRetries, o.ReadTimeout = -1, 1, time.Second // some nodes will be dead, or stopped
	})
	id, err := c.patient(node).ClusterMyID(context.Background()).Result()
	c.must(err)
	c.Nodes = append(c.Nodes, node)
	c.ids[node], c.admin[node] = id, rdb
	return node
}

// patient returns a client for what a node that is well must do, however busy the machine is.
func (c *Cluster) patient(node *Server) *redis.Client {
	return node.Client(c.tb, func(o *redis.Options) { o.MaxRetries, o.ReadTimeout = -1, limit })
}

// meet makes node known to all.
func (c *Cluster) meet(node *Server) {
	c.tb.Helper()
	for _, other := range c.Nodes {
		if other != node { // gossip would do it, in its own time
			_ = c.admin[other].ClusterMeet(context.Background(), "127.0.0.1", strconv.Itoa(node.port)).Err()
		}
	}
}

func (c *Cluster) replicate(node, master *Server) {
	c.tb.Helper()
	Eventually(c.tb, "a replica knows its master", func() bool {
		return c.admin[node].ClusterReplicate(context.Background(), c.ids[master]).Err() == nil
	})
}

// Client returns a client that knows all nodes of now. It is closed when the
// test ends.
func (c *Cluster) Client(tb testing.TB, edit ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	opts := &redis.ClusterOptions{}
	for _, node := range c.Nodes {
		opts.Addrs = append(opts.Addrs, node.Addr())
	}
	for _, f := range edit {
		f(opts)
	}
	rdb := redis.NewClusterClient(opts)
	tb.Cleanup(func() { _ = rdb.Close() }) // the test may have closed it
	return rdb
}

// Slot returns the slot of a key or channel.
func (c *Cluster) Slot(key string) int {
	c.tb.Helper()
	for _, node := range c.Nodes {
		if slot, err := c.admin[node].ClusterKeySlot(context.Background(), key).Result(); err == nil {
			return int(slot)
		}
	}
	c.tb.Fatal("no node answers")
	return 0
}

// Owner returns the master of a slot, as most of the nodes that answer see it.
func (c *Cluster) Owner(slot int) *Server {
	c.tb.Helper()
	votes := make(map[string]int)
	for _, node := range c.Nodes {
		for _, r := range c.slots(node) {
			if r.Start <= slot && slot <= r.End {
				votes[r.Nodes[0].Addr]++
			}
		}
	}
	var owner *Server
	for _, node := range c.Nodes {
		if votes[node.Addr()] > 0 && (owner == nil || votes[node.Addr()] > votes[owner.Addr()]) {
			owner = node
		}
	}
	return owner
}

// Replica returns a replica of master that has caught up.
func (c *Cluster) Replica(master *Server) *Server {
	c.tb.Helper()
	var replica *Server
	c.eventually("there is a replica", func() bool {
		for _, node := range c.Nodes {
			if info := c.replication(node); strings.Contains(info, fmt.Sprintf("master_port:%d\r", master.port)) &&
				strings.Contains(info, "master_link_status:up") {
				replica = node
				return true
			}
		}
		return false
	})
	return replica
}

// Failover has replica change places with its master, which must be well.
func (c *Cluster) Failover(replica *Server) {
	c.tb.Helper()
	c.must(c.patient(replica).ClusterFailover(context.Background()).Err())
	c.eventually("the replica is a master", func() bool {
		return strings.Contains(c.replication(replica), "role:master")
	})
	c.AwaitHealthy()
}

// AwaitFailover waits until another node than old has its slots, one of which is
// slot, and returns it.
func (c *Cluster) AwaitFailover(old *Server, slot int) *Server {
	c.tb.Helper()
	var owner *Server
	c.eventually("another node has the slots", func() bool {
		owner = c.Owner(slot)
		return owner != nil && owner != old && strings.Contains(c.replication(owner), "role:master")
	})
	return owner
}

// AddNode adds a master without slots.
func (c *Cluster) AddNode() *Server {
	c.tb.Helper()
	node := c.start()
	c.meet(node)
	c.AwaitHealthy()
	return node
}

// AddReplica adds a replica of master.
func (c *Cluster) AddReplica(master *Server) *Server {
	c.tb.Helper()
	node := c.AddNode()
	c.replicate(node, master)
	c.AwaitHealthy()
	return node
}

// RemoveNode has all others forget a node that has no slots, and kills it.
func (c *Cluster) RemoveNode(node *Server) {
	c.tb.Helper()
	c.Nodes = slices.DeleteFunc(c.Nodes, func(n *Server) bool { return n == node })
	for _, other := range c.Nodes {
		_ = c.admin[other].ClusterForget(context.Background(), c.ids[node]).Err() // one may be dead
	}
	node.Kill()
	c.AwaitHealthy()
}

// Another returns a node that does not have a slot, to move it there. The first two nodes are
// masters.
func (c *Cluster) Another(slot int) *Server {
	c.tb.Helper()
	if c.Owner(slot) == c.Nodes[0] {
		return c.Nodes[1]
	}
	return c.Nodes[0]
}

// AwaitHealthy waits until all nodes that run serve, and agree on who has which
// slots, and all replicas among them have caught up.
func (c *Cluster) AwaitHealthy() {
	c.tb.Helper()
	var why string
	defer func() {
		if c.tb.Failed() {
			c.tb.Log("the cluster is not healthy: ", why)
		}
	}()
	c.eventually("the cluster is healthy", func() bool {
		why = c.trouble()
		return why == ""
	})
}

// trouble returns why the cluster is not healthy, or "".
func (c *Cluster) trouble() string {
	ctx := context.Background()
	var view string
	for _, node := range c.Nodes {
		info, err := c.admin[node].ClusterInfo(ctx).Result()
		if !node.runs() {
			continue
		}
		if err != nil {
			// After dials in vain a pool refuses for a second, and a node restarted
			// meanwhile has nothing yet: made master now, it would lose everything.
			return node.Addr() + ": " + err.Error()
		}
		if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", len(c.Nodes))) {
			return node.Addr() + ": " + info
		}
		if repl := c.replication(node); !strings.Contains(repl, "role:master") && !strings.Contains(repl, "master_link_status:up") {
			return node.Addr() + ": " + repl
		}
		ranges := c.slots(node)
		slices.SortFunc(ranges, func(a, b redis.ClusterSlot) int { return a.Start - b.Start })
		var mine strings.Builder
		for _, r := range ranges {
			fmt.Fprintf(&mine, "%d-%d %s\n", r.Start, r.End, r.Nodes[0].Addr)
		}
		if view == "" {
			view = mine.String()
		}
		if view != mine.String() {
			return node.Addr() + " sees:\n" + mine.String() + "others:\n" + view
		}
	}
	if view == "" {
		return "nobody answers"
	}
	return ""
}

// slots returns who has which slots as node sees it, or nil.
func (c *Cluster) slots(node *Server) []redis.ClusterSlot {
	//lint:ignore SA1019 Redis 6.2 has nothing else
	return c.admin[node].ClusterSlots(context.Background()).Val()
}

func (c *Cluster) replication(node *Server) string {
	return c.admin[node].Info(context.Background(), "replication").Val()
}

func (c *Cluster) must(err error) {
	c.tb.Helper()
	if err != nil {
		c.tb.Fatal(err)
	}
}

func (c *Cluster) eventually(what string, cond func() bool) {
	c.tb.Helper()
	inTime(c.tb, 3*limit, what, cond)
}
