// Package bench measures distributed locks under contention: this library's, and
// whatever else is given to it as a [Locker].
//
// # A run
//
// A [Scenario] is a row of a table: how many processes and goroutines, how many
// locks, what they do. A run plays one scenario with one [Contender]. It happens
// in worker processes, which are this program started again (see [Work]): never
// in the process that orders the runs, reads the server's counters and delays
// the connections. So the CPU time, allocations and goroutines of a run are
// those of the contender and of the loop around it, and no run inherits heap or
// connections from the one before.
//
// Workers meet at a barrier, warm up, and count what ends within one common
// window of time. They share a file in memory with one cell per lock: who is
// inside, who was there before. Entering an occupied cell is a violation of
// mutual exclusion, counted in every critical section of every run.
//
// # Rounds and the floor
//
// A scenario is played in rounds; each round runs every contender once, forwards
// and backwards in turn, and with them the floor: PING, and a cycle of two bare
// scripts (SET NX PX; compare and delete), which is the least that a lock on
// Redis can cost. The floor is a loop without pauses. It runs with as many
// goroutines as the scenario says, one if the scenario is about a single lock,
// because a lock serves one at a time.
//
// What is reported is the ratio to the two-script floor of the same round: the
// median over the rounds, with minimum and maximum. Absolute numbers say more
// about the machine. Some ratios are to another row, as the column says: to the
// PING (round trips), to this library's default, to the plain pub/sub lock. Of
// longest waits, and of what should not happen at all, the worst round stands.
//
// A lock on several servers ([Config].Nodes) has a floor of its own beside that
// of one server: the two scripts on all servers at once, each with all answers
// awaited. All that it costs is counted on all servers; of everybody else, on the
// first. Nothing begins before each of them has been up for a lease, as a quorum
// lock counts no younger one.
//
// A wake-up is counted in floor cycles ("× floor"), which are those of that loop
// with one goroutine: the median of the wake-ups, divided by that of the cycles. But a
// wake-up comes to processes that have slept, and a loop keeps all of them awake.
// So there is one more floor for wake-ups, "2 scripts, paced", which rests as long
// between its cycles as wake-ups do, and as many at once: its ratio ("× paced")
// says what a wake-up costs more than two scripts at the same moment would have.
//
// # Several processes, a cluster
//
// [InProcesses] has so many processes play what one plays otherwise. The floor has as
// many, where each goroutine has a lock of its own; a lock that all contend for has
// the floor of one goroutine. Each process is reported by itself as well ([Share]), in
// ratio to the same process of the floor.
//
// On a cluster ([Config].Cluster) a lock, and each key of the floor, is on one of the
// masters, and counters are added up over all of them.
//
// When a run is given up, by its context or because the process that orders the runs
// has ended, workers release what they hold, and end.
//
// # What the numbers are
//
//   - An operation is a Lock and its Unlock. Latency is that of the whole cycle,
//     or of the wait for Lock where the lock is contended, or from the moment
//     before Unlock to the return of the waiter's Lock (wake-up), or of another
//     client's PING (held locks): see the scenario.
//   - Readers exclude nobody of their kind, so with them no violations are
//     counted. Beside them in the table is the default lock, whose goroutines have
//     a lock each.
//   - Percentiles of loops are corrected for coordinated omission: a goroutine
//     that was kept waiting would have started more operations meanwhile, one per
//     mean cycle of a goroutine in that run. Raw percentiles are in the JSON.
//     Wake-ups need no correction, PINGs are timed from when they were due.
//   - With many clients each goroutine has one of its own, with few connections. They
//     begin one after the other, during the time before the window, and go on for a
//     moment after it. Scripts, messages, server CPU and bytes are divided by the
//     acquisitions by another client than the one before; "scripts/op" is divided by
//     all acquisitions. Messages are PUBLISH and SPUBLISH, also those in scripts,
//     less the probes of connections, which clients of this library publish
//     themselves; requests are what the server has read from sockets, less the same:
//     of this library almost all are scripts, of others they may be plain commands.
//     The probes' cost is part of the server CPU and the bytes. A wake-up is from the
//     moment before Unlock until somebody who has waited since before that has the
//     lock; its floor is the cycle.
//   - "of sections" is the share of the time in which somebody was inside: 1 is what
//     sections without anything between them would allow.
//   - Kill has processes that wait for a lock each, before anybody else does, and
//     kill themselves; 20 ms later the holder unlocks. The delay is that of all who
//     were behind, from the moment before Unlock.
//   - Of clients that wait in vain, probes are PUBLISH and PING, and the others what
//     else the server has read from sockets.
//   - A hand-off is an acquisition by another goroutine than the one that held
//     the lock before. Taking one's own lock again is none.
//   - Fairness is Jain's index over the acquisitions of the goroutines, those
//     with none included, and the longest wait. Where one client is beside the hot
//     ones, the index is that of the hot ones, and waits are its own. A wait that the end of the window
//     cuts off counts with the length it had, there and in the percentiles.
//   - Commands are those that the server executed, which includes what scripts
//     call; scripts are calls of scripts; reads are its reads from sockets, so a
//     pipeline counts once, or once per 16 KB: round trips are no more than reads.
//     The counters are read near the edges of the window and scaled to its length,
//     on the server's own clock.
//   - Memory per waiter is heap and stacks that 900 more waiters take beside the
//     first 100, divided: the stack of the goroutine that waits is part of it,
//     what is there once is not, be it a connection.
//   - Beside held locks somebody sends a PING every 5 ms, at fixed times. What it
//     costs the server is measured in a run without locks, and taken off.
//   - CPU time is user and system time, of the server (INFO) and of the workers
//     (getrusage). The workers go on while the server's counters are read: a few
//     operations may fall on the wrong side.
//   - The contenders handoff-… are the default lock with one bound of its budget
//     for hand-offs, each by itself. The picture has throughput against the longest
//     wait, from which the defaults are to be read.
//
// # What they are not
//
// Everything shares one machine, so a contender that burns CPU slows the server
// down, as it would not elsewhere. The scenarios behind a round trip of 1 ms use
// a proxy that delays both directions; its real round trip is the PING of the
// same run. Server commands of anybody else are counted as the contender's.
package bench
