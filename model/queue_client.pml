/* Part of queue.pml: callers, their queues in memory, the wait of a head. */

inline sendRelease(o) {
	if
	:: rel[o] == none -> rel[o] = sent
	:: else -> owed[o] = true /* one is on its way, and may have been executed */
	fi
}

inline releaseUnused(o) { /* an owner that somebody here uses is not touched */
	isUsed(o);
	if
	:: !used -> sendRelease(o)
	:: else
	fi
}

inline isUsed(o) { /* somebody of the client waits with this owner, or holds */
	used = ticket[TICKETQ(o)] == o;
	b = 0;
	do
	:: b < CALLERS -> used = used || (state[b] == holding && owner[b] == o) || (state[b] == trying && b == o); b++
	:: else -> break
	od;
	skip /* a d_step does not end with a break */
}

inline rouse(x) { /* a wake-up, or a doubt: the head asks */
	if
	:: head[x] == queued -> head[x] = woken
#ifndef WAKE_UP_IN_FLIGHT_FORGOTTEN
	:: head[x] == asking -> again[x] = true
#endif
	:: else
	fi
}

inline rouseAll(c) {
	y = 0;
	do
	:: y < QUEUES ->
		if
		:: HOME(y) == c -> rouse(y)
		:: else
		fi;
		y++
	:: else -> break
	od;
	skip
}

inline enter(caller, with) {
	assert(user == NOBODY || torn);
	user = caller;
	state[caller] = holding;
	owner[caller] = with;
	believed[QUEUE(caller)]++
}

#define SENT(request) (request == try || request == askP || request == askN)
#define OVER(request) (request != none && !SENT(request))
#define RELIED(h) ((state[0] == holding && owner[0] == h) || (state[1] == holding && owner[1] == h) || \
	(state[2] == holding && owner[2] == h) || (state[3] == holding && owner[3] == h))
#define LISTENS(c) ((HOME(0) == c && listening[0]) || (HOME(1) == c && listening[1]) || \
	(HOME(2) == c && listening[2]) || (HOME(3) == c && listening[3]))

inline lose(request) { /* it was sent, or its answer is on its way */
	if
	:: SENT(request) -> stray[o] = request
	:: else
	fi
}

inline abandon(o) { /* nobody waits for the ask in flight; its answer will come */
	if
	:: ask[o] != none -> left[o] = ask[o]; ask[o] = none
	:: else
	fi
}

inline withdraw(x) { /* the queue is empty */
	if
	:: ticket[x] != NOBODY ->
		abandon(ticket[x]);
#ifndef LEAVER_DOES_NOT_WITHDRAW
		sendRelease(ticket[x]);
#endif
		ticket[x] = NOBODY
	:: else
	fi;
	head[x] = none;
	again[x] = false;
	listening[x] = false
}

inline headLeft(x) { /* the next one inherits the ticket, and a wake-up that was not answered with an ask */
	if
	:: len(memory[x]) == 0 -> withdraw(x)
	:: else ->
		if
		:: head[x] == asking -> abandon(ticket[x]); head[x] = woken; again[x] = false
		:: else
		fi
#ifdef TICKET_LOST_ON_INHERITANCE
		;
		if
		:: ticket[x] != NOBODY -> sendRelease(ticket[x]); ticket[x] = NOBODY
		:: else
		fi
#endif
	fi
}

inline granted(x) { /* the ticket's owner holds the lock: its head enters */
	memory[x]?z;
	abandon(ticket[x]);
#ifdef FAIR
	inOrder = true;
	b = 0;
	do
	:: b < CALLERS -> inOrder = inOrder && !(state[b] == waiting && b != z && turn[b] != 0 && turn[b] < turn[z]); b++
	:: else -> break
	od;
	assert(inOrder || lost);
#endif
	enter(z, ticket[x]);
	ticket[x] = NOBODY;
	again[x] = false;
	listening[x] = false;
	head[x] = (len(memory[x]) > 0 -> saved : none) /* behind its own client nobody needs a ticket */
}

#define NAMED 7 /* no grant: the present holder, which asks if it waits here */

inline deliver(o, n) { /* a grant, by a message or in the answer to a release */
	if
#ifdef OLD_GRANT_TRUSTED
	:: ticket[TICKETQ(o)] == o -> granted(TICKETQ(o))
#else
	:: ticket[TICKETQ(o)] == o && n == number[o] -> granted(TICKETQ(o))
	:: ticket[TICKETQ(o)] == o && n != number[o] -> rouse(TICKETQ(o)) /* too late */
#endif
#ifdef GRANT_OF_AN_OLDER_TICKET_TRUSTED
	:: ticket[TICKETQ(o)] != o && ticket[TICKETQ(o)] != NOBODY -> abandon(ticket[TICKETQ(o)]); ticket[TICKETQ(o)] = o; granted(TICKETQ(o))
#endif
	:: ticket[TICKETQ(o)] != o && n == NAMED
	:: else ->
#ifdef MESSAGE_FOR_NOBODY_IGNORED
		skip
#elif defined(MESSAGE_FOR_A_HOLDER_RELEASES)
		sendRelease(o)
#else
		releaseUnused(o)
#endif
	fi
}

