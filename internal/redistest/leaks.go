package redistest

import "go.uber.org/goleak"

// Dials leaves the dials of go-redis out of a search for leaks. After as many failed dials as its
// pool has connections, a goroutine of go-redis tries once a second whether the server is back, and
// sees only then that its client is closed.
var Dials = goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
