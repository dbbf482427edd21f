package lua

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// CounterTTL is how long a fencing counter outlives its newest token. As long
// as it exists, tokens grow even if the server's clock is set back; once it is
// gone the clock alone orders them.
const CounterTTL = 30 * 24 * time.Hour

// ErrNotOwner reports that the owner does not hold the lock: its lease ran out,
// the lock was removed, or the same request was executed before.
var ErrNotOwner = errors.New("lua: not the owner")

// ConflictError reports that a key belongs to something that is not a lock.
// Nothing was changed.
type ConflictError struct{ Key, Type string }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("lua: key %q holds a %s, not a lock", e.Key, e.Type)
}

// Grant names one acquisition of a lock: its keys, its channel and its owner.
type Grant struct {
	Key     string
	Counter string // fencing counter; "" for a lock without tokens
	Spare   int64  // tokens that Acquire reserves behind the one it returns: no other grant gets them
	Channel string // where a release is announced
	Family  Family // of Channel
	Owner   string // unique to this grant, never used again; has a colon in it, as Redisson's have
}

func (g Grant) keys() []string {
	if g.Counter == "" {
		return []string{g.Key}
	}
	return []string{g.Key, g.Counter}
}

// Family says which subscribers of a channel are told: those of SUBSCRIBE, those of
// SSUBSCRIBE, or both, who otherwise know nothing of each other.
type Family int

// Families of channels. The sharded ones are for clusters of Redis 7 or later.
const (
	Ordinary Family = iota
	Sharded
	Both // Receivers are those of Sharded, unless the server refuses it
)

// publish returns what announce.lua is told, a string.
func (f Family) publish() any {
	switch f {
	case Sharded:
		return "SPUBLISH"
	case Both:
		return "PUBLISH SPUBLISH"
	}
	return "PUBLISH"
}

// millis is a lease as it is sent: at least 1, as PEXPIRE deletes a key that it is
// told to keep for less.
func millis(lease time.Duration) int64 { return max(lease.Milliseconds(), 1) }

// Reply is the answer to Acquire.
type Reply struct {
	Acquired bool
	Token    int64         // fencing token, 0 without Counter
	TTL      time.Duration // what is left of the holder's lease if refused; negative if it has no end
	Holder   string        // its owner, if the kind tells
}

// Acquire takes the lock for g.Owner if it is free. If g.Owner holds it
// already, because an earlier delivery was executed and its reply lost, Acquire
// succeeds and the lease is at least the given one again. It costs one round
// trip, two if the server does not know the script yet.
func Acquire(ctx context.Context, r Runner, g Grant, lease time.Duration) (Reply, error) {
	if g.Counter == "" {
		return granted(acquireScript.tersely().run(ctx, r, []string{g.Key}, millis(lease), g.Owner))
	}
	return granted(acquireScript.run(ctx, r, g.keys(), millis(lease), g.Owner, CounterTTL.Milliseconds(), g.Spare))
}

// granted reads the answer to an acquire.
func granted(reply reply, err error) (Reply, error) {
	if err != nil {
		return Reply{}, err
	}
	if reply.status() == done {
		return Reply{Acquired: true, Token: reply.int(1)}, nil
	}
	return Reply{TTL: reply.millis(1), Holder: reply.text(2)}, nil
}

// Count makes n the hold count of g.Owner and extends its lease to at least the
// given one. ErrNotOwner: there is no such grant, and none was made.
func Count(ctx context.Context, r Runner, g Grant, lease time.Duration, n int) error {
	reply, err := countScript.run(ctx, r, []string{g.Key}, millis(lease), g.Owner, n)
	return owned(reply, err)
}

// Released is the answer to Release.
type Released struct {
	Receivers  int64 // connections that got the message
	PublishErr error // why the server refused to send it; the lock is free all the same
}

// Release frees the lock if g.Owner holds it, whatever its hold count, and
// announces it. ErrNotOwner: g.Owner did not hold it.
func Release(ctx context.Context, r Runner, g Grant) (Released, error) {
	reply, err := releaseScript.run(ctx, r, []string{g.Key}, g.Owner, g.Family.publish(), g.Channel)
	return announced(g, reply, err)
}

// announced reads the answer to a release.
func announced(g Grant, reply reply, err error) (Released, error) {
	if err := owned(reply, err); err != nil {
		return Released{}, err
	}
	if n := reply.int(1); n >= 0 {
		return Released{Receivers: n}, nil
	}
	return Released{PublishErr: fmt.Errorf("channel %s: %s", g.Channel, reply.text(2))}, nil
}

