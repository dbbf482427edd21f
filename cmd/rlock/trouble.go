package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"

	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/rlock"
)

// trouble is a hook of go-redis that remembers the last refusal of a server, or
// why it was not reached: what is repeated gives no error for a while.
type trouble struct{ last atomic.Pointer[error] }

// answered looks at a script. What else is sent, as when a connection begins, may
// be refused without harm, and so may a script that the server does not know yet.
func (t *trouble) answered(cmd redis.Cmder, err error) {
	var reply redis.Error
	if strings.HasPrefix(cmd.Name(), "eval") && (hungUp(err) || errors.As(err, &reply) &&
		!errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "NOSCRIPT")) {
		t.last.Store(&err)
	}
}

// seen returns nil if there was no trouble.
func (t *trouble) seen() error {
	if last := t.last.Load(); last != nil {
		return *last
	}
	return nil
}

func (t *trouble) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			t.last.Store(&err)
		}
		return conn, err
	}
}

func (t *trouble) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		t.answered(cmd, err) // the command has its error later
		return err
	}
}

func (t *trouble) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			t.answered(cmd, cmd.Err())
		}
		return err
	}
}

// missing says why there is no lock yet, and what to do about it; seen is the trouble that
// there was, if any.
func (s *server) missing(seen error) string {
	var hint string
	switch {
	case redis.HasErrorPrefix(seen, "MOVED"), redis.HasErrorPrefix(seen, "ASK"):
		hint = " (a node of a cluster: connect with --cluster)"
	case redis.HasErrorPrefix(seen, "READONLY"):
		hint = " (a replica: connect to the master)"
	default:
		hint = tlsHint(s.secure, seen)
	}
	if seen == nil {
		return fmt.Sprintf("no answer from %s yet%s", s.name, hint)
	}
	return fmt.Sprintf("no lock from %s yet: %s%s", s.name, seen, hint)
}

// rightsHint is what to add to the refusal of a server whose user has too few rights, unless
// the library has said it.
func rightsHint(err error) string {
	if request.LacksRights(err) && !strings.Contains(err.Error(), "docs/acl.md") {
		return " (what each command and each kind of lock needs: docs/acl.md)"
	}
	return ""
}

// accessHint is what to add if the server knows somebody else, or is another kind of server.
func accessHint(err error) string {
	var untrusted x509.UnknownAuthorityError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &untrusted):
		return " (trust who has signed its certificate with --cacert FILE)"
	case strings.Contains(err.Error(), "cluster support disabled"):
		return " (it is no node of a cluster: connect without --cluster)"
	case strings.Contains(err.Error(), `"HTTP/`):
		return " (this is no Redis: it answers HTTP)"
	case redis.HasErrorPrefix(err, "CLUSTERDOWN"):
		return " (see rlock --cluster doctor)"
	case (redis.HasErrorPrefix(err, "NOAUTH") || redis.HasErrorPrefix(err, "WRONGPASS")) && !strings.Contains(err.Error(), "(check user name"):
		return " (check user name and password)"
	}
	return ""
}

// masterHint is what to add if a Sentinel has answered that it knows no such master, of which
// go-redis says no more than that all are unreachable.
func masterHint(err error) string {
	if errors.Is(err, redis.Nil) && strings.Contains(err.Error(), "sentinels") {
		return " (no Sentinel that answers knows the master: see --master)"
	}
	return ""
}

// schemeHint is what to add to the error with which the command ends, if it looks as if one
// side spoke TLS and the other did not.
func schemeHint(app *cli.Command, err error) string {
	var reply redis.Error
	var failed *net.OpError
	if !errors.Is(err, rlock.ErrUnavailable) || errors.As(err, &reply) || errors.As(err, &failed) && failed.Op == "dial" {
		return ""
	}
	url, _ := serverURL(app)
	return tlsHint(secure(url), err)
}

// tlsHint tells by how a server failed: one with TLS hangs up, one without waits for more.
func tlsHint(secure bool, err error) string {
	switch {
	case !secure && hungUp(err):
		return " (if it expects TLS, the URL begins with rediss://)"
	case secure && (err == nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, request.ErrCrowded) || strings.Contains(err.Error(), "no answer")):
		return " (if it is without TLS, the URL begins with redis://)"
	}
	return ""
}

// secure reports whether a URL asks for TLS.
func secure(url string) bool { return strings.HasPrefix(url, "rediss:") }

func hungUp(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) }
