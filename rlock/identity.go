package rlock

import (
	"cmp"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/go-rlock/rlock/internal/record"
)

// Identity is who a client says it is, in the record that it keeps on the server while it
// holds a lock for long, or waits for one. `rlock top`, `watch` and `inspect` read the
// records, and show who holds a lock, and what for.
//
// A record is a hash rlock_client:<client id>, behind the prefix. It names the locks that
// the client has held since their first renewal was due, and for ten seconds of a longer
// lease; the locks that calls have waited for longer than a second, with [WithPurpose] and
// since when; and losses of the last half minute. It is written at most every ten seconds,
// by two small scripts, and not at all by a client whose locks are short and free. It goes
// when there is nothing to tell, at [Client.Close] but for losses of the last half minute, and
// 30 s after its client was killed.
//
// No lock depends on it. A server that refuses it, because an ACL user has no right to
// these keys, is left alone for ten minutes, and the log says so once.
//
// Whoever may read those keys learns the values: [Anonymous] keeps no record.
type Identity struct {
	Host    string // default: that of the machine, or of the pod
	PID     int    // default: that of the process
	Program string // default: the last element of os.Args[0]
	Version string // default: that of the main module, if the build has one

	// Prompt tells of each hold at once, also of one that is short. It is for a process that
	// takes a lock or two for all that it does, as `rlock run` does: it writes the record up
	// to once a second, and with many short holds that would be a load.
	Prompt bool

	anonymous bool
}

// Anonymous is the [Identity] of a client that tells nothing of itself: it writes no
// record.
func Anonymous() Identity { return Identity{anonymous: true} }

// who fills in what the identity leaves open.
func (id Identity) who(started time.Time) record.Who {
	w := record.Who{Host: id.Host, PID: cmp.Or(id.PID, os.Getpid()), Program: id.Program, Version: id.Version, Started: started}
	if w.Host == "" {
		w.Host, _ = os.Hostname() // it is not known then
	}
	if w.Program == "" && len(os.Args) > 0 {
		w.Program = filepath.Base(os.Args[0])
	}
	if info, ok := debug.ReadBuildInfo(); ok && w.Version == "" {
		w.Version = info.Main.Version
	}
	return w
}
