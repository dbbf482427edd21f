package redistest

import (
	"context"
	"strings"
)

// Migration is the move of a slot, one step at a time: between them the source
// answers ASK for keys that have left, and TRYAGAIN to commands of which some
// keys have.
type Migration struct {
	c        *Cluster
	slot     int
	from, to *Server
}

// MoveSlot moves a slot with its keys, and returns when all nodes know.
func (c *Cluster) MoveSlot(slot int, to *Server) {
	c.tb.Helper()
	m := c.BeginMove(slot, to)
	m.MoveKeys()
	m.Finish()
}

// BeginMove prepares both sides. From now on new keys are made at the target.
func (c *Cluster) BeginMove(slot int, to *Server) *Migration {
	c.tb.Helper()
	m := &Migration{c: c, slot: slot, from: c.Owner(slot), to: to}
	m.set(to, "IMPORTING", m.from)
	m.set(m.from, "MIGRATING", to)
	return m
}

// MoveKeys moves these keys, or all that are there.
func (m *Migration) MoveKeys(keys ...string) {
	m.c.tb.Helper()
	ctx, source := context.Background(), m.c.patient(m.from)
	if len(keys) == 0 {
		var err error
		keys, err = source.ClusterGetKeysInSlot(ctx, m.slot, 1<<20).Result()
		m.c.must(err)
	}
	for _, key := range keys {
		m.c.must(source.Do(ctx, "MIGRATE", "127.0.0.1", m.to.port, key, 0, limit.Milliseconds()).Err())
	}
}

// Finish gives the slot to the target, and returns when all nodes know.
func (m *Migration) Finish() {
	m.c.tb.Helper()
	m.set(m.to, "NODE", m.to) // first: the slot must not be nobody's
	m.set(m.from, "NODE", m.to)
	for _, node := range m.c.Nodes { // gossip would do it, in its own time
		_ = m.c.admin[node].Do(context.Background(), "CLUSTER", "SETSLOT", m.slot, "NODE", m.c.ids[m.to]).Err()
	}
	m.c.AwaitHealthy()
	m.c.eventually("all nodes know the newest epoch: until then another move may get the same, and be taken back", m.c.sameEpoch)
}

// sameEpoch reports whether all nodes know the same newest change of who has which slots.
func (c *Cluster) sameEpoch() bool {
	epochs := make(map[string]bool)
	for _, node := range c.Nodes {
		info := c.admin[node].ClusterInfo(context.Background()).Val()
		_, rest, _ := strings.Cut(info, "cluster_current_epoch:")
		epoch, _, _ := strings.Cut(rest, "\r")
		epochs[epoch] = true
	}
	return len(epochs) == 1
}

func (m *Migration) set(node *Server, state string, other *Server) {
	m.c.tb.Helper()
	m.c.must(m.c.patient(node).Do(context.Background(), "CLUSTER", "SETSLOT", m.slot, state, m.c.ids[other]).Err())
}
