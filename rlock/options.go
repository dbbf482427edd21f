package rlock

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/go-rlock/rlock/internal/record"
)

// Defaults of [Options].
const (
	DefaultLeaseTime     = 30 * time.Second // Redisson's lockWatchdogTimeout
	DefaultUnlockTimeout = 5 * time.Second
)

const (
	minLeaseTime = 10 * time.Millisecond // shorter ones would be drift and guard for the most part
	maxLeaseTime = 10 * 365 * 24 * time.Hour
	maxNameSize  = 64 << 10
)

// Options are the settings of a [Client]. The zero value of a field means its default, and a nil
// *Options means the defaults of all fields.
type Options struct {
	// Prefix is put before the name of every lock to form its key. In Redisson, a NameMapper can add
	// the same prefix. Default: "".
	Prefix string

	// LeaseTime is the lease: the time after which Redis releases the lock of a holder that has died.
	// While the holder lives, the client renews the lease when a third of it is over. LeaseTime must be
	// from 10 ms to 10 years. A lease of less than a few hundred milliseconds is lost when the machine
	// is busy. Default: [DefaultLeaseTime].
	LeaseTime time.Duration

	// UnlockTimeout is how long an Unlock waits for Redis. After that time, Unlock returns
	// [ErrUnavailable], and the client repeats the release in the background. Default:
	// [DefaultUnlockTimeout].
	UnlockTimeout time.Duration

	// ShardedPubSub selects the kind of channels that notify waiters in a Redis Cluster. All clients
	// that use a lock must have the same setting. Default: [ShardedAuto].
	ShardedPubSub ShardedPubSub

	// Logger receives what no caller gets as an error, such as lost leases and refused subscriptions. A
	// goroutine on which no lock depends calls it, see [Trace]. If its handler panics, that log record
	// is dropped. By default, nothing is logged.
	Logger *slog.Logger

	// Identity describes the process of the client. The client writes it to Redis while it holds a
	// lock, or waits for one, for longer than a moment. Default: host, process id, program and version.
	// With [Anonymous], nothing is written.
	Identity Identity

	// Group returns the group of the lock with that name, for [Stats] and the metrics, which have no names
	// of locks. [NameGroup] is such a function. If Group returns "", the lock has no group. The client
	// counts up to 100 different groups separately, and all further ones as "other". The text is cut
	// after 256 bytes.
	//
	// The constructors of locks, such as [Client.NewLock], call Group once for each lock, with the name as
	// it was passed to them, and wait for it. Several goroutines can call it at the same time. The client
	// holds no mutex during the call. Group must return the same text for a name each time, or else a lock
	// can be acquired in one group and released in another. If Group panics, the lock is in the group
	// "other", and the first panic is logged. Default: no groups.
	Group func(name string) string

	// Trace has functions that the client calls at events such as a lock call or a loss. Default: none.
	Trace Trace
}

