/*
 * Who is next at a read/write lock: the queue of tickets with readers and writers, in
 * three clients.
 *
 * The scripts are those of lua/batch.lua, rwask.lua, rwrelease.lua and rwcount.lua, each in
 * one step. The connections are sound: what happens to them is in queue.pml. Of each client
 * the first waiting reader and the first waiting writer have a ticket. An owner is named
 * after the caller with the owner's grant.
 *
 * As in queue.pml no timer runs by itself: the Monitor lets leases end LEASES times, and
 * all waiters ask KEEPALIVES times.
 */
#ifndef R0
#define R0 0         /* readers in client 0: one after the other, */
#endif
#ifndef W0
#define W0 0         /* writers, */
#endif
#ifndef R1
#define R1 0         /* in client 1, */
#endif
#ifndef W1
#define W1 0
#endif
#ifndef R2
#define R2 0         /* and client 2 */
#endif
#ifndef W2
#define W2 0
#endif
#ifndef PORTION
#define PORTION 8    /* tickets that one script serves */
#endif
#ifndef DOWNGRADES
#define DOWNGRADES 0 /* writers that become readers */
#endif
#ifndef LEAVERS
#define LEAVERS 0    /* contexts that end while their caller waits */
#endif
#ifndef TRIES
#define TRIES 0      /* first requests without a ticket */
#endif
#ifndef LATES
#define LATES 0      /* requests that are given up: executed late, twice, or their answer lost */
#endif
#ifndef ANSWERS
#define ANSWERS 0    /* answers to a release or a downgrade that are lost */
#endif
#ifndef CRASHES
#define CRASHES 0    /* client 1 dies */
#endif
#ifndef HALVES
#define HALVES 0     /* and the server counts the client as a receiver for a while */
#endif
#ifndef VISITS
#define VISITS 0     /* a client of Redisson listens for a while, and leaves without the lock */
#endif
#ifndef LEASES
#define LEASES 0
#endif
#ifndef KEEPALIVES
#define KEEPALIVES 0
#endif

#define FIRST1    (R0 + W0)
#define FIRST2    (R0 + W0 + R1 + W1)
#define CALLERS   (R0 + W0 + R1 + W1 + R2 + W2)
#define CLIENTS   3
#define NOBODY    CALLERS
#define BIT(o)    (1 << (o))
#define CLIENT(o) ((o) < FIRST1 -> 0 : ((o) < FIRST2 -> 1 : 2))
#define SHARED(o) ((o) < R0 || ((o) >= FIRST1 && (o) < FIRST1 + R1) || ((o) >= FIRST2 && (o) < FIRST2 + R2))
#define ALIKE(o)  ((o) != 0 && (o) != R0 && (o) != FIRST1 && (o) != FIRST1 + R1 && (o) != FIRST2 && (o) != FIRST2 + R2) /* has a neighbour before it in its lane */

mtype = { none, sent, bare, yes, no, again, answered };       /* requests, bare without a ticket, and their answers */
mtype = { idle, asking, queued, woken, holding, lesser, gone }; /* a caller; lesser asks for its downgrade */

/* the server */
byte held;              /* a bit for each owner that has the lock */
bool writing;           /* and it is a writer */
byte queue[CALLERS] = NOBODY;
byte length;
bool listens;           /* somebody of Redisson, on the unlock channel */

/* the network */
mtype ask[CALLERS] = none;
mtype left[CALLERS] = none;   /* an ask that no caller waits for; the client reads the answer */
bool stray[CALLERS];          /* an ask that was given up; it may still arrive */
mtype rel[CALLERS] = none;    /* release, */
mtype cnt[CALLERS] = none;    /* downgrade, */
byte grants[CALLERS];         /* and in the answer: owners of the same client that got the lock, */
byte wakes[CALLERS];          /* owners that are to ask, */
bool more[CALLERS];           /* whether a portion was served */
bool strayRelease[CALLERS];
mtype rest[CLIENTS] = none;   /* a release of an owner without a hold, that serves the rest */
chan down[CLIENTS] = [CALLERS + 4] of { byte, byte }; /* messages: grants, wake-ups */

