package main

import (
	"context"
	"crypto/x509"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// Managed services forbid commands, by renaming them or by rights. What the doctor
// may not ask it says; what locks do not need they do without.
func TestDoctorOfManagedServices(t *testing.T) {
	t.Parallel()
	untold := map[string]level{"eviction": unchecked, "persistence": unchecked, "connections": unchecked, "replicas": unchecked}
	for _, tc := range []struct {
		name   string
		args   string // "" stands for an empty argument
		code   int
		levels map[string]level
		says   string // of the lock
	}{
		{"no CONFIG, no CLIENT", `--rename-command CONFIG "" --rename-command CLIENT "" --rename-command SLOWLOG ""`, 0, map[string]level{"connections": unchecked, "lock": fine, "acl": fine}, "taken"},
		{"CONFIG by another name", `--rename-command CONFIG c0nf1g`, 0, map[string]level{"connections": unchecked, "lock": fine}, "taken"},
		{"no INFO", `--rename-command INFO "" --rename-command CONFIG ""`, 0, untold, "taken"},
		{"no ACL", `--rename-command ACL ""`, 0, map[string]level{"lock": fine, "scripts": fine}, "taken"},
		{"no EVALSHA", `--rename-command EVALSHA ""`, exitBroken, map[string]level{"lock": broken, "scripts": fine}, "unknown command"},
		{"no EVAL", `--rename-command EVAL ""`, exitBroken, map[string]level{"lock": broken}, "unknown command"},
		{"no dangerous commands", `--user default on nopass ~* &* +@all -@dangerous -@admin -client`, 0, untold, "taken"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			args := append(strings.Fields(tc.args), "--appendonly", "yes")
			for i, arg := range args {
				args[i] = strings.Trim(arg, `"`)
			}
			code, r := examined(t, redistest.Start(t, args...).URL())
			require.Equal(t, tc.code, code, "%+v", r.Findings)
			for check, want := range tc.levels {
				require.Equal(t, want, r.levels()[check], "%s: %+v", check, r.about(check))
			}
			require.Contains(t, r.about("lock").Text, tc.says)
		})
	}
}

// One endpoint that checks slots: the keys of a lock are in one slot, so that the trial
// passes. If it says that it is a node of a cluster, a client has to be one of a cluster.
func TestDoctorOfOneEndpoint(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 1, 0, "--appendonly", "yes")
	for url, want := range map[string]level{c.Nodes[0].URL(): broken, clusterURL(c): fine} {
		_, r := examined(t, url)
		require.Equal(t, want, r.levels()["cluster"], "%+v", r.about("cluster"))
		require.Equal(t, fine, r.levels()["lock"], "%+v", r.about("lock"))
	}
}

// A port that speaks TLS only: the doctor passes with TLS, and tells that nothing
// answers without.
func TestDoctorOfTLSOnly(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t, "ours")
	_, _, cert, key := ours.issue(&x509.Certificate{})
	_, addr := startTLS(t, ours, "--appendonly", "yes")
	code, r := examined(t, "rediss://"+addr, "--cacert", ours.file, "--cert", cert, "--key", key)
	require.Zero(t, code, "%+v", r.Findings)
	require.Equal(t, fine, r.levels()["lock"])
	code, r = examined(t, "redis://"+addr)
	require.Equal(t, exitBroken, code)
	require.Equal(t, broken, r.levels()["connection"])
	require.Contains(t, r.Findings[len(r.Findings)-1].Text, "EOF (if it expects TLS, the URL begins with rediss://)")
}