func (o *Options) withDefaults() (Options, error) {
	var opts Options
	if o != nil {
		opts = *o
	}
	if opts.LeaseTime == 0 {
		opts.LeaseTime = DefaultLeaseTime
	}
	if opts.UnlockTimeout == 0 {
		opts.UnlockTimeout = DefaultUnlockTimeout
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if err := checkLease(opts.LeaseTime); err != nil {
		return opts, fmt.Errorf("%w: Options.LeaseTime: %w", ErrInvalidOption, err)
	}
	if opts.UnlockTimeout < 0 {
		return opts, fmt.Errorf("%w: Options.UnlockTimeout: %v is negative", ErrInvalidOption, opts.UnlockTimeout)
	}
	return opts, nil
}

// LockOption is a setting for [Client.NewLock] and the constructors of other kinds of lock.
type LockOption func(*lockOptions) error

// lockOptions are what the options of a lock say.
type lockOptions struct {
	terms   terms
	purpose string // shown by inspect and top

	endsDeadlock bool // see WithDeadlockError
}

// terms are what is asked for with a lock. A grant, and a ticket, can be passed on to a lock with
// the same terms.
type terms struct {
	lease     time.Duration
	fixed     bool // the lease is not renewed
	fenced    bool
	shared    bool // several owners may hold the lock at once
	tickets   bool // waiters queue on the server, which tells one that the lock is its own
	fair      bool // each waiter has a ticket, not each client
	polls     bool // waiters are told nothing, and ask again and again, as polling says
	polling   Polling
	handoff   handoff
	replicas  replicas      // must have acknowledged a grant
	retention time.Duration // 0: the last Unlock releases the lock
	limits    limits
}

// limits end a hold whose lease could be renewed for longer. They belong to the terms of a lock, and 0 means no limit.
type limits struct {
	hold     time.Duration // from the moment when a call takes the grant
	progress time.Duration // from that moment, or from the newest progress
}

// WithLeaseTime sets the lease of a lock, which is otherwise the LeaseTime in the [Options] of the
// client. d must be from 10 ms to 10 years. Fractions of a millisecond are ignored. The client renews
// the lease while the lock is held. If a nested lock call has a longer lease, the longer lease stays in
// Redis until it has passed or the lock is released.
func WithLeaseTime(d time.Duration) LockOption {
	return func(o *lockOptions) error { o.terms.lease = d; return nil }
}

// WithoutRenewal makes a lock whose lease is not renewed. The context of the hold ends shortly before
// the lease does. The client sends no renewals, so if a user removes the lock by force, the holder
// notices it only when the context ends, or when it unlocks. If a nested lock call uses a
// lock with renewal, the lease is renewed as long as that nested hold is held. To keep other clients
// out until the lease ends, end the hold with [Hold.Leave] instead of Unlock.
func WithoutRenewal() LockOption {
	return func(o *lockOptions) error { o.terms.fixed = true; return nil }
}

// WithFencing gives each acquisition of the lock a fencing token, a number that is greater than the
// tokens of all earlier acquisitions of the name. See [Hold.Token]. A reader of a read/write lock gets the
// token of the latest writer instead. The tokens come from a counter in a
// second key, which is the counter of Redisson's RFencedLock, so the Redis user needs access to that
// key. All users of a name should use this option. If a nested lock call uses it but the outermost call
// does not, the nested call returns [ErrInvalidOption].
func WithFencing() LockOption {
	return func(o *lockOptions) error { o.terms.fenced = true; return nil }
}

// WithPurpose says what the lock is used for, such as "monthly invoices". The commands `rlock top` and
// `rlock inspect` show the purpose. The client writes it to Redis only for a long hold or wait, see
// [Identity]. If the purpose is longer than 256 bytes, the rest is cut off. A purpose has no other
// effect: locks of one name with different purposes are the same lock.
func WithPurpose(purpose string) LockOption {
	purpose = record.Clean(purpose)
	return func(o *lockOptions) error { o.purpose = purpose; return nil }
}

// Defaults of [WithHandoff].
const (
	DefaultHandoffs    = 1024
	DefaultHandoffTime = 2 * time.Millisecond
)

// maxHandoffs is the most that [WithHandoff] allows.
const maxHandoffs = 1 << 20

// WithHandoff limits hand-offs in memory. While goroutines of the same client wait for a lock, Unlock
// passes the lock to the next of them, without a round trip. After the given number of hand-offs, or
// after the given time, the lock is released in Redis, so that other processes get their turn.
//
// If most or longest is 0, its default applies: [DefaultHandoffs] and [DefaultHandoffTime]. most can be
// up to 1,048,576. The first hand-off is always allowed, even if the holder took longer than longest.
// The time counts from the moment when the request that acquired the lock was sent, or when the message
// that granted it arrived. A lock is passed on only to goroutines whose lock has the same options, and
// only if the lease is renewed.
//
// If the lock has fencing tokens, each hand-off uses a token that was reserved when the lock was
// acquired. No token is reserved if no other goroutine waited at that time. Up to 10,000 tokens are
// reserved by a request, and up to 1,024 if a message granted the lock.
func WithHandoff(most int, longest time.Duration) LockOption {
	return func(o *lockOptions) error {
		o.terms.handoff = handoff{most, longest}
		switch {
		case most < 0 || longest < 0:
			return fmt.Errorf("WithHandoff: %d within %v: neither may be negative", most, longest)
		case most > maxHandoffs:
			return fmt.Errorf("WithHandoff: %d is too many: at most %d", most, maxHandoffs)
		}
		return nil
	}
}

// WithoutHandoff disables hand-offs in memory: each last Unlock releases the lock in Redis. See
// [WithHandoff].
func WithoutHandoff() LockOption {
	return func(o *lockOptions) error { o.terms.handoff = handoff{most: -1}; return nil }
}

// handoff is the budget of a lock for hand-offs in a row.
type handoff struct {
	most    int // negative: none
	longest time.Duration
}

func (h handoff) withDefaults(fixed bool) handoff {
	if h.most < 0 || fixed {
		return handoff{}
	}
	return handoff{cmp.Or(h.most, DefaultHandoffs), cmp.Or(h.longest, DefaultHandoffTime)}
}

func checkLease(d time.Duration) error {
	switch {
	case d < minLeaseTime:
		return fmt.Errorf("a lease of %v is too short: at least %v", d, minLeaseTime)
	case d > maxLeaseTime:
		return fmt.Errorf("a lease of %v is too long: at most %v", d, maxLeaseTime)
	}
	return nil
}

// checkName refuses names that cannot work on every topology. In a cluster the
// slot of a key is that of its hash tag: what is between the first '{' and
// the next '}', if there is anything. Redisson's rule puts a name that contains no
// '{' between braces to name its channel, and takes any other as it is, so some
// names end up in another slot than their channel.
func checkName(prefix, name string) error {
	key := prefix + name
	_, tag, braced := strings.Cut(key, "{")
	var wrong string
	switch {
	case name == "":
		return errors.New("the name is empty")
	case len(key) > maxNameSize:
		return fmt.Errorf("the name has %d bytes: at most %d", len(key), maxNameSize)
	case !braced && strings.Contains(key, "}"):
		wrong = "a '}' without a '{'"
	case braced && strings.Index(tag, "}") <= 0:
		wrong = "an unclosed or empty hash tag"
	default:
		return nil
	}
	if prefix == "" {
		return fmt.Errorf("the name has %s and would not share a cluster slot with its channel: rename it", wrong)
	}
	return fmt.Errorf("the prefix %q and the name have %s and would not share a cluster slot with the channel: change one of them", prefix, wrong)
}
