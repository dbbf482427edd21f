//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-rlock/rlock/rlock"
)

// heldVar names the environment variable that carries ownership to the
// processes below `rlock run`, as a context does to the functions below Lock:
// the locks that the processes above hold, outermost first.
const heldVar = "RLOCK_HELD"

// proofVar names the one by which programs below join these locks, and by which a program
// that holds one tells `rlock run` below it: their proofs, outermost first.
const proofVar = "RLOCK_PROOF"

// enclosing is a lock that a process above this one holds.
type enclosing struct {
	name   string
	server string // without credentials
	key    string
	owner  string
	token  int64
	shared bool   // it is held as a reader
	proof  string // "" for a read/write lock
}

// export puts the lock into the environment, for the command under it.
func (e enclosing) export() {
	e.introduce()
	add(heldVar, e.entry())
	add(proofVar, e.proof)
}

// entry is the word for the lock in heldVar.
func (e enclosing) entry() string {
	return url.Values{
		"name": {e.name}, "server": {e.server}, "key": {e.key},
		"owner": {e.owner}, "token": {strconv.FormatInt(e.token, 10)},
		"shared": {strconv.FormatBool(e.shared)},
	}.Encode()
}

// longestString is how long Linux lets a string of an environment be, with the zero behind
// it; others have no less.
const longestString = 128 << 10

// exportable returns an error if a command with the locks in its environment could not be
// started. What is known only when they are held is taken for longer than it is.
func exportable(taken locks, s *server) error {
	held, proofs := len(heldVar)+len(os.Getenv(heldVar)), len(proofVar)+len(os.Getenv(proofVar))
	for _, lock := range taken {
		e := enclosing{name: lock.Name(), server: s.name, key: s.prefix + lock.Name(), owner: strings.Repeat("x", 64), token: math.MaxInt64}
		held += len(" " + e.entry())
		proofs += 128
	}
	if max(held, proofs)+len("=\x00") <= longestString {
		return nil
	}
	return &exitError{exitUsage, fmt.Errorf("the names are too long or too many: no command can be started with them in %s and %s, each of which has at most %d bytes", heldVar, proofVar, longestString)}
}

// introduce makes it the lock that the command sees as its own.
func (e enclosing) introduce() {
	setenv("RLOCK_NAME", e.name)
	setenv("RLOCK_OWNER", e.owner)
	setenv("RLOCK_TOKEN", strconv.FormatInt(e.token, 10))
}

// add puts a word behind those of a variable.
func add(name, word string) { setenv(name, strings.TrimSpace(os.Getenv(name)+" "+word)) }

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
		e := enclosing{name: v.Get("name"), server: v.Get("server"), key: v.Get("key"), owner: v.Get("owner"), token: token, shared: v.Get("shared") == "true"}
		all = append([]enclosing{e}, all...)
	}
	return all
}

// reenter returns the hold of a process above this one on the lock, nil if there
// is none. An owner's name is never used again and so identifies the lock:
// whoever holds it under this key of this server is that process, by whatever
// URL it came. If it is gone, the work above goes on without protection, and an
// error stops what is below. plain is the same lock, as any program may hold it.
func reenter(lock, plain *rlock.Lock, s *server, kind string) (*enclosing, error) {
	known := false
	for _, e := range enclosingLocks(os.Getenv(heldVar)) {
		if e.key != s.prefix+lock.Name() {
			continue
		}
		known = true
		state, err := lock.Inspect(context.Background())
		// What is shared is another kind of lock for a run without --shared and --exclusive.
		alone := e.shared && kind != "shared" && (state.Holds[e.owner] > 0 || errors.Is(err, rlock.ErrKeyConflict) && e.server == s.name)
		switch {
		case alone:
			return nil, &exitError{exitUsage, fmt.Errorf("lock %q: the rlock run around this one shares it, so this one cannot have it alone", lock.Name())}
		case err != nil:
			return nil, err
		case state.Holds[e.owner] > 0:
			return &e, nil
		}
		if e.server != s.name {
			fmt.Fprintf(os.Stderr, "rlock: note: a run of %q around this one holds its lock on %s, this one locks on %s\n", lock.Name(), e.server, s.name)
			continue
		}
		return nil, &exitError{exitLost, fmt.Errorf("lock %q: the rlock run around this one has lost it (its owner %s no longer holds it); \"env -u %s\" makes this one independent", lock.Name(), e.owner, heldVar)}
	}
	if known {
		return nil, nil
	}
	return nil, ownedAbove(plain)
}

// ownedAbove returns an error if a program above this one holds the lock, and has put its
// proof into the environment: it is likely to wait for this process, which would wait for
// it.
func ownedAbove(lock *rlock.Lock) error {
	proof := os.Getenv(proofVar)
	if proof == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	//rlockvet:ignore nothing is done under it: the call only asks whether the proof is good
	_, hold, err := lock.Join(ctx, proof)
	if err != nil { // it is of another lock, or over; a server that does not answer is found out next
		return nil
	}
	_ = hold.Unlock(ctx) // sends nothing
	return &exitError{exitUsage, fmt.Errorf("lock %q: the program above this one holds it (%s), and the two would wait for each other: run the command without rlock, or \"env -u %s rlock run\" to wait like anybody else", lock.Name(), proofVar, proofVar)}
}

// replace makes this process the command. It stays in the process group of the
// run around it, which stops that group when the lock is lost.
func (j *job) replace(outer *enclosing) error {
	outer.introduce()
	return j.startError(executed(j.path, j.argv, func(path string, argv []string) error { return syscall.Exec(path, argv, os.Environ()) }))
}
