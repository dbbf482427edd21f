package verify

import (
	"context"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// follow makes a server the replica of another, and waits until it is.
func (w *world) follow(replica *redis.Client, master *redistest.Server) {
	host, port, _ := strings.Cut(master.Addr(), ":")
	require.NoError(w, replica.ReplicaOf(context.Background(), host, port).Err())
	redistest.Eventually(w.T, "the replica is linked", func() bool {
		return strings.Contains(replica.Info(context.Background(), "replication").Val(), "master_link_status:up")
	})
}

var offset = regexp.MustCompile(`(?:master|slave)_repl_offset:(\d+)`)

// catchUp holds writes at the master back until the replica has all of them.
func (w *world) catchUp() {
	w.do("client", "pause", 1000, "write")
	replica := w.newAdmin(w.spare)
	defer func() { _ = replica.Close() }()
	at := func(rdb *redis.Client) string {
		if m := offset.FindStringSubmatch(rdb.Info(context.Background(), "replication").Val()); m != nil {
			return m[1]
		}
		return ""
	}
	redistest.Eventually(w.T, "the replica has caught up", func() bool { return at(w.admin) == at(replica) })
}

// promote makes the replica a master.
func (w *world) promote() {
	replica := w.newAdmin(w.spare)
	defer func() { _ = replica.Close() }()
	require.NoError(w, replica.ReplicaOf(context.Background(), "no", "one").Err())
}

// switchOver sends clients to the other server, kills the one they were at and
// makes it the next replica.
func (w *world) switchOver() {
	w.gate.point(w.spare.Addr())
	w.srv.Kill()
	w.srv, w.spare = w.spare, w.srv
	w.admin = w.newAdmin(w.srv)
	w.spare.Restart()
	w.follow(w.newAdmin(w.spare), w.srv)
}

// failOver loses nothing.
func failOver(w *world) {
	w.catchUp()
	w.promote()
	w.switchOver()
}
