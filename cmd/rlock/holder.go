package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rs/xid"

	"github.com/go-rlock/rlock/rlock"
)

// holder is who holds a lock, as far as it is known.
type holder struct {
	owner   string
	host    hostView // what its client tells; zero: nothing
	purpose string
	since   time.Time // zero: not known
	ttl     time.Duration

	final bool // to ask once more would tell no more
}

// holder asks what the client of an owner tells of the lock that it holds. Nobody waits for long
// for the answer, which helps to understand and no more.
func (s *server) holder(ctx context.Context, name, owner string) holder {
	told := make(chan holder, 1)
	go func() { told <- s.askHolder(ctx, name, owner) }()
	select {
	case h := <-told:
		return h
	case <-time.After(patientLook):
	case <-ctx.Done():
	}
	return holder{owner: owner}
}

// patientLook is how long to wait for what a holder tells. Tests wait longer.
var patientLook = time.Second

func (s *server) askHolder(ctx context.Context, name, owner string) holder {
	id, h := clientOf(owner), holder{owner: owner}
	records, err := s.recordsOf(ctx, id)
	if err != nil { // who may not read that gets the owner
		h.final = ctx.Err() == nil
		return h
	}
	if h.host = records.host(id); h.host.String() == "" {
		h.host = hostView{}
	}
	if told, ok := records.holds()[holdKey{strings.TrimSuffix(owner, ":write"), name}]; ok {
		h.purpose, h.since, h.final = told.Purpose, time.Now().Add(-told.Age(told.Entry, told.rest)), true
	}
	return h
}

// describe puts into words who holds a lock. What is left of a lease, which a client that lives
// renews, is told of those that tell nothing.
func (h *holder) describe(now time.Time) string {
	who := printable(h.owner)
	text, known := "held by "+who, h.host.String()
	if known != "" {
		text = "held by " + known
	}
	if h.purpose != "" {
		text += fmt.Sprintf(" for %q", h.purpose)
	}
	if !h.since.IsZero() {
		format := time.TimeOnly
		if h.since.Local().Format(time.DateOnly) != now.Local().Format(time.DateOnly) {
			format = time.DateTime
		}
		text += ", since " + h.since.Local().Format(format)
	}
	switch {
	case h.ttl < 0:
		text += ", without a TTL: it does not end by itself, see rlock unlock"
	case h.ttl > 0 && known == "":
		text += fmt.Sprintf(", with %s of the lease left", brief(h.ttl))
	}
	if known != "" {
		text += " (" + who + ")"
	}
	return text
}

// stillOf returns the owner of a state: the same one, as long as it is one of the readers.
func (h *holder) stillOf(state rlock.State) string {
	if _, ok := state.Holds[h.owner]; ok || len(state.Holds) == 0 {
		return h.owner
	}
	return slices.Min(slices.Collect(maps.Keys(state.Holds)))
}

// seen puts a state of the lock into words.
func (h *holder) seen(state rlock.State, err error, now time.Time) string {
	switch {
	case err != nil:
		return "Redis does not answer"
	case len(state.Holds) == 0:
		return "just released"
	}
	h.ttl = state.TTL
	at, ok := granted(h.owner, state.Token, now)
	if ok && h.since.IsZero() && state.Shared[h.owner] == 0 { // a reader has the token of a writer
		h.since = at
	}
	return h.describe(now)
}

// granted returns when the newest fencing token was given out: it is the
// server's clock in microseconds, unless Redisson counts. It says nothing of an
// owner that is not one of ours, nor of a grant before its client was made.
func granted(owner string, token int64, now time.Time) (time.Time, bool) {
	client, _, _ := strings.Cut(owner, ":")
	id, err := xid.FromString(client)
	at := time.UnixMicro(token)
	return at, err == nil && !at.After(now) && !at.Before(id.Time())
}
