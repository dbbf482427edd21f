// Package bench measures distributed locks under contention: the locks of this library, and every other lock
// that implements [Locker].
//
// # A run
//
// A [Scenario] says how many processes, goroutines and locks there are, and what the goroutines do. A run
// executes one scenario with one [Contender]. The run takes place in worker processes, for which the program
// starts itself again, see [Work]. The process that controls the runs reads the server's counters and delays
// the connections, but runs no contender. So the CPU time, allocations and goroutines of a run come only from
// the contender and the loop around it, and no run begins with the heap or the connections of an earlier run.
//
// All workers start together, warm up, and count the operations that end within a common period of time, the
// window. The workers share a memory-mapped file with one cell per lock, which contains the present holder and
// the previous one. If a goroutine acquires a lock whose cell already has a holder, this is a violation of
// mutual exclusion. Every critical section of every run is checked for violations.
//
// # Rounds and the floor
//
// A scenario consists of several rounds. Each round runs every contender once, and the order is reversed in
// every second round. Each round also runs the floor, which is the minimum that a lock on Redis can cost: a
// PING, and a cycle of two bare scripts (SET NX PX, then compare and delete). The floor is a loop without
// pauses. The scenario says how many goroutines run the loop. If all goroutines of the scenario use the same
// lock, only one goroutine runs the floor, because a lock has one holder at a time.
//
// The report contains the ratio of each contender to the two scripts of the floor in the same round. It gives
// the median over the rounds, with minimum and maximum, because absolute numbers depend mostly on the machine.
// Some ratios refer to another row, which the column names: the PING for round trips, the default lock of this
// library, or the plain lock with pub/sub. For the longest wait, and for events that should not happen at all,
// the report gives the value of the worst round.
//
// A lock on several servers (Nodes in [Config]) has an additional floor: the two scripts are sent to all
// servers at the same time, and the loop waits for all answers. The costs of such a lock are counted on all
// servers, and the costs of other locks on the first server. The first run begins only when each server has
// been running for the length of a lease, because a quorum lock does not count younger servers.
//
// The column "× floor" of a wake-up is the median time of the wake-ups, divided by the median time of a cycle
// of the floor with one goroutine. However, a wake-up concerns processes that were asleep, and the loop of the
// floor keeps all processes awake. So wake-ups have one more floor, "2 scripts, paced". It makes the same
// pauses between its cycles as the wake-ups do, and runs as many cycles at the same time. The column "× paced"
// shows how much longer a wake-up takes than two scripts at the same moment.
//
// # Several processes, a cluster
//
// [InProcesses] returns scenarios that run in several processes instead of one. If each goroutine has a lock of
// its own, the floor runs in as many processes. If all goroutines use the same lock, one goroutine runs the
// floor. The report also contains each process separately, see [Share], with the ratio to the same process of
// the floor.
//
// On a cluster (Cluster in [Config]), each lock and each key of the floor is on one of the masters. The
// counters of all masters are added up.
//
// If the context of a run ends, or the process that controls the runs exits, the workers release their locks
// and exit.
//
// # What the numbers are
//
//   - An operation is a Lock and its Unlock. The scenario says what its latency is: the time of the whole
//     operation, the time of the wait for Lock if the lock is contended, the time from just before Unlock to
//     the return of the waiter's Lock for a wake-up, or the time of another client's PING for held locks.
//   - Readers do not exclude each other, so no violations are counted for them. The table compares them with
//     the default lock, where each goroutine has a lock of its own.
//   - Percentiles of loops are corrected for coordinated omission. The correction adds the operations that a
//     goroutine would have started while it waited, one for each mean cycle of a goroutine in that run. The
//     JSON report also contains the raw percentiles. Wake-ups need no correction, and PINGs are timed from the
//     moment when they were due.
//   - In scenarios with many clients, each goroutine has a client of its own with few connections. The clients
//     begin one after the other before the window, and continue for a moment after it. Scripts, messages, CPU
//     time of the server and bytes are divided by the number of acquisitions that passed the lock to another
//     client, but "scripts/op" is divided by the number of all acquisitions. Messages are the PUBLISH and
//     SPUBLISH commands, including those in scripts, minus the probes that clients of this library publish to
//     test their connections. Requests are the reads from sockets by the server, minus the same probes. For
//     this library, almost all requests are scripts, and for other libraries they can be plain commands. The
//     CPU time and the bytes include the probes. A wake-up lasts from just before Unlock until a goroutine that
//     was already waiting at that time has acquired the lock. The floor of such a wake-up is the cycle of two
//     scripts.
//   - "of sections" is the part of the time in which a goroutine was in its critical section. A value of 1
//     would mean that the sections followed each other without a gap.
//   - In a scenario of the kind [Kill], some processes each become the first waiter for one lock, and then kill
//     themselves. The holder of the lock unlocks 20 ms later. The delay is measured for all waiters behind the
//     killed ones, from just before Unlock.
//   - For clients that wait without getting the lock, the probes are their PUBLISH and PING commands. The other
//     commands are everything else that the server has read from sockets.
//   - A hand-off is an acquisition by a different goroutine than the previous holder. A second acquisition in a
//     row by the same goroutine is not a hand-off.
//   - Fairness is reported as Jain's index over the numbers of acquisitions of all goroutines, including
//     goroutines without any, and as the longest wait. In a scenario of the kind [Foreign], the index is for
//     the hot processes, and the waits are for the additional process. If a wait has not ended at the end of
//     the window, its length so far is used for the longest wait and the percentiles.
//   - Commands are the commands that the server has executed, including those that scripts call. Scripts are
//     calls of scripts. Reads are the server's reads from sockets, so a pipeline counts once, or once per 16
//     KB. Therefore the number of round trips is no greater than the number of reads. The counters are read
//     near the beginning and the end of the window, and scaled to its length by the clock of the server.
//   - Memory per waiter is the additional heap and stack memory of 900 more waiters after the first 100,
//     divided by 900. It includes the stack of the goroutine that waits. It does not include memory that is
//     needed only once, such as a connection.
//   - While locks are held, another client sends a PING every 5 ms, at fixed times. The CPU time of these PINGs
//     is measured in a run without locks, and subtracted.
//   - CPU time is user and system time. It is read from INFO for the server, and from getrusage for the
//     workers. The workers continue while the server's counters are read, so a few operations can be counted on
//     the wrong side of the window.
//   - Each contender whose name begins with handoff- is the default lock with another limit for its hand-offs
//     in memory. The picture shows their throughput and their longest wait, from which the default limits were
//     chosen.
//
// # What they are not
//
// The server and all workers share one machine. So a contender that uses much CPU time slows the server down,
// which would not happen on separate machines. Scenarios with a round trip of 1 ms use a proxy that delays both
// directions. The real round trip is the PING of the same run. If other programs send commands to the server
// during a run, these commands are counted as commands of the contender.
package bench
