// Package rlocktest helps to test code that uses package rlock without a Redis server. It starts a server
// inside the test, which works in the fake time of a [testing/synctest] bubble. A test can also remove locks,
// and make the server stop responding.
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
// This test takes ten seconds of fake time, which pass at once. The server, its clients and the connections
// between them are all in the bubble. [NewServer] and [Server.Locks] register cleanup functions with the test,
// so no goroutine is left when the bubble ends. The package also works outside of a bubble, in real time.
//
// While a server refuses connections, go-redis logs each attempt. To avoid this output, call logging.Disable of
// github.com/redis/go-redis/v9/logging in TestMain.
//
// To simulate several processes, call [Server.Locks] once for each of them. A client that it returns waits for
// locks that the other clients hold, as another process would.
//
// Packages election, jobs, once and idempotency also work with this server. For example, the leader changes
// when [Server.Evict] removes its lock, a week of scheduled jobs passes at once, and stored results expire. The
// command TIME, from which package jobs takes the time, returns the fake time.
//
// # What it is not
//
// The server is miniredis, a Go program that imitates the commands of Redis and runs Lua scripts in a different
// interpreter. Use it to test how your code reacts to rlock. A test with miniredis proves nothing about Redis.
// miniredis has no memory limit, replication or permissions, and must never be used for real locking. If a lock
// is made with the option [rlock.WithReplicas], its lock calls always return [rlock.ErrNotReplicated], because
// there are no replicas. Each server reports that it has been running for a day, so a quorum lock, which does
// not count servers that have just started, counts it at once. Outside of a bubble, a lease can end while a
// script runs, which is impossible in Redis. rlock itself is tested with redis-server.
package rlocktest