/* clients */
mtype state[CALLERS] = idle;
bool anew[CALLERS];     /* a wake-up came while an ask was in flight */
bool owed[CALLERS];     /* one more release */
bool doubt[CALLERS];    /* an attempt to release or to downgrade got no answer */
#ifdef OWN_LATE_TICKET_STAYS
bool refused[CALLERS];  /* the client knows of a ticket */
#endif
bool dead[CLIENTS], ghost[CLIENTS];

/* bounds, and what the properties look at */
byte downgrades = DOWNGRADES, leavers = LEAVERS, tries = TRIES, lates = LATES, answers = ANSWERS, crashes = CRASHES;
byte halves = HALVES, visits = VISITS, leases = LEASES, keepalives = KEEPALIVES;
byte relying;           /* callers that rely on the lock */
bool exclusive;         /* as a writer */
byte once;              /* tickets that a batch has passed */
byte spent;             /* owners that are over, with no request under way that a client knows of */
byte late;              /* a request of the owner arrived after that */
bool unseen;            /* a client is gone, and no script has looked for it since */
byte done;              /* callers that are through */
hidden byte i, j, t, c, b, k, n, count, over, sort, batch, mine, had, whole;
hidden byte out[4], prompts[4]; /* messages of a script; those of the client 3 are nobody's */
hidden byte beside, passed, told, remains;
hidden mtype result;
hidden byte x, y;

#define COUNTED(c) (!dead[c] || ghost[c])
#define ADMITS(o)  (held == 0 || (!writing && SHARED(o)))
#define SENT(request) (request == sent || request == bare)
#define NOONE      CLIENTS          /* no client's release */

/* The scripts. */

inline takeOut(at) { /* a ticket from the queue */
	n = at;
	do
	:: n + 1 < length -> queue[n] = queue[n + 1]; n++
	:: else -> break
	od;
	length--;
	queue[length] = NOBODY
}

inline place(o) { /* k: where the ticket is, or the length */
	k = 0;
	do
	:: k < length && queue[k] != o -> k++
	:: else -> break
	od;
	skip
}

inline give(o) {
	held = held | BIT(o);
	writing = !SHARED(o)
}

inline serve(asker, own, begins) {
	i = 0; count = 0; over = 0; mine = false; sort = 0;
	/* the client that sends the request is not looked for */
	unseen = unseen && ((own < CLIENTS && dead[own]) || (asker < CALLERS && dead[CLIENT(asker)]));
	batch = begins || held == 0;
	do
	:: i < length && count < PORTION ->
		t = queue[i];
		c = CLIENT(t);
		if
#ifdef DEAD_WRITERS_HIDE_READERS
		:: !ADMITS(t) && count == 0 -> break
		:: t != asker && c != own && !COUNTED(c) && (ADMITS(t) || count > 0) -> takeOut(i)
#elif defined(DEAD_BY_SIDE) /* the ticket of the other side is believed */
		:: t != asker && c != own && !COUNTED(c) && (sort == 0 || sort == 1 + SHARED(t)) -> sort = 1 + SHARED(t); takeOut(i)
#else
		:: t != asker && c != own && !COUNTED(c) -> takeOut(i)
#endif
		:: else ->
			if
			:: !ADMITS(t) && (count == 0 || !batch || (held != 0 && writing)) -> break
			:: !ADMITS(t) && !(count == 0 || !batch || (held != 0 && writing)) -> i++
			:: ADMITS(t) ->
				assert(!(spent & BIT(t)) || (late & BIT(t))); /* no ticket is granted after its release */
				give(t);
				j = 0;
				do
				:: j < i -> over = over | BIT(queue[j]); j++
				:: else -> break
				od;
				takeOut(i);
				count++;
				if
				:: t == asker -> mine = true
				:: else -> out[c] = out[c] | BIT(t)
				fi
			fi
		fi
	:: else -> break
	od;
	passed = once & over;
	assert(!passed);
	once = once | over
}

