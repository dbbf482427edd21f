package rlock

import (
	"cmp"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/go-rlock/rlock/internal/record"
)

// Identity is a client's description of its process, in the record of the client on the
// server. A client has a record during long holds and waits. `rlock top`, `watch` and
// `inspect` read the records, and show who holds a lock, and for which purpose.
//
// A record is a hash rlock_client:<client id>, behind the prefix. The record names the locks still
// held when their first renewal is due, or, with a longer lease, after ten seconds; the locks
// waited for longer than a second, with [WithPurpose] and since when; and losses of the last
// half minute. The client writes the record at most every ten seconds, by two small scripts, and
// never for short and free locks. The record goes when there is nothing to tell, at
// [Client.Close] but for losses of the last half minute, and 30 s after the client was killed.
//
// No lock depends on a record. If a server refuses records, because an ACL user has no right to
// these keys, the client tries again after ten minutes, and logs the refusal once.
//
// All users with access to these keys learn the values: [Anonymous] keeps no record.
type Identity struct {
	Host    string // default: the name of the machine, or of the pod
	PID     int    // default: the id of the process
	Program string // default: the last element of os.Args[0]
	Version string // default: the version of the main module, if the build has a version

	// Prompt tells of each hold at once, also of short holds. Prompt is for a process with a lock
	// or two for all of its work, such as `rlock run`: the record is written up to once a second,
	// and with many short holds this would be a load.
	Prompt bool

	anonymous bool
}

// Anonymous is the [Identity] of a client without a record.
func Anonymous() Identity { return Identity{anonymous: true} }

// who fills in the open fields of the identity.
func (id Identity) who(started time.Time) record.Who {
	w := record.Who{Host: id.Host, PID: cmp.Or(id.PID, os.Getpid()), Program: id.Program, Version: id.Version, Started: started}
	if w.Host == "" {
		w.Host, _ = os.Hostname() // after an error the host is unknown
	}
	if w.Program == "" && len(os.Args) > 0 {
		w.Program = filepath.Base(os.Args[0])
	}
	if info, ok := debug.ReadBuildInfo(); ok && w.Version == "" {
		w.Version = info.Main.Version
	}
	return w
}
