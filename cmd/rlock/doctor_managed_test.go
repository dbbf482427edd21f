package main

import (
	"crypto/x509"
	"strings"
	"testing"

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
