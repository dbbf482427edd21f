package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// settings are the configuration parameters that matter to locks.
var settings = []string{
	"save", "appendfsync", "min-replicas-to-write", "min-replicas-max-lag",
	"client-output-buffer-limit", "timeout", "tcp-keepalive",
	"active-replica", // only KeyDB has it
}

// anyReachable is nil if the server answers, or any master of the cluster: it is one node that
// gets the PING of a cluster's client.
func (d *doctor) anyReachable(ctx context.Context) error {
	err := reachable(ctx, d.rdb)
	cluster, ok := d.rdb.(*redis.ClusterClient)
	if err == nil || !ok {
		return err
	}
	var answers atomic.Bool
	_ = cluster.ForEachMaster(ctx, func(ctx context.Context, rdb *redis.Client) error {
		if reachable(ctx, rdb) == nil {
			answers.Store(true)
		}
		return nil
	})
	if answers.Load() {
		return nil
	}
	return err
}

// findNodes asks every server of the deployment what it is.
func (d *doctor) findNodes(ctx context.Context) {
	if cluster, ok := d.rdb.(*redis.ClusterClient); ok {
		var mu sync.Mutex // guards nodes: they are asked at the same time
		look := func(ifSilent string, ifRefused level) func(context.Context, *redis.Client) error {
			return func(ctx context.Context, rdb *redis.Client) error {
				addr := rdb.Options().Addr
				var n node
				err := reachable(ctx, rdb)
				if err == nil {
					n = ask(ctx, rdb, addr)
				}
				mu.Lock()
				defer mu.Unlock()
				if redis.IsAuthError(err) || redis.IsPermissionError(err) {
					d.report.add(finding{Check: "cluster", Nodes: []string{addr}, Level: ifRefused, Text: fmt.Sprintf("the node refuses this user: %v", err)}.
						advise("each node has users of its own: make this one, with the same password, on all of them"))
					return nil
				}
				if err != nil {
					d.report.add(finding{Check: "cluster", Nodes: []string{addr}, Level: warning, Text: fmt.Sprintf("the node does not answer: %v", err)}.advise("%s", ifSilent))
					return nil
				}
				d.nodes = append(d.nodes, n)
				return nil
			}
		}
		err := errors.Join(
			cluster.ForEachMaster(ctx, look("locks in its slots are unavailable until a replica has taken over: see cluster below", broken)),
			cluster.ForEachSlave(ctx, look("it is a replica, and locks do not need it now: see its log, and whether it can be reached from here", warning)),
		)
		if err != nil {
			d.report.add(finding{Check: "cluster", Level: broken, Text: fmt.Sprintf("its nodes cannot be reached: %v", err)})
		}
	} else {
		master := ask(ctx, d.rdb.(*redis.Client), d.server.name)
		d.nodes = []node{master}
		for _, addr := range master.replicas() {
			d.addReplica(ctx, addr)
		}
	}
	if len(d.nodes) == 1 {
		d.nodes[0].addr = "" // goes without saying
	}
}

func (d *doctor) addReplica(ctx context.Context, addr string) {
	opts := d.options
	opts.Network, opts.Addr = "tcp", addr
	rdb := redis.NewClient(&opts)
	d.opened = append(d.opened, rdb)
	if err := reachable(ctx, rdb); err != nil {
		d.report.add(finding{Check: "replicas", Nodes: []string{addr}, Level: unchecked, Text: fmt.Sprintf("the replica cannot be asked from here: %v", err)})
		return
	}
	d.nodes = append(d.nodes, ask(ctx, rdb, addr))
}

// ask reads what a server tells of itself.
func ask(ctx context.Context, rdb *redis.Client, addr string) node {
	n := node{rdb: rdb, addr: addr, config: make(map[string]string)}
	text, err := rdb.Info(ctx).Result()
	n.info, n.infoErr = parseInfo(text), err
	for _, name := range settings { // one by one: before Redis 7 CONFIG GET takes one name
		values, err := rdb.ConfigGet(ctx, name).Result()
		if err != nil {
			n.configErr = err
			break
		}
		if v, ok := values[name]; ok {
			n.config[name] = v
		}
	}
	n.identify()
	n.merging = merges(ctx, rdb)
	if n.infoErr != nil { // HELLO is permitted to everybody
		hello, _ := rdb.Do(ctx, "hello").Result()
		fields := helloFields(hello)
		n.version, n.mode, n.role = fields["version"], fields["mode"], fields["role"]
		if name := fields["server"]; name != "" && name != "redis" {
			n.fork = name + " " + n.version
		}
	}
	if n.role == "slave" {
		n.role = "replica"
	}
	return n
}

// modes are the names under which servers tell whether they are of a cluster.
var modes = []string{"redis_mode", "server_mode", "redict_mode"}

// identify reads what the server is. Redis' forks name the version of Redis that they
// are compatible with beside their own.
func (n *node) identify() {
	n.version, n.role = n.info["redis_version"], n.info["role"]
	for _, name := range modes {
		n.mode = cmp.Or(n.mode, n.info[name])
	}
	if n.mode == "" && n.info["cluster_enabled"] == "1" {
		n.mode = "cluster"
	}
	for _, fork := range []string{"valkey", "redict"} {
		if v := n.info[fork+"_version"]; v != "" {
			n.fork = fork + " " + v
		}
	}
	if _, ok := n.config["active-replica"]; ok {
		n.fork = "keydb " + n.version
	}
}

// helloFields reads the answer to HELLO, in RESP3 or RESP2.
func helloFields(reply any) map[string]string {
	fields := make(map[string]string)
	switch reply := reply.(type) {
	case map[any]any:
		for k, v := range reply {
			fields[fmt.Sprint(k)] = fmt.Sprint(v)
		}
	case []any:
		for i := 0; i+1 < len(reply); i += 2 {
			fields[fmt.Sprint(reply[i])] = fmt.Sprint(reply[i+1])
		}
	}
	return fields
}

// parseInfo reads the answer to INFO or CLUSTER INFO.
func parseInfo(text string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// parseFields reads "a=1,b=2", as in the lines of INFO replication.
func parseFields(text string) map[string]string {
	fields := make(map[string]string)
	for field := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(field, "=")
		fields[name] = value
	}
	return fields
}

// replicas returns the addresses of those that the master knows.
func (n *node) replicas() (addrs []string) {
	for i := 0; ; i++ {
		line, ok := n.info[fmt.Sprintf("slave%d", i)]
		if !ok {
			return addrs
		}
		f := parseFields(line)
		addrs = append(addrs, net.JoinHostPort(f["ip"], f["port"]))
	}
}

// finding starts one about this node.
func (n *node) finding(check string, l level, format string, args ...any) finding {
	f := finding{Check: check, Level: l, Text: fmt.Sprintf(format, args...)}
	if n.addr != "" {
		f.Nodes = []string{n.addr}
	}
	return f
}

func (f finding) advise(format string, args ...any) finding {
	f.Advice = fmt.Sprintf(format, args...)
	return f
}
