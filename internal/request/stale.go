package request

import (
	"errors"
	"io"
	"net"
	"slices"

	"github.com/redis/go-redis/v9"
)

// Stale counts the attempts of one request still allowed to fail on stale connections. The zero value
// is ready for the first attempt.
//
// A server, proxy or load balancer closes long idle connections, and a restart closes all. go-redis
// looks at the descriptor of a connection before reuse, but cannot look with TLS, with the wrapped
// connection of a dialer, or on Windows. The first request on a closed connection fails, go-redis drops
// the connection, and nothing is known of the server:
//
//	lease 1 s, 10 idle connections, all closed
//	333 ms  renewal: EOF, pause 50 ms   ─┐ with pauses as for a server in trouble,
//	383 ms  renewal: EOF, pause 100 ms   │ the lease ends before the tenth attempt
//	…                                   ─┘
//	333 ms  renewal: EOF, EOF, … EOF, and renewed on a new connection 1 ms later
//
// So such an attempt is repeated at once, as often as there are idle connections, and once more on a
// new connection. An error on the new connection tells of the server. The same holds for READONLY:
// after a failover by name, each idle connection may lead to the former master.
//
// go-redis may find out before it sends anything: on a connection that was idle for 5 s it looks for
// messages first. Then the connection is stale all the same.
type Stale struct {
	counted bool
	left    int
}

// Again reports whether the request must be made again at once, after an attempt failed with err. Again
// sends nothing.
func (s *Stale) Again(rdb redis.UniversalClient, err error) bool {
	switch {
	case rdb == nil: // several clients have made the attempt
		return false
	case err == ErrDeadConnection: // a copy has found a sound one
		return true
	case !stale(err):
		return false
	}
	if !s.counted {
		pool := rdb.PoolStats()
		s.counted, s.left = true, int(pool.IdleConns)+1
		if pool.PipelineStats != nil {
			s.left += int(pool.PipelineStats.IdleConns)
		}
	}
	s.left--
	return s.left >= 0
}

// stale reports whether err may come from a stale connection. go-redis returns an error with two
// wrapped errors if it finds out before sending.
func stale(err error) bool {
	switch e := err.(type) {
	case nil:
		return false
	case *net.OpError:
		return (e.Op == "read" || e.Op == "write") && !e.Timeout()
	case redis.Error:
		return HasCode(e, "READONLY")
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), stale)
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF || err == io.ErrClosedPipe {
		return true
	}
	return stale(errors.Unwrap(err))
}
