// Package idempotency answers a repeated HTTP request with the stored response of the first one. A client sends
// a key of its choice in the header Idempotency-Key. If the client receives no response, it can then safely
// repeat the request with the same key. The package follows draft-ietf-httpapi-idempotency-key-header.
//
//	guard := idempotency.New(locks, idempotency.Options{Scope: account})
//	mux.Handle("POST /payments", guard.Wrap(pay))
//
// While the first request is in progress on some host, that host holds a lock and renews it. The response is
// stored in Redis before it is sent to the client. When another request arrives with the same key, the guard
// responds in one of these ways:
//
//   - It sends the stored response, with the additional header Idempotent-Replayed: true.
//   - It responds with status 409 and a Retry-After header, if the first request is still in progress.
//   - It responds with 409 if the first request ended without a response that could be stored. There is no such
//     response if the host died, if the handler panicked or lost its lock, or if the response was too long. The
//     handler does not run again for this key until the TTL in [Options] has passed.
//   - It responds with 422 if the key was first used for a different request. Requests differ if their method,
//     path, query, body or one of the headers in [Options] differs.
//
// A request without a valid key gets status 400. If Redis does not answer, the request gets status 503, and the
// handler is not called. The body of all these error responses has the type application/problem+json. The cause of
// a 503, and of a response that could not be stored, is reported to the Logger of the lock client.
package idempotency

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/go-rlock/rlock/internal/reach"
	"github.com/go-rlock/rlock/once"
	"github.com/go-rlock/rlock/rlock"
)

// Options are the settings of a [Guard].
type Options struct {
	// Scope returns the owner of the idempotency key of a request, for example the account of an authenticated
	// request. The same key in two scopes is two different keys, so no user gets the response of another. Scope
	// is called before the handler, and several goroutines can call it at the same time. If Scope returns "",
	// the request gets status 403. Scope is required. If your API has no users, return a constant.
	Scope func(*http.Request) string

	// TTL is how long Redis stores a response. It must be longer than the longest request, and at least 1 ms.
	// The default, for 0, is 24 hours.
	TTL time.Duration

	// MaxBody is the maximum length of a request body in bytes. The guard reads the body into memory before the
	// handler runs. A request with a longer body gets status 413. It must not be negative. The default, for 0,
	// is 1 MiB.
	MaxBody int64

	// Headers are the request headers that must be equal when a request is repeated with its key. Host is the
	// host of the request. Method, path, query and body must always be equal. Path and query are those that the
	// client has sent, even if a handler such as [http.StripPrefix] has changed them. The default, for nil, is
	// Content-Type.
	Headers []string

	// Optional permits requests without the header Idempotency-Key. For such requests, the handler runs each
	// time. By default, a request without the header gets status 400.
	Optional bool

	// Forget reports whether a response with this status must not be stored, so that a repeated request runs
	// the handler again. By default, responses with the statuses 408, 425 and 429, and with 500 and above, are
	// not stored. If Forget panics, repeated requests get status 409.
	Forget func(status int) bool
}

// Guard wraps HTTP handlers. Its methods are safe for concurrent use.
type Guard struct {
	answers *once.Group
	opts    Options
	log     *slog.Logger

	mu     sync.Mutex           // guards logged
	logged map[string]time.Time // when, by message and kind of the error
}

// New returns a guard. It sends nothing to Redis. It panics if an option is invalid, or if Scope in [Options] is
// nil, because without a scope one user could get the response of another.
func New(locks *rlock.Client, opts Options) *Guard {
	switch {
	case opts.Scope == nil:
		panic("idempotency: Options.Scope is required")
	case opts.TTL != 0 && opts.TTL < time.Millisecond:
		panic("idempotency: Options.TTL must be at least 1ms")
	case opts.MaxBody < 0:
		panic("idempotency: Options.MaxBody must not be negative")
	}
	if opts.TTL == 0 {
		opts.TTL = 24 * time.Hour
	}
	if opts.MaxBody == 0 {
		opts.MaxBody = 1 << 20
	}
	if opts.Headers == nil {
		opts.Headers = []string{"Content-Type"}
	}
	if opts.Forget == nil {
		opts.Forget = func(status int) bool {
			switch status {
			case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
				return true
			}
			return status >= 500
		}
	}
	g := &Guard{opts: opts, log: slog.New(slog.DiscardHandler), logged: make(map[string]time.Time)}
	g.answers = once.New(locks, once.Options{TTL: opts.TTL, Strict: true})
	if lock, err := reach.Of(locks.NewLock("idempotency")); err == nil { // any lock of the client has its logger
		g.log = lock.Log
	}
	return g
}

