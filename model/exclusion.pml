/*
 * Who may rely on the lock: grants of one name, each with an owner of its own,
 * and a server that executes requests late, twice or never and whose answers may
 * be lost.
 *
 * Time is counted down in ticks that come at any moment, so that a window which
 * is counted from the wrong end shows. One process is one grant, from its first
 * attempt to its last release, through all hand-offs in memory.
 */
#ifndef GRANTS
#define GRANTS   3
#endif
#ifndef LEASE
#define LEASE    2  /* ticks */
#endif
#ifndef RENEWALS
#define RENEWALS 1  /* of each grant */
#endif
#ifndef PASSES
#define PASSES   1  /* hand-offs of each grant */
#endif
#ifndef FAULTS
#define FAULTS   2  /* of all: a request given up unanswered, or executed once more */
#endif
#ifndef MESSAGES
#define MESSAGES 0  /* grants that leave a ticket when they are refused, and are made by a message */
#endif
#define FREE GRANTS
#define LONGEST (2 * LEASE) /* ticks after which an answer is too old to count from */
#define OLDEST  (MESSAGES > 0 -> LONGEST : LEASE)

mtype = { none, acquire, renew, release, yes, no };

/* the server */
byte holder = FREE;  /* owner */
byte ttl;

/* a grant's requests */
mtype asked[GRANTS] = none;   /* the one that is waited for */
mtype answer[GRANTS] = none;
byte age[GRANTS];             /* ticks since it was sent */
bool strayAcquire[GRANTS], strayRenew[GRANTS], strayRelease[GRANTS];  /* nobody waits, but they may still arrive */

byte window[GRANTS];  /* what is left of the trusted window */
bool relies[GRANTS];  /* somebody is inside, trusting it */
bool doubted[GRANTS]; /* an acquire got no answer: one more release is owed */
bool swept[GRANTS];   /* nothing is owed any more */
bool late[GRANTS];    /* an acquire arrived after that, or once more without the client's knowing */
bool ticket[GRANTS];  /* on the server */
bool message[GRANTS]; /* of a grant, on its way */
bool older[GRANTS];   /* that grant was made before the answer that is counted from */
byte since[GRANTS];   /* ticks since the ask was sent that the last answer belongs to */
byte waited[GRANTS];  /* ticks of the server's clock between that answer and the grant */
byte over;            /* grants that are through */
byte faults = FAULTS;
hidden byte i;
hidden mtype result;

#define STRAYS(g) (strayAcquire[g] || strayRenew[g] || strayRelease[g])

/* passOn grants the free lock to a ticket. */
inline passOn() {
	i = 0;
	do
	:: i < GRANTS && ticket[i] -> ticket[i] = false; message[i] = true; older[i] = false; holder = i; ttl = LEASE; break
	:: i < GRANTS && !ticket[i] -> i++
	:: i == GRANTS -> break
	od;
	skip
}

/* execute is the scripts. */
inline execute(what) {
	result = no;
	if
	:: what == acquire && (holder == FREE || holder == g) -> holder = g; ttl = LEASE; result = yes; late[g] = late[g] || swept[g]; ticket[g] = false
	:: what == acquire && holder != FREE && holder != g && g < MESSAGES -> ticket[g] = true; late[g] = late[g] || swept[g]
	:: what == renew && holder == g -> ttl = LEASE; result = yes
#ifdef RELEASE_WITHOUT_OWNER
	:: what == release && holder != FREE -> holder = FREE; ttl = 0; result = yes
#else
	:: what == release && holder == g -> holder = FREE; ttl = 0; result = yes
#endif
	:: else
	fi;
	if
	:: what == release -> ticket[g] = false
	:: else
	fi;
	if
	:: what == release && holder == FREE -> passOn()
	:: else
	fi;
	swept[g] = swept[g] || what == release && !doubted[g]
}

inline stray(what) {
	if
	:: what == acquire -> strayAcquire[g] = true
	:: what == renew -> strayRenew[g] = true
	:: what == release -> strayRelease[g] = true
	fi
}

/* Network delivers what a grant sends. */
proctype Network(byte g) {
end:	do
	:: d_step { asked[g] != none && answer[g] == none -> execute(asked[g]); answer[g] = result; waited[g] = 0; older[g] = message[g] }
	:: d_step { asked[g] != none && answer[g] != none && faults > 0 -> faults--; stray(asked[g]); late[g] = late[g] || asked[g] == acquire } /* a repetition */
	:: d_step { strayAcquire[g] -> execute(acquire); strayAcquire[g] = false }
	:: d_step { strayRenew[g] -> execute(renew); strayRenew[g] = false }
	:: d_step { strayRelease[g] -> execute(release); strayRelease[g] = false }
	od
}

inline ask(what) { atomic { asked[g] = what; age[g] = 0 } }

inline take(a) { a = answer[g]; asked[g] = none; answer[g] = none }

/* giveUp waits no longer: the request, or its answer, may have been lost, or not. */
inline giveUp() {
	faults--;
	if
	:: answer[g] == none -> stray(asked[g])
	:: else
	fi;
	asked[g] = none; answer[g] = none; age[g] = 0
}

