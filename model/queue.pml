/*
 * Who is next: waiters of one lock in two or three processes, the tickets that
 * they leave on the server, and what the server tells whom.
 *
 * A rule is one step of a process. Every run ends, and the Monitor looks when
 * nothing moves any more. Timers are not rules: only the Monitor lets them fire,
 * LEASES times the end of a lease that nobody relies on, KEEPALIVES times the ask
 * that every waiter repeats by itself. So what a timer would repair shows as a
 * caller that sleeps, and how many rounds it takes is known.
 * One timer is a rule: a hub notices at any time that it is deaf, as its probes are
 * sooner than the other timers.
 */
#ifndef A
#define A 2          /* callers in client 0, */
#endif
#ifndef B
#define B 1          /* client 1 */
#endif
#ifndef C
#define C 0          /* and client 2 */
#endif
#ifndef LEAVERS
#define LEAVERS 0    /* contexts that end while their caller waits */
#endif
#ifndef PASSES
#define PASSES 0     /* hand-offs of one grant in memory */
#endif
#ifndef BREAKS
#define BREAKS 0     /* connections that break with all that is under way on them */
#endif
#ifndef HALVES
#define HALVES 0     /* of these: connections that the server still counts as receivers */
#endif
#ifndef LOSSES
#define LOSSES 0     /* messages that are counted as received, and lost: the connection lives on */
#endif
#ifndef DEAFS
#define DEAFS 0      /* connections on which everything is lost from some moment on, until the hub notices */
#endif
#ifndef FAILOVERS
#define FAILOVERS 0  /* connections whose server is not the master any more, until the hub notices: not counted, and they get what is published */
#endif
#ifndef LINGERS
#define LINGERS 0    /* subscriptions given up when nobody waits */
#endif
#ifndef CRASHES
#define CRASHES 0    /* processes that die */
#endif
#ifndef LATES
#define LATES 0      /* requests that are given up: executed late, twice, or their answer lost */
#endif
#ifndef LAPSES
#define LAPSES 0     /* grants that end before their message is there */
#endif
#ifndef RINGS
#define RINGS 0      /* asks without a reason, in the middle of a run */
#endif
#ifndef FOREIGN
#define FOREIGN 0    /* 1: a caller of Redisson, which knows no tickets */
#endif
#ifndef FORCES
#define FORCES 0     /* ForceUnlock */
#endif
#ifndef DELS
#define DELS 0       /* DEL of the lock by an operator */
#endif
#ifndef FLUSHES
#define FLUSHES 0    /* FLUSHALL */
#endif
#ifndef LEASES
#define LEASES 0
#endif
#ifndef KEEPALIVES
#define KEEPALIVES 0
#endif

#define CALLERS (A + B + C)
#define CLIENTS 3
#define JAVA    CALLERS          /* the foreign owner */
#define NOBODY  (CALLERS + 1)
#define CLIENT(g) ((g) < A -> 0 : ((g) < A + B -> 1 : 2))
#define ALIKE(g)  ((g) != 0 && (g) != A && (g) != A + B)  /* has a neighbour before it in its client */

/* A queue in memory shares one ticket: a plain lock has one for each client, a fair lock one for each call. */
#ifdef FAIR
#define QUEUES  CALLERS
#define QUEUE(g) (g)
#define HOME(x)  CLIENT(x)
#define TICKETQ(o) (o)
#else
#define QUEUES  CLIENTS
#define QUEUE(g) CLIENT(g)
#define HOME(x)  (x)
#define TICKETQ(o) CLIENT(o)
#endif

mtype = { none, try, askP, askN, yes, stale, no, foreign, sent, answered }; /* requests and their answers */
mtype = { idle, trying, waiting, holding, gone };                    /* a caller */
mtype = { saved, joining, woken, asking, queued };                   /* a queue's head */
mtype = { sub, unsub, subbed, grant, wake, star, zero, listens };    /* on a connection */

/* the server; an owner is named after the caller that made it up */
byte holder = NOBODY;
byte last = NOBODY;           /* the record `!owner` */
chan tickets = [CALLERS] of { byte };
bool hears[4];          /* of a ticket: `P`, not `-` */
bool heard[CLIENTS];          /* the client's connection is subscribed */
bool ghost[CLIENTS];          /* a half-open connection is counted as a receiver */
bool deaf[CLIENTS];           /* nothing arrives any more, and the server counts the client as before */
bool former[CLIENTS];         /* subscribed on a replica, which was the master */
bool listener[CLIENTS];       /* subscribed to the unlock channel */
bool java;                    /* so is Redisson */

