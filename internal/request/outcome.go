package request

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Outcome is the fate of a request, as far as known.
type Outcome int

// Outcomes.
const (
	Answered    Outcome = iota // the request was executed, and there is an answer
	NotExecuted                // the request was not executed and will not be
	Unknown                    // the request may have been executed, or may still be
)

// Outcomes without an error of go-redis.
var (
	// ErrNotSent: the request was not sent, and the caller has left.
	ErrNotSent = errors.New("not sent")
	// ErrCrowded: the request was not sent within its bound.
	ErrCrowded = errors.New("not sent in time: no connection was free")
	// ErrAbandoned: the request was, or may have been, sent when the caller left.
	ErrAbandoned = errors.New("abandoned")
	// ErrNoAnswer: the request was, or may have been, sent, and there was no answer in time.
	ErrNoAnswer = errors.New("no answer in time")
	// ErrUnread: the answer came after the caller had left, and was not read.
	ErrUnread = errors.New("the answer was not read")

	// ErrDeadConnection: there was no answer, but there was one by another connection meanwhile. The
	// request can be made again at once.
	ErrDeadConnection = errors.New("no answer by this connection, but by another")

	// ErrReplaced: the request was not executed, as another server has taken over.
	ErrReplaced = errors.New("not executed: another server has taken over")
)

// unsentError is the error of an unsent request: a connection could not be made, or not be set up.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

// Unsent reports whether err says that a request was not sent for want of a connection.
func Unsent(err error) bool {
	_, unsent := errors.AsType[*unsentError](err)
	return unsent || errors.Is(err, ErrCrowded)
}

// Classify reads the error of a request. final means: repeating the request would not help. An
// unrecognised error counts as unknown, and so does the end of a context, as go-redis does not tell
// whether the command had been sent by then.
func Classify(err error) (o Outcome, final bool) {
	var netErr *net.OpError
	var untrusted *tls.CertificateVerificationError
	var reply redis.Error
	if unsent, ok := errors.AsType[*unsentError](err); ok {
		_, final = Classify(unsent.error)
		return NotExecuted, final || NotRedis(unsent)
	}
	switch {
	case err == nil:
		return Answered, true
	case errors.Is(err, redis.ErrClosed), errors.Is(err, ErrNotSent), errors.As(err, &untrusted):
		return NotExecuted, true
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, ErrCrowded), errors.Is(err, ErrReplaced):
		return NotExecuted, false
	case errors.As(err, &netErr) && netErr.Op == "dial":
		return NotExecuted, NoAddress(netErr)
	case !errors.As(err, &reply):
		return Unknown, false
	case HasCode(reply, "LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS",
		"BUSY", "MISCONF", "NOSCRIPT", "MOVED", "ASK", "ERR max number of clients reached"):
		return NotExecuted, false
	case HasCode(reply, "NOAUTH", "WRONGPASS", "OOM", "CROSSSLOT", "ERR unknown command"):
		return NotExecuted, true
	default:
		return Unknown, true // NOPERM, say, which may strike in the middle of a script
	}
}

// NoAddress reports whether a connection could not be made because the address is malformed, or names an
// unknown port or network. A host name that is not found is no such error: it may be known a moment later.
func NoAddress(err error) bool {
	var malformed *net.AddrError
	var network net.UnknownNetworkError
	var lookup *net.DNSError
	return errors.As(err, &malformed) || errors.As(err, &network) || errors.As(err, &lookup) && lookup.Err == "unknown port"
}

// NotRedis reports whether a reply is not of the protocol of Redis. If a connection could not be set up for
// that reason, another service has the address; otherwise this connection alone may be out of step.
func NotRedis(err error) bool {
	text := err.Error()
	return strings.Contains(text, "redis: can't parse ") || strings.Contains(text, "redis: invalid reply: ")
}

// HasCode reports whether a reply is an error with one of the codes. Redis before 7 wraps the error of
// a script, `ERR Error running script …: -OOM …`, and an error caught and passed on by a script,
// `@user_script: 12: -READONLY …`.
func HasCode(reply redis.Error, codes ...string) bool {
	text := reply.Error()
	for _, code := range codes {
		if text == code || strings.HasPrefix(text, code+" ") || // BUSYGROUP is not BUSY
			strings.HasPrefix(text, "ERR Error running script") && strings.Contains(text, ": -"+code+" ") ||
			strings.HasPrefix(text, "@user_script: ") && strings.Contains(text, ": -"+code+" ") {
			return true
		}
	}
	return false
}

// LacksRights reports whether a server has refused a command, alone or in a script, for want of the
// user's right.
func LacksRights(err error) bool {
	reply, ok := errors.AsType[redis.Error](err)
	if !ok {
		return false
	}
	return HasCode(reply, "NOPERM") || // of a script, each version has words of its own
		strings.Contains(reply.Error(), "The user executing the script can't") || // until 7.0
		strings.Contains(reply.Error(), "ACL failure in script") // from 7.2 on
}
