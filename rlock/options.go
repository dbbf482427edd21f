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

// Options are the settings of a [Client]. The zero value of each field, and a
// nil *Options, means its default.
type Options struct {
	// Prefix is put before every name. Redisson's counterpart is a NameMapper.
	// Default: none.
	Prefix string

	// LeaseTime is how long a lock outlives a holder that is gone. While the holder
	// lives, the lease is renewed when a third of it is over. From 10 ms to 10 years;
	// one of less than a few hundred milliseconds is lost when the machine is busy.
	// Default: [DefaultLeaseTime].
	LeaseTime time.Duration

	// UnlockTimeout is how long an Unlock waits for Redis. Then it returns and
	// goes on in the background. Default: [DefaultUnlockTimeout].
	UnlockTimeout time.Duration

	// ShardedPubSub chooses the channels in a cluster. All clients of a lock have to
	// agree on it. Default: [ShardedAuto].
	ShardedPubSub ShardedPubSub

	// Logger is told of what no caller gets as an error: lost leases, refused
	// subscriptions and messages. It is called by a goroutine on which no lock
	// depends; see [Trace]. A record at which its handler panics is lost. Default: silent.
	Logger *slog.Logger

	// Identity is what the client tells of itself on the server, while it holds a lock
	// or waits for one for longer than a moment. Default: host, process, program and
	// version. [Anonymous] tells nothing.
	Identity Identity

	// Trace has functions that are called when something happens. Default: none.
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

// LockOption is a setting of a [Lock].
type LockOption func(*lockOptions) error

// lockOptions are what the options of a lock say.
type lockOptions struct {
	terms   terms
	purpose string // shown by inspect and top
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
}

// WithLeaseTime sets the lease time of a lock, in place of the client's. It is
// renewed while the lock is held. From 10 ms to 10 years; whole milliseconds
// count. A longer lease that a nested hold asked for stays on the server until
// it has passed, or the lock is released.
func WithLeaseTime(d time.Duration) LockOption {
	return func(o *lockOptions) error { o.terms.lease = d; return nil }
}

// WithoutRenewal makes the lease a fixed one: it is not renewed, and the held
// context ends with the trusted window. As nothing is sent meanwhile, a lock that
// somebody removes by force is noticed only then, or by Unlock. A nested hold that is
// renewed renews the whole grant as long as it lives. To keep others out until the lease ends, end the hold
// by [Hold.Leave] instead of Unlock.
func WithoutRenewal() LockOption {
	return func(o *lockOptions) error { o.terms.fixed = true; return nil }
}

// WithFencing makes every grant carry a token that is greater than those of all
// earlier grants of the name: see [Hold.Token]. It keeps a counter beside the
// lock, the one of Redisson's RFencedLock, and so needs access to a second key.
// All users of a name should agree on it. A nested lock with it is [ErrInvalidOption] if
// the outermost was taken without.
func WithFencing() LockOption {
	return func(o *lockOptions) error { o.terms.fenced = true; return nil }
}

// WithPurpose says what the lock is taken for, such as "monthly invoices": `rlock top` and
// `inspect` show it to those who wait. It does not go to the server before the hold or the
// wait is told there; see [Identity]. More than 256 bytes are cut off. It changes nothing
// else: locks of a name with different purposes are the same lock.
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

// WithHandoff bounds how often, and for how long, the goroutines of a client pass
// a renewed lock on among themselves, in memory and without a round trip, before
// it is released on the server and other processes get their turn. One hand-off
// is always allowed, however long the holder took; zero of either bound means
// its default, and at most 1,048,576 are allowed. The time counts from when the request
// was sent that acquired the lock, or from its message. A hand-off of a fenced lock uses a
// token that was reserved with the grant: none if no other goroutine waited by then, at
// most 10,000, or 1,024 if a message has granted it. Goroutines whose lock has other
// options than the holder's are not given its grant.
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

// WithoutHandoff has every last Unlock release the lock on the server.
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
// slot of a key is that of its hash tag: what stands between the first '{' and
// the next '}', if anything does. Redisson's rule puts a name that contains no
// '{' between braces to name its channel, and takes any other as it is, so some
// names end up in another slot than their channel.
func checkName(prefix, name string) error {
	key := prefix + name
	switch {
	case name == "":
		return errors.New("the name is empty")
	case len(key) > maxNameSize:
		return fmt.Errorf("the name has %d bytes: at most %d", len(key), maxNameSize)
	}
	wrong := ""
	if _, tag, braced := strings.Cut(key, "{"); !braced && strings.Contains(key, "}") {
		wrong = "a '}' without a '{'"
	} else if braced && strings.Index(tag, "}") <= 0 {
		wrong = "an unclosed or empty hash tag"
	}
	switch {
	case wrong == "":
		return nil
	case prefix == "":
		return fmt.Errorf("the name has %s and would not share a cluster slot with its channel: rename it", wrong)
	}
	return fmt.Errorf("the prefix %q and the name have %s and would not share a cluster slot with the channel: change one of them", prefix, wrong)
}