// Renewal is a lease to extend: that of a plain lock, unless it comes from a
// function of another kind of lock.
type Renewal struct {
	Grant Grant
	Lease time.Duration

	other *script           // in place of renewScript
	keys  []string          // after Grant.Key
	args  []any             // after lease and owner
	read  func(reply) error // in place of owned
}

func (r Renewal) script() *script { return cmp.Or(r.other, &renewScript) }

func (r Renewal) command(ctx context.Context, form form) once {
	args := append([]any{millis(r.Lease), r.Grant.Owner}, r.args...)
	return form(*r.script(), ctx, append([]string{r.Grant.Key}, r.keys...), args...)
}

// answer turns what the server said to cmd into an error.
func (r Renewal) answer(cmd once) error {
	if err := cmd.Err(); err != nil {
		return err
	}
	reply, err := r.script().reply(cmd)
	if err != nil || r.read == nil {
		return owned(reply, err)
	}
	return r.read(reply)
}

// Renew extends leases in one pipeline. The errors are aligned with due; nil
// means renewed, ErrNotOwner that there is nothing left to renew. A server that
// does not know the script costs a second pipeline.
func Renew(ctx context.Context, r Runner, due []Renewal) []error {
	errs := make([]error, len(due))
	all := make([]int, len(due))
	for i := range due {
		all[i] = i
	}
	unknown := renew(ctx, r, due, all, script.byHash, errs)
	if len(unknown) > 0 {
		renew(ctx, r, due, unknown, script.bySource, errs)
	}
	return errs
}

type form func(s script, ctx context.Context, keys []string, args ...any) once

// renew sends the chosen renewals, fills in their errors and returns those
// whose script the server does not know.
func renew(ctx context.Context, r Runner, due []Renewal, chosen []int, form form, errs []error) (unknown []int) {
	pipe := r.Pipeline()
	cmds := make([]once, len(chosen))
	for i, n := range chosen {
		cmds[i] = due[n].command(ctx, form)
		_ = pipe.Process(ctx, cmds[i]) // only queues
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, n := range chosen {
		if unknownScript(cmds[i].Err()) {
			unknown = append(unknown, n)
		}
		errs[n] = due[n].answer(cmds[i])
	}
	return unknown
}

// owned turns the answer of a script that serves only the owner into an error.
func owned(r reply, err error) error {
	if err == nil && r.status() == refused {
		return ErrNotOwner
	}
	return err
}

// ForceRelease removes the lock, whoever holds it, and announces it. It reports
// whether there was one. Do not repeat it after an unknown outcome: it would
// remove the next grant as well.
func ForceRelease(ctx context.Context, r Runner, g Grant) (bool, error) {
	reply, err := forceScript.run(ctx, r, []string{g.Key}, g.Family.publish(), g.Channel)
	if err != nil {
		return false, err
	}
	return reply.status() == done, nil
}

// State is what the server knows of a lock.
type State struct {
	Holds       map[string]int64 // hold count by owner; empty if free
	Shared      map[string]int64 // those of Holds that others may share: reads
	TTL         time.Duration    // what is left of the lease; negative if it has no end, 0 if free
	Token       int64            // newest fencing token, 0 without Counter
	Subscribers int64            // connections listening on the channel; -1 if the server does not tell
}

// Inspect reads the lock of g; g.Owner is not used.
func Inspect(ctx context.Context, r Runner, g Grant) (State, error) {
	reply, err := g.inspect(ctx, r)
	if err != nil {
		return State{}, err
	}
	return reply.state(g.Key, holdCount)
}

func (g Grant) inspect(ctx context.Context, r Runner) (reply, error) {
	numsub := "NUMSUB"
	if g.Family != Ordinary {
		numsub = "SHARDNUMSUB"
	}
	return inspectScript.run(ctx, r, g.keys(), numsub, g.Channel)
}

// state reads the answer to an inspection, with a function for each field, whose
// error says that it is none of a lock.
func (r reply) state(key string, read func(s *State, field, value string) error) (State, error) {
	s := State{Holds: make(map[string]int64), Token: r.int(2), Subscribers: r.int(3)}
	for i := 4; i+1 < len(r); i += 2 {
		if err := read(&s, r.text(i), r.text(i+1)); err != nil {
			return State{}, &ConflictError{Key: key, Type: "hash with the field " + strconv.Quote(r.text(i))}
		}
	}
	if len(s.Holds) > 0 {
		s.TTL = r.millis(1)
	}
	return s, nil
}

// holdCount reads a field that is an owner.
func holdCount(s *State, field, value string) (err error) {
	s.Holds[field], err = strconv.ParseInt(value, 10, 64)
	return err
}

var _ Runner = redis.UniversalClient(nil)