/* the network */
mtype ask[4] = none;    /* try or ask, and its answer */
mtype left[4] = none;   /* one that nobody waits for; its answer will come */
mtype stray[4] = none;  /* one that was given up; it may still arrive */
mtype rel[4] = none;    /* release */
byte carried[4] = NOBODY; /* the ticket of the same client that a release granted, in its answer */
byte number[4];         /* of the grants of an owner: a grant whose lease ended is not the present one */
byte carriedNumber[4];
bool strayRelease[4];
chan up[CLIENTS]   = [2] of { mtype };
chan down[CLIENTS] = [CALLERS + 4] of { mtype, byte, byte };

/* clients */
mtype state[4] = idle;
byte owner[4] = NOBODY;   /* of the grant that a caller holds */
chan memory[4] = [CALLERS] of { byte };
mtype head[4] = none;
byte ticket[4] = NOBODY;
bool again[4];             /* a wake-up came while an ask was in flight */
byte believed[4];          /* grants that this client holds */
bool doubted[4];               /* a try got no answer: one more release at the end */
bool owed[4];             /* one more release, if nobody here uses the owner */
bool wanted[CLIENTS], asked[CLIENTS], live[CLIENTS], broken[CLIENTS], dead[CLIENTS];
bool listening[4];        /* wants the unlock channel: refused by a foreign holder */
mtype redisson = idle;
bool announced;                 /* Redisson heard a release */

/* bounds, and what the properties look at */
byte leavers = LEAVERS, passes, breaks = BREAKS, halves = HALVES, losses = LOSSES, deafs = DEAFS, failovers = FAILOVERS, lingers = LINGERS, crashes = CRASHES, lates = LATES;
byte lapses = LAPSES, rings = RINGS, forces = FORCES, dels = DELS, flushes = FLUSHES, leases = LEASES, keepalives = KEEPALIVES;
byte user = NOBODY;       /* who relies on holding the lock */
bool torn;                /* somebody took the lock from its holder by force */
bool lost;                /* a place was lost, which excuses the order */
bool spent[4];      /* the owner is over, and no request of it is on its way that a client knows of */
bool late[4];       /* a request of the owner arrived after that */
byte turn[4], turns; /* order of arrival */
byte done;                /* callers that are through */
hidden byte b, m, w, k, v, y, z, carry;
hidden byte taken, freed, used, found, inOrder;
hidden mtype result, what;

#include "queue_client.pml"
#include "queue_server.pml"
#include "queue_wire.pml"

inline fire() { /* timers: everybody asks */
#ifdef TIMERS_TRUST_THE_SUBSCRIPTION
	k = 0;
	do
	:: k < CLIENTS ->
		if
		:: !live[k] -> rouseAll(k)
		:: else
		fi;
		k++
	:: else -> break
	od;
#else
	rouseAll(0); rouseAll(1); rouseAll(2);
#endif
	announced = announced || java
}

#define ALL_THROUGH (done == CALLERS && (redisson == gone || FOREIGN == 0))
#define EXCUSED(o)  (late[o] || dead[CLIENT(o)])

/* Monitor looks when nothing moves any more. */
active proctype Monitor() {
	do
	:: timeout ->
		if
		:: ALL_THROUGH -> break
		:: d_step { !ALL_THROUGH && leases > 0 && holder < JAVA && !RELIED(holder) -> leases--; lost = true; lapse(); fire() }
		:: d_step { !ALL_THROUGH && !(leases > 0 && holder < JAVA && !RELIED(holder)) && keepalives > 0 -> keepalives--; fire() }
		:: d_step { !ALL_THROUGH && !(leases > 0 && holder < JAVA && !RELIED(holder)) && keepalives == 0 ->
			assert(redisson != waiting || holder != NOBODY);
			assert(done == CALLERS);
			assert(redisson == gone) }
		fi
	od;
	skip; /* a break does not lead into a d_step */
	d_step { /* nothing is left on the server */
		if
		:: holder != NOBODY -> assert(holder < JAVA && EXCUSED(holder))
		:: else
		fi;
		do
		:: tickets?w -> assert(EXCUSED(w))
		:: len(tickets) == 0 -> break
		od;
		skip
	}
}

init {
	byte g = 0;
	atomic {
#ifdef LATER /* everybody is subscribed, and the last caller holds */
		d_step {
			do
			:: g < CLIENTS -> wanted[g] = true; asked[g] = true; heard[g] = true; live[g] = true; g++
			:: else -> break
			od;
			g = 0;
			holder = CALLERS - 1;
			enter(CALLERS - 1, CALLERS - 1)
		}
#endif
		do
		:: g < CALLERS -> run Caller(g); run Network(g); g++
		:: else -> break
		od;
		g = 0;
		do
		:: g < QUEUES -> run Queue(g); g++
		:: else -> break
		od;
		run Client(0);
		if :: B > 0 -> run Client(1) :: else fi;
		if :: C > 0 -> run Client(2) :: else fi;
		if :: FOREIGN -> run Redisson() :: else fi;
		run Fate()
	}
}
