package main

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// TestForks: what Redis' forks say of themselves.
func TestForks(t *testing.T) {
	for _, tc := range []struct{ info, version, mode, text string }{
		{"redis_version:7.0.15\r\nredis_mode:cluster\r\n", "7.0.15", "cluster", "7.0.15: tested"},
		{"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.8\r\nserver_mode:cluster\r\n", "7.2.4", "cluster", "valkey 8.1.8, as Redis 7.2.4: tested"},
		{"redis_version:7.2.4\r\nredict_version:7.3.6\r\nredict_mode:standalone\r\n", "7.2.4", "standalone", "redict 7.3.6, as Redis 7.2.4: tested"},
		{"redis_version:7.2.4\r\ncluster_enabled:1\r\n", "7.2.4", "cluster", "7.2.4: tested"},
		{"redis_version:7.2.4\r\nvalkey_version:7.2.9\r\n", "7.2.4", "", "valkey 7.2.9, as Redis 7.2.4: tested"},
		{"redis_version:9\r\n", "9", "", "9: not among the tested versions"},
	} {
		n := &node{info: parseInfo(tc.info)}
		n.identify()
		require.Equal(t, []string{tc.version, tc.mode}, []string{n.version, n.mode})
		require.Equal(t, tc.text, n.checkVersion().Text)
	}
}

// TestDoctorKnowsItsServer: on each server that the suite runs on, it knows which one
// it is, and that a node of a cluster is one.
func TestDoctorKnowsItsServer(t *testing.T) {
	t.Parallel()
	srv := startCluster(t)
	_, r := examined(t, srv.URL())
	require.Equal(t, broken, r.about("cluster").Level)
	require.Contains(t, r.about("cluster").Advice, "--cluster")
	require.True(t, strings.HasSuffix(r.about("version").Text, ": tested"), r.about("version").Text)
	info := parseInfo(srv.Client(t).Info(t.Context(), "server").Val())
	for _, fork := range []string{"valkey", "redict"} {
		if v := info[fork+"_version"]; v != "" {
			require.Equal(t, fork+" "+v, r.about("version").Values["fork"])
		}
	}
}

// TestKeyDB: what is known of it, without the server. With active-replica two servers
// were seen to grant the same lock, and a script to write without the replicas that
// min-replicas-to-write wants.
func TestKeyDB(t *testing.T) {
	type fields = map[string]string
	master := fields{"redis_version": "6.3.4", "role": "master", "connected_slaves": "1", "slave0": "ip=h,port=1,state=online,lag=0", "min_slaves_good_slaves": "1"}
	for _, tc := range []struct {
		info, config fields
		want         level
		says         string
	}{
		{fields{"redis_version": "6.3.4", "role": "active-replica"}, nil, broken, "active replica"},
		{fields{"redis_version": "6.3.4", "role": "master"}, fields{"active-replica": "yes"}, broken, "active replica"},
		{master, fields{"active-replica": "no", "min-replicas-to-write": "1"}, warning, "does not hold for scripts"},
		{master, fields{"active-replica": "no", "min-replicas-to-write": "0"}, warning, "goes on granting"},
		{master, fields{"min-replicas-to-write": "1"}, fine, "refuses writes"},
	} {
		n := &node{info: tc.info, config: tc.config}
		n.identify()
		findings := n.checkReplicas()
		require.Len(t, findings, 1)
		require.Equal(t, tc.want, findings[0].Level, "%+v", findings)
		require.Contains(t, findings[0].Text, tc.says)
	}
}

// TestDoctorTriesScripts: a server that executes the commands of a script one by one
// answers two scripts with the same number.
func TestDoctorTriesScripts(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	check := func() finding {
		d := newDoctor(&server{rdb: rdb}, "*")
		d.checkScripts(t.Context())
		return d.report.about("scripts")
	}
	require.Equal(t, fine, check().Level)
	require.Empty(t, rdb.Keys(t.Context(), "*").Val())
	rdb.AddHook(redistest.Hook{Process: func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if cmd, ok := cmd.(*redis.Cmd); ok && strings.HasPrefix(cmd.Name(), "eval") {
			cmd.SetVal(int64(1)) // each script sees what was there before the others
			return nil
		}
		return next(ctx, cmd)
	}})
	f := check()
	require.Equal(t, broken, f.Level)
	require.Contains(t, f.Text, "not atomic: 199 of 200")
}

// TestDoctorOfAnOldCluster: before Redis 7 there are no sharded channels, and no rights
// to them.
func TestDoctorOfAnOldCluster(t *testing.T) {
	redistest.Long(t, "a cluster")
	for _, f := range []feature{lockUser | sharding | clustered, readUser | clustered} {
		require.Contains(t, aclLine("u", "", "*", f), "shardnumsub")
	}
	srv := startCluster(t)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{srv.Addr()}})
	t.Cleanup(func() { _ = rdb.Close() })
	old := redistest.Hook{Process: func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if len(cmd.Args()) > 1 && cmd.Args()[1] == "shardnumsub" { // as Redis 6.2 does
			cmd.SetErr(answer("ERR Unknown subcommand or wrong number of arguments for 'shardnumsub'. Try PUBSUB HELP."))
			return cmd.Err()
		}
		return next(ctx, cmd)
	}}
	rdb.OnNewNode(func(node *redis.Client) { node.AddHook(old) })
	d := newDoctor(&server{rdb: rdb, prefix: aclPrefix}, "*")
	d.findNodes(t.Context())
	d.findSharding(t.Context())
	d.proposeUsers()
	for _, line := range []string{d.report.ACL.Locks, d.report.ACL.ReadOnly} {
		require.NoError(t, srv.Client(t).Do(t.Context(), words(line)...).Err(), line)
		require.NotContains(t, line, "shard")
		require.Contains(t, line, "+cluster|slots")
	}
	d.checkCluster(t.Context())
	require.Contains(t, d.report.about("sharded pub/sub").Text, "not available")
}

// answer is an error that a server has replied.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}
