// Package interop proves that this library and Redisson share their locks: the
// real Redisson from Maven Central, in a JVM beside Go clients on the same
// private redis-server. It has only tests; README.md says how to run them and
// shows what they found.
//
// # The peer
//
// The JVM, and this test binary where a case needs a Go process of its own, run
// as a peer: it reads requests from standard input and prints answers.
//
//	request   tag actor command arguments…
//	answer    tag begun ended ok value…
//	          tag begun ended failed class message…
//
// An actor is what may own a lock: a thread in Java, a chain of contexts in Go.
// It executes its requests one after the other, all actors at the same time.
// Times are microseconds since 1970, taken around the work; all processes of a
// machine share that clock. Durations are milliseconds.
//
//	open client topology address lease   connect; topology is standalone or cluster, standalone-small with few connections, cluster-off without sharded channels, in Go also cluster-both
//	close client
//	lock client kind name lease          wait for it: token, or 0; lease 0 is a renewed one
//	tryLock client kind name wait        true or false
//	unlock client kind name
//	work client kind name most ms mode   critical sections in a row; mode is checked, empty, or how many microseconds they last
//
// and, by the JVM only,
//
//	forceUnlock client kind name         true or false
//	holdCount client kind name           of this actor
//	held client kind name                by this actor
//	ttl client kind name                 what is left of the lease
//	holds client kind name               owner=count…, of all owners
//	asleep actor                         true or false: it waits for a message
//
// A kind is plain, fenced, spin, read or write.
package interop
