/*
 * Who wakes up: callers of one lock in two processes, their in-process queues,
 * their hubs and the server.
 *
 * No timer runs. A waiter of rlock also tries again when the holder's TTL is over
 * or, without a subscription, every second; here nothing but a wake-up, a grant
 * handed over or, after a crash, the end of that holder's lease gets it going.
 * So what a timer would repair later shows as a caller that sleeps for ever.
 *
 * Each caller makes one call; every run ends, and the Monitor looks at the end.
 */
#ifndef LOCALS
#define LOCALS  3   /* callers in client 0 */
#endif
#ifndef REMOTES
#define REMOTES 1   /* callers in client 1 */
#endif
#ifndef LEAVERS
#define LEAVERS 1   /* contexts that end while their caller waits */
#endif
#ifndef BREAKS
#define BREAKS  0   /* connections that break, with all that is under way on them */
#endif
#ifndef PASSES
#define PASSES  1   /* hand-offs of one grant */
#endif
#ifndef CRASHES
#define CRASHES 0   /* processes of a single caller that die as holder */
#endif
#ifndef LINGERS
#define LINGERS 0   /* subscriptions given up when nobody waits */
#endif
#ifndef FORCES
#define FORCES  0   /* ForceUnlock */
#endif

#define CALLERS (LOCALS + REMOTES)
#define CLIENTS 2
#define HOME(g) ((g) < LOCALS -> 0 : 1)
#define NOBODY  CALLERS

mtype = { idle, sent, granted, refused };           /* an acquire */
mtype = { sub, unsub, subbed, unsubbed, message };  /* on a connection */

/* the server */
byte holder = NOBODY;        /* the owner in the lock's hash; each caller has one owner */
bool heard[CLIENTS];         /* the client's connection is subscribed */
bool expired[CALLERS + 1];   /* the owner's lease ended */

/* the network */
mtype acquire[CALLERS] = idle;
chan up[CLIENTS]   = [3] of { mtype };
chan down[CLIENTS] = [CALLERS + 4] of { mtype };

/* gate.go */
chan queue[CLIENTS] = [CALLERS] of { byte };
byte waiter[CLIENTS] = NOBODY;  /* the gate's, named after the caller that joined it */
bool believed[CLIENTS];         /* gate.holder, and its watchdog entry is not stopped */
byte handed[CALLERS] = NOBODY;  /* the owner of the grant given to a seat */
byte seen[CALLERS] = NOBODY;    /* the holder that refused the last attempt */
byte passes;                    /* of the present grant */

/* pubsub */
chan waiters[CLIENTS] = [CALLERS] of { byte };  /* the longest first */
bool woken[CALLERS];                            /* Waiter.C is full */
bool asked[CLIENTS], live[CLIENTS], linger[CLIENTS], broken[CLIENTS];
byte open[CLIENTS];

/* bounds, and what the properties look at */
byte leavers = LEAVERS, breaks = BREAKS, crashes = CRASHES, forces = FORCES, lingers = LINGERS;
byte user = NOBODY;  /* the caller that relies on holding the lock */
byte came[CLIENTS];  /* callers that have called */
byte done;           /* callers that are through */
hidden byte i, n, w;

#define WANTED(c)  (len(waiters[c]) > 0 || linger[c])
#define CTX_ENDS   leavers > 0 -> leavers--

inline wakeAll(c) {
	n = len(waiters[c]);
	do
	:: n > 0 -> waiters[c]?w; woken[w] = true; waiters[c]!w; n--
	:: else -> break
	od;
	skip /* a d_step does not end with a break */
}

inline wakeOne(c) { /* the longest that is not awake already */
	n = len(waiters[c]);
	i = 0;
	do
	:: n > 0 ->
		waiters[c]?w;
		if
		:: i == 0 && !woken[w] -> woken[w] = true; i = 1
		:: else
		fi;
		waiters[c]!w;
		n--
	:: else -> break
	od;
	skip
}

