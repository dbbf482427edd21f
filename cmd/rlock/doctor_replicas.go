package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// checkReplicas tells what a failover does to locks.
func (n *node) checkReplicas() []finding {
	if n.merging {
		return []finding{n.finding("replicas", broken, "an Active-Active database: it merges writes of several masters, and each grants a lock that another has granted").
			advise("use a database without Active-Active for locks: docs/compatibility.md#managed-services")}
	}
	if n.role == "replica" {
		return nil
	}
	if n.infoErr != nil {
		return []finding{n.finding("replicas", unchecked, "INFO replication: %v", n.infoErr)}
	}
	if n.role == "active-replica" || n.config["active-replica"] == "yes" {
		return []finding{n.finding("replicas", broken, "an active replica: it and the server that it copies both take writes, and each grants a lock that the other has granted").
			advise("active-replica no; or let all clients of a lock use one and the same server, and never the other")}
	}
	count := number(n.info["connected_slaves"])
	if count == 0 && n.mode == "cluster" {
		return []finding{n.finding("replicas", warning, "none: without this node the locks in its slots can neither be taken nor renewed").advise("give each master a replica")}
	}
	if count == 0 {
		return []finding{n.finding("replicas", fine, "none: nothing takes over, without the server no lock can be taken")}
	}
	var findings []finding
	for i := range count {
		r := parseFields(n.info[fmt.Sprintf("slave%d", i)])
		if lag := number(r["lag"]); r["state"] != "online" || lag > 10 {
			findings = append(findings, n.finding("replicas", warning, "%s:%s is %s and was heard of %d s ago: a failover to it forgets more locks", r["ip"], r["port"], r["state"], lag).
				advise("see the replica's log"))
		}
	}
	const risk = "a failover may forget the last grants, whose locks then have two owners until the next renewal; fencing tokens keep the first one's writes out"
	want, ok := n.config["min-replicas-to-write"]
	there, told := n.info["min_slaves_good_slaves"]
	switch {
	case !ok:
		findings = append(findings, n.finding("replicas", unchecked, "%d connected, %s; min-replicas-to-write: %v", count, risk, cmp.Or(n.configErr, errNotTold)))
	case want == "0", n.config["min-replicas-max-lag"] == "0": // either switches it off
		findings = append(findings, n.finding("replicas", warning, "%d connected; a master that is cut off from them goes on granting locks that the new master grants as well", count).
			advise("min-replicas-to-write 1, min-replicas-max-lag 10: it then refuses after that many seconds; otherwise %s", risk))
	case strings.HasPrefix(n.fork, "keydb "):
		findings = append(findings, n.finding("replicas", warning, "%d connected; min-replicas-to-write does not hold for scripts on this server, and each request of a lock is one: %s", count, risk))
	case told && number(there) < number(want):
		findings = append(findings, n.finding("replicas", broken, "%s of the %s replicas that min-replicas-to-write wants are there: the server refuses to write", there, want).
			advise("bring the replicas back"))
	default:
		findings = append(findings, n.finding("replicas", fine, "%d connected, a master without %s of them refuses writes after %s s; %s", count, want, n.config["min-replicas-max-lag"], risk))
	}
	return findings
}

// checkCluster looks at the slots.
func (d *doctor) checkCluster(ctx context.Context) {
	cluster, ok := d.rdb.(*redis.ClusterClient)
	if !ok {
		for _, n := range d.nodes {
			switch {
			case n.role == "replica" && n.addr == "":
				d.report.add(finding{Check: "replicas", Level: broken, Text: "this is a replica: it takes no locks"}.advise("connect to its master"))
			case n.mode == "cluster":
				d.report.add(finding{Check: "cluster", Level: broken, Text: "this is a node of a cluster, which refuses the names that belong to other nodes"}.advise("add --cluster; in Go, a ClusterClient"))
			}
		}
		return
	}
	text, err := cluster.ClusterInfo(ctx).Result()
	if err != nil {
		d.report.add(finding{Check: "cluster", Level: unchecked, Text: fmt.Sprintf("CLUSTER INFO: %v", err)})
	} else {
		d.report.add(clusterState(parseInfo(text)))
	}
	switch {
	case d.shardedErr != nil:
		d.report.add(finding{Check: "sharded pub/sub", Level: unchecked, Text: d.shardedErr.Error()})
	case d.unsharded:
		d.report.add(finding{Check: "sharded pub/sub", Level: fine, Text: "not available: each release is announced to all nodes"})
	default:
		d.report.add(finding{Check: "sharded pub/sub", Level: fine, Text: "available: Redisson uses it here unless told not to"})
	}
}

