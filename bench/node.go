package bench

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// node is one of the servers, as the process that orders the runs knows it.
type node struct {
	server      Server
	rdb         *redis.Client // for the counters
	connections int64         // to the server, before there were workers
}

func newNode(s Server) *node {
	o := s.Options()
	o.PoolSize = 1
	return &node{server: s, rdb: redis.NewClient(o)}
}

// readAll returns the sums of what the servers have counted.
func readAll(ctx context.Context, nodes []*node) (all counters, err error) {
	for i, n := range nodes {
		c, err := readCounters(ctx, n.rdb)
		if err != nil {
			return all, err
		}
		if i == 0 {
			all = c
			continue
		}
		all = all.add(c)
	}
	return all, nil
}

// ripen waits until the servers of a quorum are older than a lease: before, they
// count for nothing.
func (r *runner) ripen(ctx context.Context) error {
	if len(r.nodes) == 1 {
		return nil
	}
	for _, n := range r.nodes {
		info, err := n.rdb.Info(ctx, "server").Result()
		if err != nil {
			return err
		}
		uptime, err := strconv.Atoi(infoFields(info)["uptime_in_seconds"])
		if err != nil {
			return fmt.Errorf("bench: %s does not tell for how long it is up", n.server.Addr)
		}
		const rounded = 2 * time.Second // here, and by the lock
		if err := sleep(ctx, time.Now().Add(defaultLease+rounded-time.Duration(uptime)*time.Second)); err != nil {
			return err
		}
	}
	return nil
}
