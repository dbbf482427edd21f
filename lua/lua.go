package lua

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
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

// Grant names one acquisition of a lock: its keys and its owner.
type Grant struct {
	Key     string
	Queue   string    // of those who wait, see [QueueOf]; "" for a lock that has none
	Counter string    // fencing counter; "" for a lock without tokens
	Channel string    // where the release of a read/write lock is announced; that of others is [UnlockChannel]
	Rivals  [2]string // keys of Redisson's fair lock of that name: while they exist, Ask grants nothing; "" for a lock that is not fair
	Family  Family    // of the channels
	Owner   string    // unique to this grant, never used again; has a colon in it, as Redisson's have, and no space
}

// Related names a key or a channel that belongs to a lock, by Redisson's rule: it is
// in the cluster slot of the lock.
func Related(prefix, key string) string {
	if strings.Contains(key, "{") {
		return prefix + ":" + key
	}
	return prefix + ":{" + key + "}"
}

// QueueOf names the queue of a lock.
func QueueOf(key string) string { return Related("rlock_queue", key) }

// UnlockChannel is where releases are announced to Redisson's waiters.
func UnlockChannel(key string) string { return Related("redisson_lock__channel", key) }

// GrantChannel is where a client hears that the queue of a lock has granted it the
// lock: see [Message].
func GrantChannel(key, client string) string { return Related("rlock_channel", key) + ":" + client }

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

// Reply is the answer to Acquire and Ask.
type Reply struct {
	Acquired bool
	Token    int64         // fencing token, 0 without Counter
	Spare    int64         // tokens behind it that are reserved: no other grant gets them
	TTL      time.Duration // what is left of the holder's lease if refused; negative if it has no end
	Holder   string        // its owner, if the kind tells

	Place Place // of an owner that Ask has refused
}

// Acquire takes the lock for g.Owner if it is free, whoever queues for it. If g.Owner
// holds it already, because an earlier delivery was executed and its reply lost,
// Acquire succeeds and the lease is at least the given one again; it then gets a
// token of its own. spare is how many tokens to reserve behind that of the owner. It
// costs one round trip, two if the server does not know the script yet.
func Acquire(ctx context.Context, r Runner, g Grant, lease time.Duration, spare int64) (Reply, error) {
	if g.Counter == "" {
		reply, err := acquireScript.run(ctx, r, []string{g.Key}, millis(lease), g.Owner)
		return granted(reply, err, false)
	}
	reply, err := acquireFencedScript.run(ctx, r, []string{g.Key, g.Counter}, millis(lease), g.Owner, spare)
	return granted(reply, err, true)
}

// granted reads the answer to an acquire, with a token or without.
func granted(reply reply, err error, fenced bool) (Reply, error) {
	if err != nil {
		return Reply{}, err
	}
	if reply.status() == done {
		token, ok := reply.token(1)
		if !ok && fenced {
			return Reply{}, fmt.Errorf("lua: a grant without token: %v", []any(reply))
		}
		return Reply{Acquired: true, Token: token, Spare: reply.int(2)}, nil
	}
	return Reply{TTL: reply.millis(1), Holder: reply.text(2)}, nil
}

// Count makes n the hold count of g.Owner and extends its lease to at least the
// given one. ErrNotOwner: there is no such grant, and none was made.
func Count(ctx context.Context, r Runner, g Grant, lease time.Duration, n int) error {
	reply, err := countScript.run(ctx, r, []string{g.Key}, millis(lease), g.Owner, n)
	return owned(reply, err)
}

// Retain notes that nobody holds the lock although g.Owner keeps it, so that whoever is
// refused recalls it: then g.Owner's client hears a [Message] that names g.Owner. kept is
// false if nothing was changed: somebody waits for the lock, or g.Owner does not hold it.
func Retain(ctx context.Context, r Runner, g Grant) (kept bool, err error) {
	reply, err := retainScript.run(ctx, r, []string{g.Key, g.Queue}, g.Owner, g.Family.publish())
	return err == nil && reply.status() == done, err
}

// Ending says what a grant leaves behind. The zero value is that of one without
// tickets and tokens.
type Ending struct {
	Tickets        []string // owners whose tickets are taken out as well
	Used, Reserved int64    // with Counter: the newest token used, and the last one that is reserved
	Silent         bool     // nothing is announced; only for a lock without queue
	Evict          bool     // g.Owner's client does not ask itself: its next waiter is told like any other
}

// Released is the answer to Release.
type Released struct {
	PublishErr error  // why the server refused to announce it; the lock is free all the same
	Message    string // to an owner of g.Owner's client, which must bring it there: see [ReadMessage]
}

