// Package redistest gives a test its own redis-server, which it can kill, stop,
// restart and question, and lets a test binary start itself again as a client
// process that can be treated the same way.
//
// The server listens on a loopback port and on a unix socket. The socket is for
// the package's own questions: what comes through it is left out of
// [Server.Clients] and [Monitor.Commands].
//
// Each process has a goroutine until the test's cleanup. A goleak check inside a
// test therefore belongs into a Cleanup that is registered before Start.
package redistest