// A service is recognised by the end of a host name, and by nothing else.
func TestServiceOf(t *testing.T) {
	for host, want := range map[string]string{
		"master.c.x1.use1.cache.amazonaws.com":             "Amazon ElastiCache",
		"c-x1.serverless.use1.cache.amazonaws.com":         "Amazon ElastiCache Serverless",
		"clustercfg.c.x1.memorydb.us-east-1.amazonaws.com": "Amazon MemoryDB",
		"c.x1.clustercfg.memorydb.eu-west-2.amazonaws.com": "Amazon MemoryDB",
		"C.Redis.Cache.Windows.Net.":                       "Azure Cache for Redis",
		"c.westeurope.redis.azure.net":                     "Azure Managed Redis",
		"redis-1.c1.us-east-1-2.ec2.cloud.redislabs.com":   "Redis Cloud",
		"redis-1.c1.us-east-1-2.ec2.redns.redis-cloud.com": "Redis Cloud",
		"a-b-1.upstash.io":                                 "Upstash",
		"valkey-p.aivencloud.com":                          "Aiven for Valkey",
		"c-do-user-0.c.db.ondigitalocean.com":              "DigitalOcean Managed Valkey",
		"abcde.dragonflydb.cloud":                          "Dragonfly Cloud",
		"r-bp1.redis.rds.aliyuncs.com":                     "Alibaba Tair",
		"a-p.redis.us-ashburn-1.oci.oraclecloud.com":       "OCI Cache",
		"127.0.0.1":                           "",
		"redis":                               "",
		"cache.amazonaws.com":                 "",
		"ec2-1.compute.amazonaws.com":         "",
		"memorydb.example.org":                "",
		"upstash.io.example.org":              "",
		"notupstash.io":                       "",
		"vm.us-ashburn-1.oci.oraclecloud.com": "",
		"master.c.x1.use1.cache.amazonaws.com.internal.corp": "",
	} {
		s, ok := serviceOf(host)
		require.Equal(t, want, s.name, host)
		require.Equal(t, want != "", ok, host)
	}
}

// Each service has a section on the page.
func TestServicesAreOnThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/compatibility.md")
	require.NoError(t, err)
	for _, s := range services {
		title := strings.ToLower(strings.ReplaceAll(s.section, "-", " "))
		require.Contains(t, strings.ToLower(string(page)), "\n### "+title+"\n")
		require.Contains(t, string(page), "`"+s.suffix+"`")
	}
}

// The doctor says what matters at a service, whether one address or a cluster is named. It
// blames nothing: the finding is well.
func TestDoctorNamesTheService(t *testing.T) {
	for _, tc := range []struct{ url, text string }{
		{"rediss://c.redis.cache.windows.net:6380", "Azure Cache for Redis, by the name of the host: it closes connections after 10 idle minutes: ConnMaxIdleTime below that"},
		{"rediss://c-x1.serverless.use1.cache.amazonaws.com:6379?addr=h:6379", "Amazon ElastiCache Serverless, by the name of the host: only a client of a cluster reaches it, and only with TLS"},
		{"redis://127.0.0.1:6379", ""},
		{"unix:///tmp/upstash.io", ""},
	} {
		s, err := new(access).open(tc.url)
		require.NoError(t, err)
		d := newDoctor(s, "*")
		d.checkService()
		d.close()
		if tc.text == "" {
			require.Empty(t, d.report.Findings)
			continue
		}
		require.Len(t, d.report.Findings, 1)
		require.Equal(t, fine, d.report.worst())
		require.Equal(t, tc.text, d.report.about("service").Text)
		require.Contains(t, d.report.about("service").Advice, "docs/compatibility.md#a")
	}
}

// An Active-Active database says what it is to INFO crdt. Other servers answer nothing, and
// half an answer is none.
func TestDoctorOfAnActiveActiveDatabase(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for answer, want := range map[string]level{
		"": fine,
		"# CRDT Context\r\ncrdt_config_version:1\r\ncrdt_slots:0-16383\r\ncrdt_replid:1\r\n": broken,
		"crdt_config_version:1\r\n": fine,
	} {
		rdb := srv.Client(t)
		rdb.AddHook(redistest.Hook{Process: func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if cmd, ok := cmd.(*redis.StringCmd); ok && answer != "" && len(cmd.Args()) == 2 && cmd.Args()[1] == "crdt" {
				cmd.SetVal(answer)
				return nil
			}
			return next(ctx, cmd)
		}})
		n := ask(t.Context(), rdb, "")
		findings := n.checkReplicas()
		require.Len(t, findings, 1)
		require.Equal(t, want, findings[0].Level, "%q: %+v", answer, findings)
	}
	rdb := srv.Client(t)
	rdb.AddHook(redistest.Hook{Process: func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if cmd.Name() == "info" {
			cmd.SetErr(answer("NOPERM"))
			return cmd.Err()
		}
		return next(ctx, cmd)
	}})
	require.False(t, merges(t.Context(), rdb))
}