// Wrap returns a handler that calls h once for each key.
//
// The context of the request that h receives owns the lock. This context is canceled when the lock is lost, and
// when the client closes the connection. If the context is canceled and h returns without having written
// anything, it is not known whether h had an effect, so repeated requests get status 409. Use
// [context.WithoutCancel] for work that must not stop when the client disconnects.
//
// The guard keeps the response in memory until it is stored, and then sends it. If it is not stored after 5 s,
// because Redis does not answer, the guard sends it, and goes on trying to store it for the time of the lease. If
// that fails, repeated requests get status 409. However, a response that h flushes is sent at once. If the headers
// and the body together have more than 64 KiB, the response is sent, but it is not stored, so repeated requests
// get status 409.
//
// Some headers that h sets are sent to the client but not stored: Date, headers about the connection, and
// Set-Cookie, because a repeated request may belong to a later session. Trailers, informational responses (1xx)
// and [http.Hijacker] are not supported.
func (g *Guard) Wrap(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(h, w, r) })
}

func (g *Guard) serve(h http.Handler, w http.ResponseWriter, r *http.Request) {
	key, err := readKey(r.Header.Values("Idempotency-Key"))
	switch {
	case errors.Is(err, errMissing) && g.opts.Optional:
		h.ServeHTTP(w, r)
		return
	case err != nil:
		problem(w, http.StatusBadRequest, err.Error(), "Send one Idempotency-Key: a string of 1 to 255 characters in double quotes, which is new for each new request.")
		return
	}
	scope := g.opts.Scope(r)
	if scope == "" {
		problem(w, http.StatusForbidden, "Idempotency-Key without an account", "It is not known to whom the key belongs.")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, g.opts.MaxBody))
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		problem(w, http.StatusRequestEntityTooLarge, "The request is too long", fmt.Sprintf("A request with an Idempotency-Key has at most %d bytes.", g.opts.MaxBody))
		return
	} else if err != nil {
		problem(w, http.StatusBadRequest, "The request could not be read", "It ended before its length was reached.")
		return
	}
	// A hash, because a name has no length then that a client could choose.
	name := "idempotency:" + hash("%q %q", scope, key)
	run, stored, err := g.answers.Begin(r.Context(), name, g.fingerprint(r, body))
	switch {
	case err != nil:
		g.refuse(w, err)
	case run == nil:
		replay(w, stored)
	default:
		r = r.WithContext(run.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
		g.first(h, w, r, run)
	}
}

func hash(format string, args ...any) string {
	sum := sha256.Sum256(fmt.Appendf(nil, format, args...))
	return hex.EncodeToString(sum[:])
}

func (g *Guard) fingerprint(r *http.Request, body []byte) string {
	var headers [][]string
	for _, name := range g.opts.Headers {
		values := r.Header.Values(name)
		if http.CanonicalHeaderKey(name) == "Host" {
			values = []string{r.Host} // net/http has removed the header
		}
		headers = append(headers, values)
	}
	target := r.RequestURI // as received, before a handler such as http.StripPrefix
	if target == "" {
		target = r.URL.RequestURI()
	}
	return hash("%q %q %q %s", r.Method, target, headers, body)
}

// holdBack is how long an answer waits until it is stored.
const holdBack = 5 * time.Second

