package interop

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// remoteParty is a client in a peer: Redisson, or this library in another process.
type remoteParty struct {
	side, client string
	process      *process
}

func newRemoteParty(tb testing.TB, side string, p *process, topology, addr string, lease time.Duration) *remoteParty {
	tb.Helper()
	r := &remoteParty{side, p.newActor(), p}
	require.NoError(tb, p.call(r.client, "open", r.client, topology, addr, lease.Milliseconds()).err)
	tb.Cleanup(func() {
		if err := p.call(r.client, "close", r.client).err; err != errGone {
			require.NoError(tb, err)
		}
	})
	return r
}

func (p *remoteParty) String() string { return p.side }

func (p *remoteParty) actor(kind, name string) actor {
	return &remoteActor{p, p.process.newActor(), kind, name}
}

func (p *remoteParty) ask(command, kind, name string) answer {
	return p.process.call(p.client, command, p.client, kind, name)
}

func (p *remoteParty) look(kind, name string) (map[string]int64, time.Duration, error) {
	fields, left := p.ask("holds", kind, name), p.ask("ttl", kind, name)
	holds := make(map[string]int64)
	errs := []error{fields.err, left.err}
	for field := range strings.FieldsSeq(fields.value) {
		owner, count, _ := strings.Cut(field, "=")
		if owner == "mode" {
			continue
		}
		n, err := strconv.ParseInt(count, 10, 64)
		holds[strings.TrimSuffix(owner, ":write")] += n
		errs = append(errs, err)
	}
	ms, err := strconv.ParseInt(left.value, 10, 64)
	return holds, time.Duration(ms) * time.Millisecond, errors.Join(append(errs, err)...)
}

func (p *remoteParty) forceUnlock(kind, name string) (bool, error) {
	a := p.ask("forceUnlock", kind, name)
	return a.value == "true", a.err
}

type remoteActor struct {
	party          *remoteParty
	id, kind, name string
}

func (a *remoteActor) as(kind string) actor { return &remoteActor{a.party, a.id, kind, a.name} }

func (a *remoteActor) call(command string, args ...any) answer {
	return a.party.process.call(a.id, command, append([]any{a.party.client, a.kind, a.name}, args...)...)
}

func (a *remoteActor) lock(lease time.Duration) acquired {
	got := a.call("lock", lease.Milliseconds())
	token, err := strconv.ParseInt(got.value, 10, 64)
	if got.err != nil {
		err = got.err
	}
	return acquired{got.span, token, err}
}

func (a *remoteActor) tryLock() (bool, error) {
	got := a.call("tryLock", 0)
	return got.value == "true", got.err
}

func (a *remoteActor) unlock() (span, error) {
	got := a.call("unlock")
	return got.span, got.err
}

func (a *remoteActor) holdCount() (int, error) {
	got := a.call("holdCount")
	n, err := strconv.Atoi(got.value)
	return n, errors.Join(err, got.err)
}

// asleep reports whether a thread in Java waits for a message, so that it will not miss one.
func (a *remoteActor) asleep() (bool, error) {
	got := a.party.process.call(a.party.client, "asleep", a.id)
	return got.value == "true", got.err
}

func (a *remoteActor) work(most int, d time.Duration, checked bool) (shift, error) {
	mode := "empty"
	if checked {
		mode = "checked"
	}
	return a.shift(most, d, mode)
}

// hold is work in sections of so long.
func (a *remoteActor) hold(d, section time.Duration) (shift, error) {
	return a.shift(1e6, d, strconv.FormatInt(section.Microseconds(), 10))
}

func (a *remoteActor) shift(most int, d time.Duration, mode string) (shift, error) {
	got := a.call("work", most, d.Milliseconds(), mode)
	if got.err != nil {
		return shift{}, got.err
	}
	return parseShift(got.value)
}
