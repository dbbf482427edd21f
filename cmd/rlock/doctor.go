package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/xid"
	"github.com/urfave/cli/v3"
)

// doctorTimeout bounds a whole examination. A server that answers needs about
// two seconds.
const doctorTimeout = 30 * time.Second

func doctorCommand() *cli.Command {
	return &cli.Command{
		Name:      "doctor",
		Usage:     "check whether a server is fit for locks",
		UsageText: "rlock doctor [--name GLOB] [--json]",
		Description: `Checks the version, memory, persistence, replication, cluster, Sentinels, ACL rights,
scripts, clocks and round trips of the server. It explains what each result means for
locks, and what you should change. It also locks and unlocks a lock with the name
rlock-doctor:ID, and changes nothing else. If the Redis user has no right to a check,
the result is "not checked".

The doctor tries the rights for plain locks, and those for elections, jobs and shared
results, which are optional. Fair and read/write locks (rlock run --fair, --shared,
--exclusive) need more rights. The doctor does not try these, but docs/acl.md lists them.

If the Redis user can use only some names, give --name GLOB (*, ?). The doctor then tries
the rights to the names that match GLOB after --prefix, and uses such a name for its own
lock.

Exit status: 0 no check has found a problem; 1 there are warnings; 2 something is
broken, or the server cannot be reached; 64 wrong usage.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "name", Value: "*", Usage: "try the rights to locks whose names match `GLOB`"},
			jsonFlag(),
		},
		CustomHelpTemplate: commandHelp + doctorHelp,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return usagef(cmd, "takes no arguments")
			}
			if strings.ContainsAny(cmd.String("name"), `[\`) || cmd.String("name") == "" {
				return usagef(cmd, "--name: of patterns, only * and ? can be checked")
			}
			s, err := connect(cmd)
			if err != nil {
				return err
			}
			ctx, stop := untilInterrupt(ctx)
			defer stop()
			ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
			defer cancel()
			d := newDoctor(s, cmd.String("name"))
			defer d.close()
			d.examine(ctx)
			if interrupted, ok := errors.AsType[*exitError](context.Cause(ctx)); ok {
				return interrupted
			}
			if err := d.report.write(cmd.Root().Writer.(*output), cmd.Bool("json")); err != nil {
				return &exitError{exitBroken, err} // 1 would be of warnings
			}
			return d.report.exit()
		},
	}
}

const doctorHelp = `
JSON:
   server, topology (standalone, cluster, sentinel), level (the worst level of all
   findings), acl.locks and acl.read_only (the ACL SETUSER lines for plain locks), and
   findings. Each finding has these fields:
   check   connection, service, version, eviction, persistence, connections,
           replicas, cluster, sharded pub/sub, sentinels, acl, scripts, round trip,
           clock, clocks, lock
   nodes   the servers to which it applies, if not to all; may be missing
   level   ok, not checked, warning, broken
   text    what was found, and what it means for locks
   advice  what to do; may be missing
   values  what was measured, such as median_ms; may be missing
   Names and levels stay the same in later versions, but texts can change.
`

// doctor examines a server.
type doctor struct {
	*server
	report report
	glob   string // of the keys of the locks in question, for ACL rules
	name   string // of a lock that nobody else has; among those if they can be many
	sample string // a name among those
	nodes  []node
	opened []*redis.Client // connections of its own, to replicas

	unsharded  bool  // the cluster has no sharded channels
	shardedErr error // why that is not known; nil if it is
}

// node is a server of the deployment. What it was asked for is empty if err says
// that it was refused.
type node struct {
	rdb       *redis.Client
	addr      string
	version   string
	fork      string // with its own version, such as "valkey 8.1.8"; "" for Redis
	mode      string // standalone, cluster or sentinel
	role      string // master or replica
	info      map[string]string
	infoErr   error
	config    map[string]string
	configErr error
	merging   bool // with masters elsewhere, of an Active-Active database
}

func newDoctor(s *server, glob string) *doctor {
	d := &doctor{server: s, glob: aclGlob(s.prefix, glob)}
	own := "rlock-doctor:" + xid.New().String()
	d.sample = strings.NewReplacer("?", "x", "*", "x").Replace(strings.Replace(glob, "*", own, 1))
	d.name = own
	if strings.Contains(glob, "*") {
		d.name = d.sample
	}
	d.report = report{Server: s.name, Topology: s.topology(), Findings: []finding{}}
	return d
}

// findSharding finds out whether a cluster has sharded channels. Before Redis 7 a user
// with few rights is told that a subcommand is not permitted, also one that there is
// not. It is a node that has answered before that is asked: the client of the cluster
// may choose another.
func (d *doctor) findSharding(ctx context.Context) {
	if d.topology() != "cluster" {
		return
	}
	err := errors.New("no node has answered")
	if len(d.nodes) > 0 {
		err = d.nodes[0].rdb.Do(ctx, shardedTry...).Err()
	}
	old := func(n node) bool { return n.version != "" && older(n.version, "7") }
	switch {
	case err == nil:
	case disconnected(err), redis.IsPermissionError(err) && !slices.ContainsFunc(d.nodes, old):
		d.shardedErr = err
	default:
		d.unsharded = true
	}
}

// proposeUsers writes the ACL lines. A server refuses a line with a command that it
// does not know, as those of sharded channels before Redis 7.
func (d *doctor) proposeUsers() {
	line := func(user string, f feature) string {
		if f |= d.connecting(); f&clustered == 0 || !d.unsharded {
			return aclLine(user, d.prefix, d.glob, f)
		}
		return strings.ReplaceAll(aclLine(user, d.prefix, d.glob, f&^sharding), " +pubsub|shardnumsub", "")
	}
	d.report.ACL.Locks = line("rlock", lockUser|d.distributed())
	d.report.ACL.ReadOnly = line("rlock-reader", readUser)
}

// shardedTry is answered where there are sharded channels.
var shardedTry = []any{"pubsub", "shardnumsub"}

func (s *server) topology() string {
	switch s.rdb.(type) {
	case *redis.ClusterClient:
		return "cluster"
	default:
		if s.sentinels != nil {
			return "sentinel"
		}
		return "standalone"
	}
}

// connecting is what a user needs to get to the locks at all.
func (s *server) connecting() (f feature) {
	if s.topology() == "cluster" {
		f |= clustered
	}
	if s.options.DB != 0 {
		f |= database
	}
	return f
}

// distributed is what locks need beside, or can use, where there are several servers.
func (s *server) distributed() feature {
	switch s.topology() {
	case "cluster":
		return sharding | replicating | moving
	case "sentinel":
		return replicating
	default:
		return 0
	}
}

// examine makes all checks. If the server cannot be used, they end with that.
func (d *doctor) examine(ctx context.Context) {
	if s := d.sentinels; s != nil {
		d.checkSentinels(ctx)
	}
	if err := d.anyReachable(ctx); err != nil {
		d.report.add(finding{
			Check: "connection", Level: broken,
			Text:   fmt.Sprintf("cannot be used: %v%s", err, cmp.Or(masterHint(err), accessHint(err), tlsHint(d.secure, err))),
			Advice: "no lock can be taken: check address, network, TLS and credentials",
		})
		return
	}
	d.report.add(finding{Check: "connection", Level: fine, Text: "reached"})
	d.checkService()
	d.findNodes(ctx)
	d.findSharding(ctx)
	d.proposeUsers()
	for _, check := range []func(*node) []finding{
		one((*node).checkVersion), one((*node).checkEviction), one((*node).checkPersistence), (*node).checkConnections, (*node).checkReplicas,
	} {
		for _, n := range d.nodes {
			d.report.add(check(&n)...)
		}
	}
	d.checkCluster(ctx)
	d.checkRights(ctx)
	d.checkScripts(ctx)
	d.checkRoundTrips(ctx)
	d.checkClocks(ctx)
	d.checkLock(ctx)
}

// one makes a check with a single finding one like the others.
func one(check func(*node) finding) func(*node) []finding {
	return func(n *node) []finding { return []finding{check(n)} }
}

// reachable is nil if the server answers, be it that PING is not permitted.
func reachable(ctx context.Context, rdb redis.UniversalClient) error {
	err := rdb.Ping(ctx).Err()
	if redis.IsPermissionError(err) {
		return nil
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("no answer")
	}
	return err
}

// close ends what connect and the doctor have opened.
func (d *doctor) close() {
	for _, rdb := range d.opened {
		_ = rdb.Close()
	}
	d.server.close()
}
