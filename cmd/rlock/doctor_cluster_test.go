package main

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// Each node of a cluster has users of its own, and those of one of them may differ: whichever
// node go-redis would ask, the doctor finds it.
func TestDoctorWhereOneNodeDiffers(t *testing.T) {
	redistest.Since7(t, "sharded channels")
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	_, r := examined(t, c.Nodes[0].URL(), "--cluster", "--prefix", aclPrefix)
	line := strings.Replace(r.ACL.Locks, "SETUSER rlock ", "SETUSER u ", 1)
	admins := make([]*redis.Client, len(c.Nodes))
	for i, n := range c.Nodes {
		admins[i] = n.Client(t)
		require.NoError(t, admins[i].Do(t.Context(), words(line)...).Err())
	}
	change := func(i int, rules ...string) {
		t.Helper()
		for _, rule := range rules {
			require.NoError(t, admins[i].Do(t.Context(), "acl", "setuser", "u", rule).Err())
		}
	}
	for i := range c.Nodes {
		url := strings.Replace(c.Nodes[(i+1)%3].URL(), "redis://", "redis://u:PASSWORD@", 1)

		change(i, "-zadd", "-hset")
		code, r := examined(t, url, "--cluster", "--prefix", aclPrefix)
		require.Equal(t, exitBroken, code)
		f := r.breaks("acl")
		require.Equal(t, []string{c.Nodes[i].Addr()}, f.Nodes)
		require.Contains(t, f.Text, "+hset +zadd:")
		change(i, "+zadd", "+hset")

		change(i, "resetpass", ">other")
		code, r = examined(t, url, "--cluster", "--prefix", aclPrefix)
		require.Equal(t, exitBroken, code)
		require.Equal(t, fine, r.about("connection").Level, "%+v", r)
		f = r.breaks("cluster")
		require.Equal(t, []string{c.Nodes[i].Addr()}, f.Nodes)
		require.Contains(t, f.Text, "refuses this user")
		require.Contains(t, r.about("sharded pub/sub").Text, "available: ")
		require.Contains(t, r.ACL.Locks, "+ssubscribe")
		change(i, "resetpass", ">PASSWORD")
	}
}

// breaks returns the first finding by which something is broken, the zero finding if nothing is.
func (r *report) breaks(check string) finding {
	for _, f := range r.Findings {
		if f.Check == check && f.Level == broken {
			return f
		}
	}
	return finding{}
}