// first runs the handler. Whatever ends it without an answer leaves the outcome unknown.
func (g *Guard) first(h http.Handler, w http.ResponseWriter, r *http.Request, run *once.Run) {
	a := &answer{w: w, outer: w.Header().Clone(), header: w.Header().Clone()}
	known := false
	defer func() {
		if !known {
			_ = run.Abandon(r.Context())
		}
	}()
	h.ServeHTTP(a, r)
	switch {
	case a.status == 0 && r.Context().Err() != nil:
		problem(w, http.StatusServiceUnavailable, "The request was interrupted", "It is not known whether it was executed.")
		return
	case a.status == 0:
		a.WriteHeader(http.StatusOK)
	}
	end := run.Fail
	if !g.opts.Forget(a.status) {
		stored := a.stored()
		end = func(ctx context.Context) error { return run.Finish(ctx, stored) }
	}
	known = true
	// An error changes nothing for this client: the work is done, and the client gets the answer. Without a stored
	// one, a repetition is 409. The end has a bound of its own, which is too long for a client.
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := end(r.Context()); err != nil {
			g.report("rlock: the answer to a request with an Idempotency-Key was not stored: a repetition can get 409", err)
		}
	}()
	timer := time.NewTimer(holdBack)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
	a.send()
}

// report logs an error whose cause no HTTP client gets. While Redis does not answer, each request has one, so
// each kind of error is logged once a minute. A client that leaves is no reason to be silent, because clients also
// leave when Redis does not answer for longer than they wait.
func (g *Guard) report(message string, err error) {
	kind := message
	for _, known := range []error{
		rlock.ErrRefused, rlock.ErrUnavailable, rlock.ErrKeyConflict, rlock.ErrInvalidOption, rlock.ErrClosed, rlock.ErrLeaseLost,
	} {
		if errors.Is(err, known) {
			kind += known.Error()
			break
		}
	}
	g.mu.Lock()
	now := time.Now()
	last, before := g.logged[kind]
	due := !before || now.Sub(last) >= time.Minute
	if due {
		g.logged[kind] = now
	}
	g.mu.Unlock()
	if due {
		g.log.Warn(message, "error", err)
	}
}

// refuse answers a request that must not be executed.
func (g *Guard) refuse(w http.ResponseWriter, err error) {
	_, busy := errors.AsType[*once.InFlightError](err)
	switch {
	case busy:
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusConflict, "A request is outstanding for this Idempotency-Key", "Repeat the request later.")
	case errors.Is(err, once.ErrMismatch):
		problem(w, http.StatusUnprocessableEntity, "Idempotency-Key is already used", "Use a new key for another request.")
	case errors.Is(err, once.ErrUnknown):
		problem(w, http.StatusConflict, "A request with this Idempotency-Key has ended without an answer", "It is not known whether it was executed. Look at its effect before you send another request with a new key.")
	default: // without protection nothing is executed
		g.report("rlock: a request with an Idempotency-Key was refused", err)
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusServiceUnavailable, "The request was not executed", "It cannot be ensured now that it is executed only once.")
	}
}

// problem answers by RFC 9457.
func problem(w http.ResponseWriter, status int, title, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"title": title, "status": status, "detail": detail})
}

var (
	errMissing   = errors.New("Idempotency-Key is missing")
	errMalformed = errors.New("Idempotency-Key is malformed")

	// item is an Item of RFC 9651 that is a String, with parameters, which mean nothing here.
	item = regexp.MustCompile(`^ *"((?:[ !#-\[\]-~]|\\["\\])+)"(?:; *[a-z*][a-z0-9_.*-]*(?:=(?:"(?:[ !#-\[\]-~]|\\["\\])*"|[A-Za-z0-9*:?/+=.!#$%&'^_|~@-]+))?)* *$`)
	// bare is a key without quotes. The draft does not have it, but many clients send a bare UUID.
	bare = regexp.MustCompile(`^ *([A-Za-z0-9_./+=~-]+) *$`)
	// escape is a character behind a backslash.
	escape = strings.NewReplacer(`\"`, `"`, `\\`, `\`)
)

// readKey reads the field lines of the header. The key is the same with and without quotes.
func readKey(lines []string) (string, error) {
	if len(lines) == 0 {
		return "", errMissing
	}
	found := item.FindStringSubmatch(lines[0])
	if found == nil {
		found = bare.FindStringSubmatch(lines[0])
	}
	if found == nil || len(lines) > 1 {
		return "", errMalformed
	}
	key := escape.Replace(found[1])
	if len(key) > 255 {
		return "", errMalformed
	}
	return key, nil
}