#ifdef WINDOW_FROM_REPLY
#define LEFT LEASE
#else
#define LEFT (age[g] < LEASE -> LEASE - age[g] : 0)
#endif
#ifdef WINDOW_FROM_MESSAGE
#define GRANTED LEASE
#elif defined(GRANT_BEFORE_THE_ANSWER)
#define GRANTED (since[g] < LONGEST && LEASE + waited[g] > since[g] -> LEASE + waited[g] - since[g] : 0)
#else /* the grant was not made before so many ticks after the ask was sent as the server counted after its answer */
#define GRANTED (!older[g] && since[g] < LONGEST && LEASE + waited[g] > since[g] -> LEASE + waited[g] - since[g] : 0)
#endif

inline enter() { /* the critical section */
	i = 0;
	do
	:: i < GRANTS -> assert(!relies[i]); i++
	:: else -> break
	od;
	relies[g] = window[g] > 0
}

proctype Grant(byte g) {
	byte renewals = RENEWALS, passes = PASSES;
	mtype a = none;

attempt:
	ask(acquire);
	if
	:: d_step { answer[g] != none -> take(a); window[g] = (a == yes -> LEFT : 0); since[g] = (a == no && g < MESSAGES -> age[g] : 0); age[g] = 0 };
		goto answered
	:: d_step { faults > 0 -> giveUp() }; doubted[g] = true;
		if
		:: goto attempt
		:: goto sweep /* the caller has left */
		fi
	fi;
answered:
	if
	:: a == no && !doubted[g] && g < MESSAGES -> goto queued
	:: a == no && !doubted[g] && g >= MESSAGES -> goto ended /* a waiter asks again: as good as a new grant */
	:: a == no && doubted[g] -> goto sweep
	:: a == yes && window[g] == 0 -> goto sweep /* too late */
	:: d_step { a == yes && window[g] > 0 -> enter() }
	fi;
	goto held;
queued:
	if
	:: d_step { message[g] && GRANTED > 0 -> window[g] = GRANTED; message[g] = false; older[g] = false; a = yes; enter() }
	:: d_step { message[g] && GRANTED == 0 -> message[g] = false; older[g] = false }; goto attempt
	:: holder == FREE -> goto attempt /* whatever it is that wakes it */
	:: goto sweep                     /* the caller has left */
	fi;

held:
	if
	:: renewals > 0 && relies[g] && asked[g] == none -> renewals--; ask(renew); goto held
	:: d_step { asked[g] == renew && answer[g] != none ->
		take(a);
		if
		:: a == yes && relies[g] && LEFT > window[g] -> window[g] = LEFT
		:: a == no -> relies[g] = false /* lost */
		:: else
		fi;
		age[g] = 0 }; goto held
	:: d_step { asked[g] == renew && faults > 0 -> giveUp() }; goto held
	:: d_step { relies[g] && passes > 0 && asked[g] == none && !STRAYS(g) && window[g] * 2 >= LEASE ->
		passes--; relies[g] = false; enter() }; goto held /* unlocked and handed on */
	:: asked[g] == none -> relies[g] = false /* unlocked, or lost before */
	fi;

sweep:
#ifdef NO_SWEEP
	if
	:: a != yes -> goto ended
	:: else
	fi;
#endif
	ask(release);
	if
	:: d_step { answer[g] != none -> take(a); age[g] = 0; window[g] = 0 }
	:: d_step { faults > 0 -> giveUp() };
#ifdef HANDOFF_IN_FLIGHT
		if
		:: d_step { window[g] * 2 >= LEASE -> enter() }; goto held
		:: true
		fi;
#endif
		goto sweep
	fi;
	if
	:: doubted[g] -> doubted[g] = false; goto sweep /* again, a third of a lease later */
	:: else
	fi;

ended:
	atomic { swept[g] = true; window[g] = 0; message[g] = false; older[g] = false; since[g] = 0; waited[g] = 0; a = none; over++ }
}

/* Clock: all windows close, at the latest, when the leases end. */
active proctype Clock() {
end:	do
	:: d_step { ttl > 0 || asked[0] != none || asked[1] != none || asked[GRANTS - 1] != none ->
		i = 0;
		do
		:: i < GRANTS ->
			window[i] = (window[i] > 0 -> window[i] - 1 : 0);
			relies[i] = relies[i] && window[i] > 0;
			since[i] = (since[i] < LONGEST && (ticket[i] || message[i]) -> since[i] + 1 : since[i]);
			waited[i] = (waited[i] < LONGEST && ticket[i] -> waited[i] + 1 : waited[i]);
			age[i] = (asked[i] != none && age[i] < OLDEST -> age[i] + 1 : age[i]);
			i++
		:: else -> break
		od;
		ttl = (ttl > 0 -> ttl - 1 : 0);
		holder = (ttl > 0 -> holder : FREE) }
	od
}

/* Monitor: what is left when all are gone is only what nobody could know of. */
active proctype Monitor() {
end:	atomic { over == GRANTS && holder != FREE -> assert(late[holder]) }
}

init {
	byte g = 0;
	atomic {
		do
		:: g < GRANTS -> run Grant(g); run Network(g); g++
		:: else -> break
		od
	}
}
