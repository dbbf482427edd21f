// Package idempotency answers a repeated HTTP request with the answer to the first one. A client names a
// request by the header Idempotency-Key, and can then safely repeat it when it got no answer. The package
// follows draft-ietf-httpapi-idempotency-key-header.
//
//	guard := idempotency.New(locks, idempotency.Options{Scope: account})
//	mux.Handle("POST /payments", guard.Wrap(pay))
//
// While the first request is in progress, on whichever host, a lock is held and renewed. The answer is
// stored before it is sent. A request with a key that is known gets:
//
//   - the stored answer, with the header Idempotent-Replayed: true,
//   - 409 with Retry-After while the first request is in progress,
//   - 409 if the first request ended without an answer that could be stored: its host has died, the handler
//     has panicked or lost its lock, or the answer is too long. The handler does not run again until
//     [Options].TTL has passed.
//   - 422 if it is another request: another method, path, header or body.
//
// A request without a valid key is 400. If Redis does not answer, it is 503, and the handler is not called.
// The body of all these refusals is application/problem+json.
package idempotency

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/go-rlock/rlock/once"
	"github.com/go-rlock/rlock/rlock"
)

// Options are the settings of a [Guard].
type Options struct {
	// Scope returns whose key it is, for example the account of an authenticated request. Keys of different
	// scopes have nothing to do with each other, so no user gets the answer of another. Scope is called
	// before the handler, and any number of goroutines call it. If it returns "", the request is 403.
	// Scope is required. An API without users returns a constant.
	Scope func(*http.Request) string

	// TTL is how long an answer is stored. It must be longer than any request takes. Default: 24 hours.
	TTL time.Duration

	// MaxBody is the greatest length of a request's body in bytes. The body is read into memory before the
	// handler runs. A longer one is 413. Default: 1 MiB.
	MaxBody int64

	// Headers are the request headers that are part of the fingerprint, besides method, path, query and body.
	// Default: Content-Type.
	Headers []string

	// Optional permits requests without the header Idempotency-Key. They are not protected. By default such a
	// request is 400.
	Optional bool

	// Forget reports whether an answer with this status is not to be stored, so that a repetition runs the
	// handler again. Default: 408, 425, 429, and all from 500 on.
	Forget func(status int) bool
}

// Guard wraps handlers. Its methods are safe for concurrent use.
type Guard struct {
	answers *once.Group
	opts    Options
}

// New returns a guard, and sends nothing. It panics if [Options].Scope is nil, because users would get the
// answers of each other.
func New(locks *rlock.Client, opts Options) *Guard {
	if opts.Scope == nil {
		panic("idempotency: Options.Scope is required")
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
	return &Guard{once.New(locks, once.Options{TTL: opts.TTL, Strict: true}), opts}
}

// Wrap returns a handler that calls h once for each key.
//
// The context of the request that h gets owns the lock. It ends with the request of the client, and when the
// lock is lost. If h returns after that without having written anything, the outcome is unknown, and
// repetitions are 409. Use [context.WithoutCancel] for work that must not stop when the client goes away.
//
// An answer of more than 64 KiB, with its headers, is sent and not stored: a repetition is 409. An answer is
// held back until it is stored, unless it is too long, or h flushes it. Of the headers that h has set, these
// are sent but not stored: Date, Set-Cookie (a later session must not get an earlier one), and those about
// the connection. Trailers, informational answers (1xx) and [http.Hijacker] are not supported.
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
		refuse(w, err)
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
		headers = append(headers, r.Header.Values(name))
	}
	return hash("%q %q %q %s", r.Method, r.URL.RequestURI(), headers, body)
}

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
	known = true
	// An error changes nothing: the work is done, and the client gets the answer. Without a stored one, a
	// repetition is 409.
	if g.opts.Forget(a.status) {
		_ = run.Fail(r.Context())
	} else {
		_ = run.Finish(r.Context(), a.stored())
	}
	a.send()
}

// refuse answers a request that must not be executed.
func refuse(w http.ResponseWriter, err error) {
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