func clusterState(info map[string]string) finding {
	masters := info["cluster_size"] + " masters"
	if masters == "1 masters" {
		masters = "1 master"
	}
	f := finding{
		Check: "cluster", Level: fine,
		Text:   "state ok, all slots covered by " + masters,
		Values: map[string]any{"slots_ok": number(info["cluster_slots_ok"]), "masters": number(info["cluster_size"])},
	}
	switch {
	case info["cluster_state"] != "ok", number(info["cluster_slots_fail"]) > 0:
		f.Level = broken
		f.Text = fmt.Sprintf("state %s, %s of 16384 slots served: the locks in the others, and possibly all, are refused", info["cluster_state"], info["cluster_slots_ok"])
		return f.advise("see redis-cli --cluster check")
	case number(info["cluster_slots_ok"]) < 16384:
		f.Level = warning
		f.Text = fmt.Sprintf("%s of 16384 slots served for sure: a node is in doubt", info["cluster_slots_ok"])
		return f.advise("see redis-cli --cluster check")
	}
	return f
}

// checkSentinels compares what they say.
func (d *doctor) checkSentinels(ctx context.Context) {
	masters := make(map[string][]string) // Sentinels by the master they name
	for _, addr := range d.sentinels.SentinelAddrs {
		f, master := d.checkSentinel(ctx, addr)
		if master != "" {
			masters[master] = append(masters[master], addr)
		}
		f.Nodes = []string{addr}
		d.report.add(f)
	}
	if len(masters) > 1 {
		d.report.add(finding{
			Check: "sentinels", Level: broken, Text: fmt.Sprintf("they name different masters: %v; two servers may grant the same lock", masters),
			Advice: "wait for the end of a failover; if it stays, SENTINEL RESET on those that are wrong",
		})
	}
}

func (d *doctor) checkSentinel(ctx context.Context, addr string) (f finding, master string) {
	opts := d.options
	opts.Network, opts.Addr, opts.DB, opts.Username, opts.Password = "tcp", addr, 0, "", d.sentinels.SentinelPassword
	s := redis.NewSentinelClient(&opts)
	defer func() { _ = s.Close() }()
	m, err := s.Master(ctx, d.sentinels.MasterName).Result()
	if err != nil {
		return finding{Check: "sentinels", Level: warning, Text: fmt.Sprintf("no answer about %q: %v", d.sentinels.MasterName, err)}.
			advise("clients that ask this one first are delayed, and a failover lacks its vote"), ""
	}
	master = m["ip"] + ":" + m["port"]
	if flags := m["flags"]; strings.Contains(flags, "down") || strings.Contains(flags, "failover") {
		return finding{Check: "sentinels", Level: broken, Text: fmt.Sprintf("sees the master %s as %s", master, flags)}.advise("wait for the failover"), master
	}
	if err := s.CkQuorum(ctx, d.sentinels.MasterName).Err(); err != nil {
		return finding{Check: "sentinels", Level: warning, Text: fmt.Sprintf("a failover would fail: %v", err)}.advise("bring the other Sentinels back"), master
	}
	return finding{Check: "sentinels", Level: fine, Text: fmt.Sprintf("master %s, quorum %s of %d, a failover begins after %s ms of silence", master, m["quorum"], number(m["num-other-sentinels"])+1, m["down-after-milliseconds"])}, master
}
