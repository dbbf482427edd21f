package rlock

import (
	"cmp"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/go-rlock/rlock/internal/record"
)

// Identity describes the process of a client. While a hold or a wait lasts long, the client writes its
// identity to Redis, in a record. The commands `rlock top`, `rlock watch` and `rlock inspect` read the
// records, and show who holds a lock and for which purpose.
//
// A record is a hash with the key rlock_client:<client id>, after the prefix of the client. A record
// contains
//
//   - locks that are still held at their first renewal, or after ten seconds if that is sooner,
//   - locks for which a call has waited for longer than a second, with the beginning of the wait and
//     the text of [WithPurpose], and the owners of the locks that the contexts of such calls own,
//   - locks that were lost in the last 30 s,
//   - up to ten names for which calls wait most, even if each wait is short: if all waits for a name
//     take at least 100 ms in an interval of ten seconds. A name comes with its group, see
//     Group in [Options].
//
// The client writes its record no more than once in ten seconds, with two small scripts. There are two
// exceptions: the first call for a lock that has waited for a lease while its context owns another lock, and
// a deadlock that the client has found, see [WithDeadlockError]. The client then writes the record within a
// second. The client never writes a record for locks that were free and are held only for a short time. The
// record is removed when it is empty, and at [Client.Close], unless a lock was lost in the last 30 s. If the
// client is killed, the record expires after 30 s.
//
// No lock depends on a record. If Redis refuses to write the record, because the user has no rights to
// these keys, the client tries again after ten minutes, and logs the refusal once.
//
// All users with access to these keys can read the identity. With [Anonymous] there is no record.
type Identity struct {
	Host    string // default: the name of the machine, or of the pod
	PID     int    // default: the id of the process
	Program string // default: the last element of os.Args[0]
	Version string // default: the version of the main module, if the build has a version

	// Prompt writes each hold to the record at once, even short holds. Use it only in a process that
	// takes one or two locks for all of its work, such as `rlock run`. With Prompt, the client writes
	// the record up to once per second, which would be a load on Redis if there are many short holds.
	Prompt bool

	anonymous bool
}

// Anonymous returns an [Identity] for a client that writes no record to Redis.
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