inline prompt(own, most) { /* the first asks, with a reader the readers behind it up to the first writer */
	i = 0;
	unseen = unseen && own < CLIENTS && dead[own];
	do
	:: i < length && i < most && (i == 0 || SHARED(queue[i])) ->
		t = queue[i];
		c = CLIENT(t);
		if
#ifdef DEAD_WRITERS_HIDE_READERS
		:: c != own && !COUNTED(c) && SHARED(t) -> takeOut(i)
#else
		:: c != own && !COUNTED(c) -> takeOut(i)
#endif
		:: else ->
			prompts[c] = prompts[c] | BIT(t);
			i = (SHARED(t) -> i + 1 : most)
		fi
	:: else -> break
	od;
	skip
}

inline send(own) { /* one message for each client, but the own client has it in the answer */
	j = 0;
	do
	:: j < CLIENTS ->
		if
		:: (out[j] != 0 || prompts[j] != 0) && j != own ->
			if
			:: !dead[j] -> assert(nfull(down[j])); down[j]!out[j], prompts[j]
			:: else
			fi;
			out[j] = 0; prompts[j] = 0
		:: else
		fi;
		j++
	:: else -> break
	od;
	skip
}

inline pass(own) { /* the lock may be free, or to be had by the readers in front */
	if
	:: length > 0 && held == 0 && listens -> prompt(own, CALLERS)
	:: length > 0 && !(held == 0 && listens) && !writing -> serve(NOBODY, own, false)
	:: else
	fi
}

inline request(o, ticket) { /* rwask */
	late = ((spent & BIT(o)) -> late | BIT(o) : late);
	if
	:: held & BIT(o) -> result = yes
#ifdef JOINED_PAST_A_WRITER
	:: !(held & BIT(o)) && (held == 0 && length == 0 || held != 0 && ADMITS(o)) ->
		over = 0;
		j = 0;
		do
		:: j < length -> over = (queue[j] != o -> over | BIT(queue[j]) : over); j++
		:: else -> break
		od;
		passed = once & over;
		assert(!passed);
		once = once | over;
		place(o);
		if
		:: k < length -> takeOut(k)
		:: else
		fi;
#else
	:: !(held & BIT(o)) && length == 0 && ADMITS(o) ->
#endif
		give(o); result = yes
	:: else ->
		if
		:: ticket ->
			place(o);
			if
			:: k == length -> queue[k] = o; length++; once = once & ~BIT(o)
			:: else
			fi
		:: else
		fi;
		result = no;
		if
		:: !writing || held == 0 ->
			serve(o, NOONE, false);
			if
			:: !mine && ADMITS(o) && length == 0 -> give(o); mine = true
			:: else
			fi;
			result = (mine -> yes : (count == PORTION || held == 0 -> again : no));
			send(NOONE)
		:: else
		fi
	fi
}

inline release(o) { /* rwrelease */
	place(o);
	if
#ifdef OWN_LATE_TICKET_STAYS
	:: k < length && refused[o] -> takeOut(k)
#else
	:: k < length -> takeOut(k)
#endif
	:: else
	fi;
	had = held & BIT(o);
	x = (had -> CLIENT(o) : NOONE);
	count = 0;
	if
	:: had || length > 0 ->
		writing = writing && !had;
		held = held & ~BIT(o);
#ifdef WITHDRAWAL_DOES_NOT_SERVE
		if
		:: held == 0 || had -> pass(x)
		:: else
		fi;
#else
		pass(x);
#endif
		send(x)
	:: else
	fi;
	whole = count < PORTION
}

inline downgrade(o) { /* rwcount */
	x = CLIENT(o);
	count = 0;
	if
	:: (held & BIT(o)) && writing ->
		writing = false;
		unseen = unseen && dead[x]; /* this script ought to look */
		if
		:: length > 0 && !listens -> serve(NOBODY, x, true)
#ifdef DOWNGRADE_PROMPTS_ANYBODY
		:: length > 0 && listens -> prompt(x, CALLERS)
#else
		:: length > 0 && listens && SHARED(queue[0]) -> prompt(x, CALLERS)
#endif
		:: else
		fi;
		send(x)
	:: else
	fi;
	whole = count < PORTION
}