inline publish() {
	i = 0;
	do
	:: i < CLIENTS ->
		if
		:: heard[i] -> assert(nfull(down[i])); down[i]!message
		:: else
		fi;
		i++
	:: else -> break
	od;
	skip
}

inline release(owner) { /* release.lua */
#ifdef MESSAGE_BEFORE_DEL
	d_step { if :: holder == owner -> publish() :: else fi };
	d_step { if :: holder == owner -> holder = NOBODY :: else fi }
#else
	d_step { if :: holder == owner -> holder = NOBODY; publish() :: else fi }
#endif
}

inline leaveSeat() { /* seat.leave, and the grant that may have come at the last moment */
	d_step {
		queue[c]??eval(g);
		if
		:: len(queue[c]) == 0 -> left = waiter[c]; waiter[c] = NOBODY
		:: else
		fi;
#ifndef LEAVER_DROPS_GRANT
		if
		:: handed[g] != NOBODY -> spare = handed[g]
		:: else
		fi;
#endif
		handed[g] = NOBODY
	}
}

inline leaveHub() { /* Waiter.Leave, of the last seat */
	d_step {
		if
		:: left != NOBODY ->
			waiters[c]??eval(left);
#ifndef LEAVER_DROPS_WAKEUP
			if
			:: woken[left] -> wakeOne(c)
			:: else
			fi;
#endif
			woken[left] = false;
			if
			:: len(waiters[c]) == 0 -> linger[c] = true
			:: else
			fi;
			left = NOBODY
		:: else
		fi
	}
}

proctype Caller(byte g) {
	byte c = HOME(g), left = NOBODY;
	byte owner = NOBODY; /* of the grant held */
	byte spare = NOBODY; /* of one that was handed over and is not wanted */

	d_step { came[c] == g - HOME(g) * LOCALS -> came[c]++; queue[c]!g }; /* callers of a client are all alike */
	if
	:: queue[c]?[eval(g)]
	:: CTX_ENDS; goto leave
	fi;

	/* contend: the first attempt is saved if this client is known to hold the lock */
	if
	:: believed[c] && waiter[c] != NOBODY && live[c] -> goto pause
	:: else
	fi;
try:
	if
	:: acquire[g] = sent
	:: CTX_ENDS;
#ifndef HEAD_KEEPS_WAKEUP
		d_step { /* a wake-up taken is a try owed; the next head may not make one of its own accord */
			if
			:: waiter[c] != NOBODY -> woken[waiter[c]] = true
			:: else
			fi };
#endif
		goto leave
	fi;
	if
	:: acquire[g] == granted -> owner = g; acquire[g] = idle; goto hold
	:: acquire[g] == refused -> acquire[g] = idle
	:: handed[g] != NOBODY -> goto take /* and leave the attempt behind */
	:: CTX_ENDS; goto leave             /* likewise */
	fi;
	if
	:: d_step { waiter[c] == NOBODY ->
		waiter[c] = g;
		waiters[c]!g;
#ifndef NO_SECOND_ATTEMPT
		woken[g] = live[c]
#endif
		}
	:: waiter[c] != NOBODY
	fi;
pause:
	if
	:: d_step { waiter[c] < NOBODY && woken[waiter[c]] -> woken[waiter[c]] = false }; goto try
	:: handed[g] != NOBODY -> goto take
	:: expired[seen[g]] -> seen[g] = NOBODY; goto try
	:: CTX_ENDS; goto leave
	fi;

take:
	owner = handed[g];
	handed[g] = NOBODY;
hold:
	believed[c] = true;
	d_step { assert(user == NOBODY || forces < FORCES); user = g };
	leaveSeat();
	leaveHub();
	if
	:: spare != NOBODY -> release(spare); spare = NOBODY /* two at once: only after a loss */
	:: else
	fi;
	/* the caller works */
	if
	:: d_step { if :: user == g -> user = NOBODY :: else fi }
	:: d_step { crashes > 0 && g == CALLERS - 1 && REMOTES == 1 -> crashes--; user = NOBODY; broken[c] = true; heard[c] = false };
		d_step { holder = NOBODY; expired[owner] = true; done++ };
		goto gone
	fi;
unlock:
	if
	:: d_step { passes < PASSES && len(queue[c]) > 0 -> /* no request in flight, window wide */
		queue[c]?<w>;
		handed[w] = owner;
		passes++
		};
		goto sweep
	:: d_step { believed[c] = false; passes = 0 } /* there may be a reason to really release */
	fi;
	release(owner);
	goto sweep;

leave:
	leaveSeat();
	leaveHub();
	if
	:: spare != NOBODY -> owner = spare; spare = NOBODY; goto unlock /* neither keep nor drop it */
	:: else
	fi;
sweep: /* an attempt left behind is answered late, and what it acquired is released */
	acquire[g] != sent;
	if
	:: acquire[g] == granted -> release(g)
	:: else
	fi;
	d_step { acquire[g] = idle; seen[g] = NOBODY; owner = NOBODY; done++ };
gone:
	skip
}

