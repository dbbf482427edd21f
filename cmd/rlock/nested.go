//go:build unix

package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/go-rlock/rlock/rlock"
)

// heldVar names the environment variable that carries ownership to the
// processes below `rlock run`, as a context does to the functions below Lock:
// the locks that the processes above hold, outermost first.
const heldVar = "RLOCK_HELD"

// enclosing is a lock that a process above this one holds.
type enclosing struct {
	name   string
	server string // without credentials
	key    string
	owner  string
	token  int64
	shared bool // it is held as a reader
}

// export puts the lock into the environment, for the command under it.
func (e enclosing) export() {
	e.introduce()
	entry := url.Values{
		"name": {e.name}, "server": {e.server}, "key": {e.key},
		"owner": {e.owner}, "token": {strconv.FormatInt(e.token, 10)},
		"shared": {strconv.FormatBool(e.shared)},
	}
	setenv(heldVar, strings.TrimSpace(os.Getenv(heldVar)+" "+entry.Encode()))
}

// introduce makes it the lock that the command sees as its own.
func (e enclosing) introduce() {
	setenv("RLOCK_NAME", e.name)
	setenv("RLOCK_OWNER", e.owner)
	setenv("RLOCK_TOKEN", strconv.FormatInt(e.token, 10))
}

// setenv ignores the error: only a NUL byte makes one, and no argument has any.
func setenv(name, value string) { _ = os.Setenv(name, value) }

// enclosingLocks reads the value of heldVar, innermost first.
func enclosingLocks(value string) (all []enclosing) {
	for entry := range strings.FieldsSeq(value) {
		v, err := url.ParseQuery(entry)
		if err != nil {
			continue // not ours
		}
		token, _ := strconv.ParseInt(v.Get("token"), 10, 64)
		e := enclosing{v.Get("name"), v.Get("server"), v.Get("key"), v.Get("owner"), token, v.Get("shared") == "true"}
		all = append([]enclosing{e}, all...)
	}
	return all
}

// reenter returns the hold of a process above this one on the lock, nil if there
// is none. An owner's name is never used again and so identifies the lock:
// whoever holds it under this key of this server is that process, by whatever
// URL it came. If it is gone, the work above goes on without protection, and an
// error stops what is below.
func reenter(lock *rlock.Lock, s *server, kind string) (*enclosing, error) {
	for _, e := range enclosingLocks(os.Getenv(heldVar)) {
		if e.key != s.prefix+lock.Name() {
			continue
		}
		state, err := lock.Inspect(context.Background())
		if err != nil {
			return nil, err
		}
		switch {
		case state.Holds[e.owner] > 0 && e.shared && kind != "shared":
			return nil, &exitError{exitUsage, fmt.Errorf("lock %q: the rlock run around this one shares it, so this one cannot have it alone", lock.Name())}
		case state.Holds[e.owner] > 0:
			return &e, nil
		}
		if e.server != s.name {
			fmt.Fprintf(os.Stderr, "rlock: note: a run of %q around this one holds its lock on %s, this one locks on %s\n", lock.Name(), e.server, s.name)
			continue
		}
		return nil, &exitError{exitLost, fmt.Errorf("lock %q: the rlock run around this one has lost it (its owner %s no longer holds it); \"env -u %s\" makes this one independent", lock.Name(), e.owner, heldVar)}
	}
	return nil, nil
}

// replace makes this process the command. It stays in the process group of the
// run around it, which stops that group when the lock is lost.
func (j *job) replace(outer *enclosing) error {
	outer.introduce()
	return startError(j.argv[0], syscall.Exec(j.path, j.argv, os.Environ()))
}