// Release ends the grant of g.Owner, whatever its hold count, and passes the lock on:
// to the first in the queue that can hear of it, or to everybody. ErrNotOwner: g.Owner
// did not hold it; an earlier delivery may have released it, and granted it to the
// owner in Message.
func Release(ctx context.Context, r Runner, g Grant, e Ending) (Released, error) {
	commands := g.Family.publish()
	var answer reply
	var err error
	switch {
	case g.Queue == "":
		if e.Silent {
			commands = ""
		}
		answer, err = releaseAloneScript.run(ctx, r, []string{g.Key}, g.Owner, commands)
	case e.Evict:
		answer, err = g.force(ctx, r, g.Owner)
	case g.Counter == "":
		answer, err = releaseScript.run(ctx, r, []string{g.Key, g.Queue}, g.Owner, commands, strings.Join(e.Tickets, " "))
	default:
		answer, err = releaseFencedScript.run(ctx, r, []string{g.Key, g.Queue, g.Counter}, g.Owner, commands,
			strings.Join(e.Tickets, " "), e.Used, e.Reserved)
	}
	switch err := owned(answer, err); {
	case err == ErrNotOwner:
		return Released{Message: answer.text(1)}, err
	case err != nil:
		return Released{}, err
	}
	return Released{PublishErr: g.refusal(answer.text(1)), Message: answer.text(2)}, nil
}

// refusal is the error of a server that does not announce something.
func (g Grant) refusal(text string) error {
	if text == "" {
		return nil
	}
	return fmt.Errorf("channel %s: %s", cmp.Or(g.Channel, UnlockChannel(g.Key)), text)
}

// Renewal is a lease to extend: that of a plain lock, unless it comes from a
// function of another kind of lock.
type Renewal struct {
	Grant Grant
	Lease time.Duration

	other *script  // in place of renewScript
	keys  []string // after Grant.Key
	args  []any    // after lease and owner
}

func (r Renewal) script() *script { return cmp.Or(r.other, &renewScript) }

func (r Renewal) command(ctx context.Context, f form) once {
	args := append([]any{millis(r.Lease), r.Grant.Owner}, r.args...)
	return r.script().command(ctx, f, append([]string{r.Grant.Key}, r.keys...), args)
}

// answer turns what the server said to cmd into an error.
func (r Renewal) answer(cmd once) error {
	if err := cmd.Err(); err != nil {
		return err
	}
	reply, err := r.script().reply(cmd)
	if err = owned(reply, err); r.script() == &confirmScript && err == nil {
		return Left(reply.millis(1))
	}
	return err
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
	unknown := renew(ctx, r, due, all, byHash, errs)
	if len(unknown) > 0 {
		renew(ctx, r, due, unknown, bySource, errs)
	}
	return errs
}

// renew sends the chosen renewals, fills in their errors and returns those
// whose script the server does not know.
func renew(ctx context.Context, r Runner, due []Renewal, chosen []int, f form, errs []error) (unknown []int) {
	pipe := r.Pipeline()
	cmds := make([]once, len(chosen))
	for i, n := range chosen {
		cmds[i] = due[n].command(ctx, f)
		_ = pipe.Process(ctx, cmds[i]) // only queues
	}
	_ = exec(ctx, pipe) // each command has its own error
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
	reply, err := g.force(ctx, r)
	if err != nil {
		return false, err
	}
	return reply.status() == done, nil
}

// force removes the lock, whoever holds it, or one owner's.
func (g Grant) force(ctx context.Context, r Runner, owner ...any) (reply, error) {
	keys := []string{g.Key}
	if g.Queue != "" {
		keys = append(keys, g.Queue)
		if g.Counter != "" {
			keys = append(keys, g.Counter)
		}
	}
	return forceScript.run(ctx, r, keys, append([]any{g.Family.publish()}, owner...)...)
}

// State is what the server knows of a lock.
type State struct {
	Holds   map[string]int64 // hold count by owner, 0 for one that may be recalled; empty if free
	Shared  map[string]int64 // those of Holds that others may share: reads
	TTL     time.Duration    // what is left of the lease; negative if it has no end, 0 if free
	Token   int64            // newest fencing token, 0 without Counter
	Waiters int64            // in the queue, and connections that listen for a release; -1 if the server does not tell
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
	keys, queue, counter := []string{g.Key}, 0, 0
	if g.Queue != "" {
		keys = append(keys, g.Queue)
		queue = len(keys)
	}
	if g.Counter != "" {
		keys = append(keys, g.Counter)
		counter = len(keys)
	}
	return inspectScript.run(ctx, r, keys, numsub, cmp.Or(g.Channel, UnlockChannel(g.Key)), queue, counter)
}

// state reads the answer to an inspection, with a function for each field, whose
// error says that it is none of a lock.
func (r reply) state(key string, read func(s *State, field, value string) error) (State, error) {
	if !r.begins(2) || len(r) < 4 {
		return State{}, fmt.Errorf("lua: unexpected reply to the inspect script: %v", []any(r))
	}
	s := State{Holds: make(map[string]int64), Waiters: r.int(3)}
	s.Token, _ = r.token(2)
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
