package main

import (
	"crypto/tls"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"

	"github.com/go-rlock/rlock/bench"
)

// benchSpread are the scenarios that tell most about a cluster, or about several
// processes.
var benchSpread = []string{"uncontended-*", "hot-64"}

// benchDuration is how long a run is measured unless told otherwise.
const benchDuration = time.Second

func benchConfig(cmd *cli.Command) (c bench.Config, err error) {
	if cmd.Args().Present() {
		return c, usagef(cmd, "unexpected argument %q", cmd.Args().First())
	}
	c.Rounds = cmd.Int("rounds")
	if c.Duration, err = duration(cmd, "duration", benchDuration); err != nil {
		return c, usagef(cmd, "%w", err)
	}
	if c.Rounds < 1 || c.Duration <= 0 {
		return c, usagef(cmd, "--rounds and --duration must be positive")
	}
	if c.Contenders, err = bench.Pick(bench.Contenders(), cmd.StringSlice("compare")); err != nil {
		return c, usagef(cmd, "--compare: %w", err)
	}
	if err := benchServers(cmd, &c); err != nil {
		return c, err
	}
	if cmd.Bool("capacity") {
		return benchCapacity(cmd, c)
	}
	c.Scenarios, err = benchScenarios(cmd, c.Cluster != nil)
	return c, err
}

// capacityRounds and capacitySpan are enough for medians: a round takes a minute and
// a half.
const (
	capacityRounds = 3
	capacitySpan   = 3 * time.Second
)

// benchCapacity makes the run the one that the calculation needs.
func benchCapacity(cmd *cli.Command, c bench.Config) (bench.Config, error) {
	for _, name := range []string{"scenario", "compare", "processes", "node"} {
		if cmd.IsSet(name) {
			return c, usagef(cmd, "use either --capacity or --%s, not both: what is measured is what the calculation needs", name)
		}
	}
	if !cmd.IsSet("rounds") {
		c.Rounds = capacityRounds
	}
	if !cmd.IsSet("duration") {
		c.Duration = capacitySpan
	}
	c.Scenarios, c.Rest = bench.CapacityScenarios(), bench.CapacityRest
	var err error
	c.Contenders, err = bench.Pick(bench.Contenders(), []string{"rlock"})
	return c, err
}

// benchScenarios returns those to play.
func benchScenarios(cmd *cli.Command, cluster bool) (chosen []bench.Scenario, err error) {
	table, patterns, of := bench.Scenarios(), cmd.StringSlice("scenario"), ""
	if cluster {
		table, of = bench.OnCluster(table), " of those for a cluster"
	}
	if cmd.IsSet("processes") {
		if table, err = bench.InProcesses(table, cmd.Int("processes")); err != nil {
			return nil, usagef(cmd, "--processes: %w", err)
		}
		of = " of those for any number of processes"
	}
	if of != "" && len(patterns) == 0 {
		patterns = benchSpread
	}
	if chosen, err = bench.Select(table, patterns); err != nil {
		return nil, usagef(cmd, "--scenario: %w%s", err, of)
	}
	return chosen, nil
}

// benchServers says where to measure.
func benchServers(cmd *cli.Command, c *bench.Config) error {
	s, err := connect(cmd)
	if err != nil {
		return err
	}
	defer s.close()
	var secured *tls.Config
	switch rdb := s.rdb.(type) {
	case *redis.ClusterClient:
		c.Cluster = rdb.Options()
		secured = c.Cluster.TLSConfig
	case *redis.Client:
		c.Server = rdb.Options()
		secured = c.Server.TLSConfig
	}
	if s.sentinels != nil {
		return usagef(cmd, "--sentinel: the benchmark reads the counters of a server or a cluster, not of what Sentinels name")
	}
	if secured != nil && (secured.RootCAs != nil || secured.Certificates != nil) {
		return usagef(cmd, "--cacert, --cert: the processes of the benchmark know the system's authorities only, set SSL_CERT_FILE")
	}
	return benchNodes(cmd, c)
}

// benchNodes are the further servers of a quorum.
func benchNodes(cmd *cli.Command, c *bench.Config) error {
	for _, text := range cmd.StringSlice("node") {
		o, err := redis.ParseURL(text)
		if err != nil {
			return usagef(cmd, "--node: %w", misread(text, err))
		}
		c.Nodes = append(c.Nodes, o)
	}
	switch {
	case len(c.Nodes) > 0 && c.Cluster != nil:
		return usagef(cmd, "--node: a quorum has single servers, the nodes of a cluster find each other")
	case len(c.Nodes)%2 != 0:
		return usagef(cmd, "--node: with that of --url, a quorum needs an odd number of servers")
	}
	return nil
}