inline answer(o) { /* of a release or downgrade: x is the client, or nobody's */
#ifdef REFUSED_RELEASE_MAKES_ASK
	doubt[o] = doubt[o] || x == NOONE;
#endif
	grants[o] = out[x]; wakes[o] = prompts[x]; more[o] = !whole;
	out[x] = 0; prompts[x] = 0
}

inline unread() {
	out[x] = 0; prompts[x] = 0
}

/* Clients. */

inline enter(o) {
	beside = (SHARED(o) -> relying != 0 && exclusive : relying != 0);
	assert(!beside);
	relying = relying | BIT(o);
	exclusive = !SHARED(o);
	state[o] = holding
}

inline sendRelease(o) {
	if
	:: rel[o] == none -> rel[o] = sent
	:: else -> owed[o] = true
	fi
}

inline rouse(o) {
	if
	:: state[o] == queued -> state[o] = woken
	:: state[o] == asking -> anew[o] = true
	:: else
	fi
}

inline rouseAll(c) {
	y = 0;
	do
	:: y < CALLERS ->
		if
		:: CLIENT(y) == c -> rouse(y)
		:: else
		fi;
		y++
	:: else -> break
	od;
	skip
}

inline abandon(o) { /* its answer will come */
	if
	:: ask[o] != none -> left[o] = ask[o]; ask[o] = none
	:: else
	fi;
	anew[o] = false
}

inline hear(given, prompted) {
	b = 0;
	do
	:: b < CALLERS ->
		if
		:: (given & BIT(b)) && (state[b] == queued || state[b] == woken || state[b] == asking) -> abandon(b); enter(b)
#ifdef MESSAGE_FOR_NOBODY_IGNORED
#elif defined(PROMPT_FOR_NOBODY_RELEASES)
		:: ((given | prompted) & BIT(b)) && state[b] == gone -> sendRelease(b)
#else
		:: (given & BIT(b)) && state[b] == gone -> sendRelease(b) /* nobody waits for it */
#endif
#ifdef MESSAGE_FOR_A_HOLDER_RELEASES
		:: (given & BIT(b)) && (state[b] == holding || state[b] == lesser) -> sendRelease(b)
#endif
		:: (prompted & BIT(b)) && state[b] != gone -> rouse(b)
		:: else
		fi;
		b++
	:: else -> break
	od;
	skip
}

inline read(o) { /* the answer to a release or downgrade */
	if
	:: !dead[CLIENT(o)] ->
		hear(grants[o], wakes[o]);
#ifndef REST_IS_NOT_SERVED
		rest[CLIENT(o)] = (more[o] -> sent : rest[CLIENT(o)]);
#endif
#ifndef LOST_ANSWER_AND_NOBODY_ASKS
		if
		:: doubt[o] -> rouseAll(CLIENT(o))
		:: else
		fi
#endif
	:: else
	fi;
	doubt[o] = false; grants[o] = 0; wakes[o] = 0; more[o] = false
}