/* Acquire executes a caller's attempts, at any time after they were sent. */
proctype Acquire(byte g) {
end:	do
	:: d_step { acquire[g] == sent ->
		if
		:: holder == NOBODY -> holder = g; acquire[g] = granted
		:: else -> seen[g] = (CRASHES > 0 -> holder : NOBODY); acquire[g] = refused
		fi }
	od
}

/* Connection is a client's, from both ends: conn.go and the server. */
proctype Connection(byte c) {
end:	do
	:: d_step { WANTED(c) != asked[c] && !broken[c] && nfull(up[c]) ->
		asked[c] = !asked[c];
		live[c] = false;
		open[c]++;
		if
		:: asked[c] -> up[c]!sub
		:: else -> up[c]!unsub
		fi }
	:: d_step { up[c]?[sub] -> up[c]?sub; heard[c] = true; down[c]!subbed }
	:: d_step { up[c]?[unsub] -> up[c]?unsub; heard[c] = false; down[c]!unsubbed }
	:: d_step { down[c]?[message] -> down[c]?message; wakeOne(c) }
	:: d_step { down[c]?[subbed] ->
		down[c]?subbed;
		open[c]--;
		if
		:: open[c] == 0 ->
			live[c] = true;
#ifndef NO_SECOND_ATTEMPT
			wakeAll(c)
#endif
		:: else
		fi }
	:: d_step { down[c]?[unsubbed] -> down[c]?unsubbed; open[c]-- }
	:: d_step { lingers > 0 && linger[c] -> lingers--; linger[c] = false }
	:: d_step { breaks > 0 && asked[c] && !broken[c] ->
		breaks--;
		broken[c] = true;
		heard[c] = false;
		do
		:: up[c]?_
		:: down[c]?_
		:: empty(up[c]) && empty(down[c]) -> break
		od;
		skip }
#ifndef LOSS_UNNOTICED
	:: d_step { broken[c] -> /* an error, or no echo of a probe */
		if
		:: live[c] -> wakeAll(c)
		:: else
		fi;
		broken[c] = false;
		linger[c] = false;
		asked[c] = false;
		live[c] = false;
		open[c] = 0 }
#endif
	od
}

/* Force is ForceUnlock: the holder does not know yet. */
proctype Force() {
end:	do
	:: d_step { forces > 0 && user != NOBODY && holder != NOBODY -> forces--; user = NOBODY; holder = NOBODY; publish() }
	od
}

/* Monitor looks when nothing moves any more. */
active proctype Monitor() {
	timeout;
	assert(done == CALLERS);  /* nobody sleeps */
	assert(holder == NOBODY); /* nothing is left on the server */
	assert(len(waiters[0]) + len(waiters[1]) + len(queue[0]) + len(queue[1]) == 0)
}

init {
	byte g = 0;
	atomic {
		do
		:: g < CALLERS -> run Caller(g); run Acquire(g); g++
		:: else -> break
		od;
		run Connection(0);
		run Connection(1);
		run Force()
	}
}