proctype Caller(byte g) {
end:	do
	:: d_step { state[g] == idle && (!ALIKE(g) || state[g - 1] != idle) -> /* callers of a client are all alike */
#ifdef FAIR
		memory[g]!g; state[g] = waiting; ticket[g] = g; wanted[CLIENT(g)] = true;
		ask[g] = (live[CLIENT(g)] -> askP : askN); head[g] = asking
#else
		if
		:: believed[QUEUE(g)] > 0 ->
			memory[QUEUE(g)]!g; state[g] = waiting;
			head[QUEUE(g)] = (head[QUEUE(g)] == none -> saved : head[QUEUE(g)])
		:: else -> ask[g] = try; state[g] = trying
		fi
#endif
		}
	:: d_step { state[g] == trying && ask[g] == yes -> ask[g] = none; enter(g, g) }
	:: d_step { state[g] == trying && (ask[g] == no || ask[g] == foreign) ->
		memory[QUEUE(g)]!g; state[g] = waiting;
		listening[QUEUE(g)] = listening[QUEUE(g)] || ask[g] == foreign;
		ask[g] = none;
		if
		:: head[QUEUE(g)] == none && believed[QUEUE(g)] > 0 -> head[QUEUE(g)] = saved
		:: head[QUEUE(g)] == none && believed[QUEUE(g)] == 0 -> wanted[CLIENT(g)] = true; head[QUEUE(g)] = (live[CLIENT(g)] -> woken : joining)
		:: else
		fi }
	:: d_step { leavers > 0 && state[g] == trying -> leavers--; abandon(g); state[g] = gone; done++ }
	:: d_step { leavers > 0 && state[g] == waiting && memory[QUEUE(g)]?[eval(g)] && (head[QUEUE(g)] != asking || left[ticket[QUEUE(g)]] == none) ->
		leavers--; memory[QUEUE(g)]?_; state[g] = gone; done++; headLeft(QUEUE(g)) }
	:: d_step { leavers > 0 && state[g] == waiting && !memory[QUEUE(g)]?[eval(g)] ->
		leavers--; memory[QUEUE(g)]??eval(g); state[g] = gone; done++ }
	/* unlock: handed on in memory, with no request of the grant in flight or unknown, or released */
	:: d_step { state[g] == holding && passes < PASSES && len(memory[QUEUE(g)]) > 0 && left[owner[g]] == none && stray[owner[g]] == none && (head[QUEUE(g)] != asking || left[ticket[QUEUE(g)]] == none) ->
		passes++;
		user = (user == g -> NOBODY : user);
		state[g] = gone; done++; believed[QUEUE(g)]--;
		memory[QUEUE(g)]?z;
		enter(z, owner[g]);
		owner[g] = NOBODY;
		headLeft(QUEUE(g)) }
	:: d_step { state[g] == holding ->
		passes = 0;
		user = (user == g -> NOBODY : user);
		state[g] = gone; done++; believed[QUEUE(g)]--;
		sendRelease(owner[g]);
		owner[g] = NOBODY;
		if
		:: head[QUEUE(g)] == saved && believed[QUEUE(g)] == 0 -> wanted[CLIENT(g)] = true; head[QUEUE(g)] = (live[CLIENT(g)] -> woken : joining)
		:: else
		fi }
	od
}

/* Queue is the head's wait. */
proctype Queue(byte x) {
end:	do
	:: d_step { head[x] == woken && (ticket[x] == NOBODY || ask[ticket[x]] == none) ->
		if
		:: ticket[x] == NOBODY -> memory[x]?<w>; ticket[x] = w
		:: else
		fi;
		ask[ticket[x]] = (live[HOME(x)] -> askP : askN);
		head[x] = asking }
	:: d_step { head[x] == asking && ask[ticket[x]] == yes -> ask[ticket[x]] = none; granted(x) }
	:: d_step { head[x] == asking && ask[ticket[x]] == stale -> ask[ticket[x]] = none; head[x] = woken; again[x] = false }
	:: d_step { head[x] == asking && (ask[ticket[x]] == no || ask[ticket[x]] == foreign) ->
		listening[x] = ask[ticket[x]] == foreign;
		ask[ticket[x]] = none;
		head[x] = (again[x] -> woken : queued);
		again[x] = false }
	:: d_step { rings > 0 && head[x] == queued -> rings--; head[x] = woken }
	od
}