/* Owner is a caller, and the network between the caller and the server. */
proctype Owner(byte o) {
end:	do
	:: d_step { state[o] == idle && (!ALIKE(o) || state[o - 1] == gone || (SHARED(o) && state[o - 1] == holding)) -> ask[o] = sent; state[o] = asking }
	:: d_step { tries > 0 && state[o] == idle && (!ALIKE(o) || state[o - 1] == gone) -> tries--; ask[o] = bare; state[o] = asking }
	:: d_step { state[o] == woken && left[o] == none -> ask[o] = sent; state[o] = asking }
	:: d_step { state[o] == asking && ask[o] == yes -> ask[o] = none; anew[o] = false; enter(o) }
	:: d_step { state[o] == asking && (ask[o] == no || ask[o] == again) ->
#ifdef OWN_LATE_TICKET_STAYS
		refused[o] = true;
#endif
		state[o] = (anew[o] || ask[o] == again -> woken : queued);
		ask[o] = none; anew[o] = false }
	:: d_step { leavers > 0 && left[o] == none && (state[o] == asking || state[o] == queued || state[o] == woken) ->
		leavers--; abandon(o); state[o] = gone; done++; sendRelease(o) }
	:: d_step { downgrades > 0 && state[o] == holding && !SHARED(o) && exclusive ->
		downgrades--; exclusive = false; state[o] = lesser; cnt[o] = sent }
	:: d_step { state[o] == holding ->
		relying = relying & ~BIT(o);
		exclusive = exclusive && relying != 0;
		state[o] = gone; done++; sendRelease(o) }

	:: d_step { SENT(ask[o]) || SENT(left[o]) -> /* never both: see woken */
		request(o, ask[o] == sent || left[o] == sent);
		if
		:: SENT(left[o]) -> left[o] = answered
		:: else -> ask[o] = (ask[o] == bare && result == no -> again : result)
		fi }
	:: d_step { left[o] != none && !SENT(left[o]) ->
		left[o] = none;
		if
		:: state[o] == gone && !dead[CLIENT(o)] -> sendRelease(o)
		:: else
		fi }
	:: d_step { rel[o] == sent ->
		spent = (left[o] == none -> spent | BIT(o) : spent);
		release(o); answer(o); rel[o] = answered }
	:: d_step { rel[o] == answered -> rel[o] = (owed[o] -> sent : none); owed[o] = false; read(o) }
	:: d_step { cnt[o] == sent -> downgrade(o); answer(o); cnt[o] = answered }
	:: d_step { cnt[o] == answered ->
		cnt[o] = none;
		state[o] = (state[o] == lesser -> holding : state[o]);
		read(o) }

	/* given up without an answer: executed late, or executed and the answer is lost */
	:: d_step { lates > 0 && state[o] == asking && ask[o] != none && ask[o] != bare && !stray[o] ->
		lates--; stray[o] = ask[o] == sent; ask[o] = none; state[o] = woken; anew[o] = false }
#ifdef LATE_WHILE_HELD
	:: d_step { stray[o] && writing && !(held & spent) -> stray[o] = false; request(o, true) }
#else
	:: d_step { stray[o] -> stray[o] = false; request(o, true) }
#endif
	:: d_step { lates > 0 && rel[o] == sent && !strayRelease[o] -> lates--; strayRelease[o] = true; doubt[o] = true }
	:: d_step { strayRelease[o] -> strayRelease[o] = false; release(o); unread() }
	:: d_step { answers > 0 && rel[o] == answered ->
		answers--; grants[o] = 0; wakes[o] = 0; more[o] = false; doubt[o] = true; rel[o] = sent }
	:: d_step { answers > 0 && cnt[o] == answered ->
		answers--; grants[o] = 0; wakes[o] = 0; more[o] = false; doubt[o] = true; cnt[o] = sent }
	od
}

inline die(kept) { /* client 1: what it sent may still arrive */
	crashes--;
	dead[1] = true; unseen = true;
	do
	:: down[1]?_, _
	:: len(down[1]) == 0 -> break
	od;
	rest[1] = (kept -> rest[1] : none);
	b = FIRST1;
	do
	:: b < FIRST2 ->
		done = (state[b] == gone -> done : done + 1);
		exclusive = exclusive && !(relying & BIT(b));
		relying = relying & ~BIT(b);
		state[b] = gone;
		owed[b] = false; anew[b] = false;
		ask[b] = (kept && SENT(ask[b]) -> ask[b] : none);
		left[b] = (kept -> left[b] : none);
		rel[b] = (kept -> rel[b] : none);
		cnt[b] = (kept -> cnt[b] : none);
		b++
	:: else -> break
	od;
	skip
}

