// Package verify lets clients in several processes contend for locks while something
// goes wrong, writes down what each of them called and was told, and checks the histories
// against a model of a lock and of a fencing token. So for each kind of lock: plain,
// polling, fair, retained, read/write (rw), multi and quorum, and for terms of elections. It is for tests.
//
//	make verify           every kind of fault, thousands of histories, a table
//	make soak D=10m       a mixed load with random faults for that long
//	RLOCK_SEED=n          the same schedule of operations and faults again
//
// A plain go test runs a few kinds of fault for a few seconds, so that the
// machinery itself is covered, and shows the checker histories that it must refuse.
//
// # How it works
//
// A row of the matrix has a Redis server, three client processes (parties), and
// a proxy before each of them. In a round the clients of about a dozen histories,
// each with locks of its own and clients in every party, lock, nest, write and
// unlock as their seeds tell them, while the row's fault strikes. Then the fault
// is healed, every client has to get its lock twice more, and the parties close.
//
// Parties append each call and each return to a journal, stamped with the
// system-wide CLOCK_MONOTONIC, so that what a killed process did is known too.
// A holder believes in its lock until the last moment before which its context
// had not ended; a claim that a slow scheduler cannot falsify.
//
// Cut connections make every waiter ask again. So in the rows named "nothing is cut" the
// fault strikes once, and what it has left stays as it is: a subscription that is deaf, a
// queue that the server has forgotten. Two thirds of the locks are held meanwhile by one
// party, and waited for by the others. They are released right after, and nobody makes a
// request that would repair what others have lost. What counts is how long nobody has a lock
// that somebody waits for, from the end of the fault on; it may be what docs/guarantees.md
// promises for the fault, see limits_test.go.
//
// In some rows nothing is lost, but answers take longer than many callers wait, or
// there is one history only, of 2,000 clients and three locks.
//
// # Kinds of lock
//
// All kinds share the workload and the models. A grant is exclusive or shared; only
// read/write locks have both, nested in each other, and refuse upgrades. Of a multi
// lock each member is a plain lock with a history of its own, and clients lock them
// in any number and order. A quorum lock is a plain lock on three servers: what
// strikes the server of other rows strikes one of three, and some rows strike two.
// Histories of results, of package once, have a workload and a check of their own:
// see results.go.
// Grants of a fair lock must follow the order of its queue, as far as a history can
// tell: see inOrder.
package verify
