// Package rlocktest lets code that uses package rlock be tested without a Redis:
// against a server inside the test, in the fake time of a [testing/synctest]
// bubble, with locks that get lost and servers that do not answer.
//
//	// Run does the work of a job under its lock, and stops when that is lost.
//	func (j *Job) Run(ctx context.Context) error {
//		return j.Locks.NewLock("invoice:42").Do(ctx, j.work)
//	}
//
//	func TestJobStopsWhenItsLockIsLost(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			server := rlocktest.NewServer(t)
//			job := &Job{Locks: server.Locks(nil)}
//			result := make(chan error)
//			go func() { result <- job.Run(t.Context()) }()
//			synctest.Wait() // it holds the lock and works
//
//			server.Evict("invoice:42")
//			start := time.Now()
//			if err := <-result; !errors.Is(err, rlock.ErrLeaseLost) {
//				t.Errorf("Run: %v", err)
//			}
//			if d := time.Since(start); d > rlock.DefaultLeaseTime/3 {
//				t.Errorf("stopped only after %v", d)
//			}
//		})
//	}
//
// The ten seconds of this test pass in no time. Everything happens in the
// bubble: the server, the connections to it, the clients. [NewServer] and
// [Server.Locks] register their ends with the test, in the right order, so that
// no goroutine is left when the bubble ends. Outside of a bubble the package
// works as well, at the pace of the real clock.
//
// While a server refuses connections, go-redis logs each attempt: a TestMain that calls
// logging.Disable, of github.com/redis/go-redis/v9/logging, keeps that out of the output.
//
// A test plays several processes by taking several clients from [Server.Locks]:
// each is an owner of its own and waits for the others' locks through Redis.
//
// Packages election, jobs, once and idempotency, which stand on locks, work on this server too: leaders change when
// [Server.Evict] removes their lock, a week of fires passes in a moment, and results reach the end of their TTL. So
// does the server's own time, TIME, by which jobs computes the fires.
//
// # What it is not
//
// The server is miniredis, which imitates the commands and runs the scripts in
// another Lua. It shows how code takes the behaviour of rlock; it is no evidence
// about Redis, has no memory limit, replication or permissions, and is never to
// be used for real locking. A lock [rlock.WithReplicas] is always refused there, with
// [rlock.ErrNotReplicated]. To a quorum lock each says that it has been running for a
// day. Outside of a bubble its clock even runs on while a script runs, so that a
// lease may end in the middle of one. rlock itself is tested on redis-server.
package rlocktest
