package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// ErrNoCluster means that Cluster in [Config] names a server that is not a node of a cluster.
var ErrNoCluster = errors.New("bench: the server is not a node of a cluster")

// ErrCluster means that Server in [Config] is a node of a cluster.
var ErrCluster = errors.New("bench: the server is a node of a cluster, and has a part of the locks only")

// servers returns those to measure: of a cluster its masters.
func (c Config) servers(ctx context.Context) (servers []Server, err error) {
	if c.Cluster != nil {
		return masters(ctx, c.Cluster)
	}
	for _, o := range append([]*redis.Options{c.Server}, c.Nodes...) {
		servers = append(servers, NewServer(o))
	}
	return servers, nil
}

// masters returns those of a cluster that have slots, in the order of their
// addresses.
func masters(ctx context.Context, o *redis.ClusterOptions) (servers []Server, err error) {
	rdb := redis.NewClusterClient(o)
	defer func() { _ = rdb.Close() }()
	var mu sync.Mutex // guards addrs: all are called at the same time
	var addrs []string
	err = rdb.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		addrs = append(addrs, master.Options().Addr)
		return nil
	})
	switch {
	case err != nil && strings.Contains(err.Error(), "cluster support disabled"):
		return nil, ErrNoCluster
	case err != nil:
		return nil, err
	case len(addrs) == 0:
		return nil, errors.New("bench: no master of the cluster has slots")
	}
	slices.Sort(addrs)
	for _, addr := range addrs {
		s := NewServer(&redis.Options{Addr: addr, Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig})
		s.Cluster = addrs
		servers = append(servers, s)
	}
	return servers, nil
}

// OnCluster returns the scenarios of the table that can run on a cluster. It leaves out scenarios behind a
// proxy, because clients learn the addresses of the nodes from the cluster, and scenarios that read data of a
// single server.
func OnCluster(table []Scenario) []Scenario {
	return slices.DeleteFunc(slices.Clone(table), func(s Scenario) bool {
		return s.RTT > 0 || s.Kind == Kill || s.Kind == Foreign
	})
}

// maxProcesses is more than a machine for clients has cores.
const maxProcesses = 256

// InProcesses returns the scenarios of the table that can run in several processes. As in the scenario of the
// table, each goroutine has a lock of its own, or all goroutines of all processes share one lock.
func InProcesses(table []Scenario, processes int) (several []Scenario, err error) {
	if processes < 1 || processes > maxProcesses {
		return nil, fmt.Errorf("want 1 to %d processes, not %d", maxProcesses, processes)
	}
	for _, s := range table {
		if !s.divisible() {
			continue
		}
		locks, plural := "one lock", "s"
		if s.Kind == Cycle {
			locks = "a lock each"
			s.Keys *= processes
		}
		s.Processes = processes
		if s.Goroutines == 1 {
			plural = ""
		}
		s.About = fmt.Sprintf("%d processes with %d goroutine%s each, %s", processes, s.Goroutines, plural, locks)
		if s.RTT > 0 {
			s.About += ", 1 ms away"
		}
		several = append(several, s)
	}
	return several, nil
}

// divisible tells that one process plays the scenario, and more could.
func (s Scenario) divisible() bool {
	return (s.Kind == Cycle || s.Kind == Contend) && s.Processes == 1 && s.Depth <= 1 && !s.Shared
}