/* Client reads messages, and has the rest of a long queue served. */
proctype Client(byte z) {
end:	do
	:: d_step { len(down[z]) > 0 -> down[z]?i, j; hear(i, j) }
	:: d_step { rest[z] == sent ->
		rest[z] = none;
		count = 0;
		pass(NOONE);
		send(NOONE);
		rest[z] = (count == PORTION && !dead[z] -> sent : none) }
	od
}

/* Fate is what happens to processes, and who else listens. */
proctype Fate() {
end:	do
#ifdef WAITER_DIES /* and not the holder, nor what it asks for */
	:: d_step { crashes > 0 && !(held & (BIT(FIRST2) - BIT(FIRST1))) -> die(false) }
#else
	:: d_step { crashes > 0 -> die(false) }
	:: d_step { crashes > 0 -> die(true) }
#endif
	:: d_step { crashes > 0 && halves > 0 -> halves--; ghost[1] = true; die(false) }
	:: d_step { ghost[1] -> ghost[1] = false; unseen = true }
	:: d_step { visits > 0 && !listens -> listens = true }
	:: d_step { listens -> listens = false; visits-- }
	od
}

inline fire() { /* timers: everybody asks */
	rouseAll(0); rouseAll(1); rouseAll(2)
}

#define BUSY(o) (ask[o] != none || left[o] != none || rel[o] != none || cnt[o] != none || state[o] == woken)
#if R0 + W0 + R1 + W1 + R2 + W2 > 4
#define MOVING (BUSY(0) || BUSY(1) || BUSY(2) || BUSY(3) || BUSY(4))
#elif R0 + W0 + R1 + W1 + R2 + W2 > 3
#define MOVING (BUSY(0) || BUSY(1) || BUSY(2) || BUSY(3))
#elif R0 + W0 + R1 + W1 + R2 + W2 > 2
#define MOVING (BUSY(0) || BUSY(1) || BUSY(2))
#else
#define MOVING (BUSY(0) || BUSY(1))
#endif
#define QUIET (!MOVING && empty(down[0]) && empty(down[1]) && empty(down[2]) && rest[0] == none && rest[1] == none && rest[2] == none)
#define GONE(at)  (!COUNTED(CLIENT(queue[at])))
#define OWED(at)  (length > at && !GONE(at) && ADMITS(queue[at]))

#define ALL_THROUGH (done == CALLERS)
#define EXCUSED(o)  ((late & BIT(o)) || dead[CLIENT(o)])

/* Monitor looks when nothing moves any more, and when only holders and newcomers may move. */
active proctype Monitor() {
	do
#if KEEPALIVES == 0 || defined(AT_ONCE)
	:: d_step { !ALL_THROUGH && QUIET && !unseen && (OWED(0) || (length > 1 && GONE(0) && OWED(1))) -> told = false; assert(told) }
#endif
	:: timeout ->
		if
		:: ALL_THROUGH -> break
		:: d_step { !ALL_THROUGH && leases > 0 && (held & ~relying) -> leases--; held = held & relying; writing = writing && held != 0; fire() }
		:: d_step { !ALL_THROUGH && !(leases > 0 && (held & ~relying)) && keepalives > 0 -> keepalives--; fire() }
		:: d_step { !ALL_THROUGH && !(leases > 0 && (held & ~relying)) && keepalives == 0 -> assert(done == CALLERS) }
		fi
	od;
	skip; /* a break does not lead into a d_step */
	d_step { /* nothing is left on the server */
		i = 0;
		do
		:: i < CALLERS ->
			remains = (held & BIT(i)) && !EXCUSED(i);
			assert(!remains);
			i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < length -> remains = !EXCUSED(queue[i]); assert(!remains); i++
		:: else -> break
		od;
		skip
	}
}

init {
	byte g = 0;
	atomic {
		do
		:: g < CALLERS -> run Owner(g); g++
		:: else -> break
		od;
		run Client(0);
		run Client(1);
		run Client(2);
		run Fate()
	}
}
