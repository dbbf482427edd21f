/* Part of queue.pml: the scripts, and the network that executes them. */

inline put(c, what, o, n) { /* on a connection: the server cannot know whether it arrives */
	if
	:: !deaf[c] -> assert(nfull(down[c])); down[c]!what, o, n
	:: else
	fi
}

inline tell(what, o) { /* PUBLISH to the owner's client */
	if
	:: heard[CLIENT(o)] || former[CLIENT(o)] -> put(CLIENT(o), what, o, number[o])
	:: else
	fi
}

inline announce() { /* `-0` on the unlock channel: our own clients need not come */
	announced = announced || java
}

#ifdef COUNTLESS
#define RECEIVERS(o) true        /* the number of receivers is that of one node */
#else
#define RECEIVERS(o) (heard[CLIENT(o)] || ghost[CLIENT(o)])
#endif
#define LISTENERS    (java || listener[0] || listener[1] || listener[2])

inline wakeFirst() { /* the first that can hear; its ticket stays */
	m = len(tickets);
	found = false;
	do
	:: m > 0 ->
		tickets?w;
		if
		:: !found && hears[w] && RECEIVERS(w) ->
			found = true;
			tell(wake, w);
#ifdef WAKE_UP_POPS
#else
			tickets!w
#endif
		:: !found && hears[w] && !RECEIVERS(w) -> lost = true
		:: else -> tickets!w
		fi;
		m--
	:: else -> break
	od;
	skip
}

/* passOn gives the free lock to the first ticket. asker: whose ask it is; from: whose release. */
inline passOn(asker, from, toForeigners) {
	carry = NOBODY;
	do
	:: len(tickets) == 0 -> announce(); break
#ifndef FOREIGN_LISTENER_IGNORED
	:: len(tickets) > 0 && toForeigners && LISTENERS -> announce(); wakeFirst(); break
	:: len(tickets) > 0 && !(toForeigners && LISTENERS) ->
#else
	:: len(tickets) > 0 ->
#endif
		tickets?k;
#ifdef TICKET_GRANTED_TWICE
		if
		:: k != asker && len(tickets) < CALLERS -> tickets!k
		:: else
		fi;
#endif
		if
		:: k == asker || from == CLIENT(k) || !hears[k] || RECEIVERS(k) ->
			assert(!spent[k] || late[k]);   /* no ticket is granted twice */
			assert(!java || !toForeigners); /* a caller of Redisson gets its chance */
			holder = k;
			last = k;
			if
			:: k != asker && from == CLIENT(k) -> carry = k
			:: k != asker && from != CLIENT(k) && hears[k] -> tell(grant, k)
			:: else
			fi;
			break
		:: else ->
#ifdef ZERO_RECEIVERS_IGNORED
			holder = k; last = k; break
#else
#ifdef SENT_BEFORE_IT_IS_COUNTED
			tell(grant, k);
#endif
			lost = true
#endif
		fi
	od;
	skip
}

inline place(o, P) {
#ifdef ASK_LOSES_THE_PLACE
	if
	:: tickets??[eval(o)] -> tickets??eval(o)
	:: else
	fi;
#endif
	if
	:: tickets??[eval(o)] ->
#ifdef DEAF_REPLACES_HEARING
		hears[o] = P
#else
		hears[o] = hears[o] || P
#endif
	:: else ->
		tickets!o;
		hears[o] = P;
		if
		:: turn[o] == 0 -> turns++; turn[o] = turns
		:: else
		fi
	fi
}

inline dropLapsed() { /* the client that was granted last did not release: it may be dead */
	if
	:: last != NOBODY ->
		m = len(tickets);
		do
		:: m > 0 ->
			tickets?w;
			if
			:: CLIENT(w) == CLIENT(last) -> lost = true
			:: else -> tickets!w
			fi;
			m--
		:: else -> break
		od;
#ifndef STAR_IS_NOT_SENT
		tell(star, last);
#endif
		last = NOBODY
	:: else
	fi
}

inline execute(o, how) { /* try and ask */
	isUsed(o);
	late[o] = late[o] || (spent[o] && !used);
	if
	:: holder == o -> result = yes
	:: holder != o && holder != NOBODY ->
		if
		:: how != try -> place(o, how == askP)
		:: else
		fi;
		result = (holder == JAVA -> foreign : no)
	:: holder == NOBODY && how == try -> holder = o; result = yes
	:: holder == NOBODY && how != try ->
#ifdef PLACED_BEFORE_DROPPED
		place(o, how == askP);
		dropLapsed();
#else
		dropLapsed();
		place(o, how == askP);
#endif
#ifdef ASK_ONLY_WAKES
		passOn(o, CLIENTS, true);
#else
		passOn(o, CLIENTS, false);
#endif
		taken = holder != NOBODY;
		assert(taken); /* an ask does not leave the lock free */
		result = (holder == o -> yes : no)
	fi
}

#ifdef PASSED_ON_IN_ANY_ANSWER
#define NOT_HELD CLIENT(o)
#else
#define NOT_HELD CLIENTS /* a grant travels in an answer only if that release freed the lock */
#endif

inline release(o) {
	if
	:: last == o -> last = NOBODY
	:: else
	fi;
	carry = NOBODY;
	freed = holder == o;
	if
#ifdef TICKET_GRANTED_TWICE
	:: tickets??[eval(o)] && !freed -> tickets??eval(o)
#else
	:: tickets??[eval(o)] -> tickets??eval(o)
#endif
	:: else
	fi;
	if
	:: holder == o -> holder = NOBODY; passOn(NOBODY, CLIENT(o), true)
#ifdef HELD_LOCK_IS_PASSED_ON
	:: holder != o && len(tickets) > 0 -> passOn(NOBODY, CLIENT(o), true)
#elif !defined(WITHDRAWAL_DOES_NOT_PASS_ON)
	:: holder == NOBODY && len(tickets) > 0 -> passOn(NOBODY, NOT_HELD, true)
#endif
#ifndef FOREIGN_HOLDER_LEFT_ALONE
	:: holder == JAVA -> wakeFirst() /* who was told of it before may have left: somebody has to listen */
#endif
	:: else
	fi
}

inline lapse() { /* the end of the TTL */
	if
	:: holder != JAVA ->
		number[holder]++;
		if
		:: ask[holder] == yes -> ask[holder] = stale
		:: else
		fi
	:: else
	fi;
	holder = NOBODY
}

/* Network executes an owner's requests, at any time after they were sent, and returns the answers. */
proctype Network(byte o) {
end:	do
	:: d_step { SENT(ask[o]) -> execute(o, ask[o]); ask[o] = result }
	:: d_step { SENT(left[o]) -> execute(o, left[o]); left[o] = (result == yes -> yes : answered) }
	:: d_step { OVER(left[o]) && !dead[CLIENT(o)] ->
#ifndef HEIR_IS_NOT_TOLD
		if
		:: left[o] == yes && ticket[TICKETQ(o)] == o -> rouse(TICKETQ(o))
		:: else
		fi;
#endif
		left[o] = none
#ifndef ABANDONED_ASK_NOT_SWEPT
#ifdef HEIR_IS_SWEPT
		; sendRelease(o)
#else
		; releaseUnused(o)
#endif
#endif
		}
	:: d_step { owed[o] && rel[o] == none -> owed[o] = false; rel[o] = sent }
	:: d_step { rel[o] == sent ->
		spent[o] = spent[o] || left[o] == none;
		release(o);
		carried[o] = carry;
		carriedNumber[o] = (carry < CALLERS -> number[carry] : 0);
#ifndef HOLDER_IS_NOT_NAMED
		if
		:: !freed && holder < JAVA && CLIENT(holder) == CLIENT(o) -> carried[o] = holder; carriedNumber[o] = NAMED
		:: else
		fi;
#endif
		carry = NOBODY;
		rel[o] = answered }
	:: d_step { rel[o] == answered ->
		if
		:: carried[o] != NOBODY && !dead[CLIENT(o)] -> deliver(carried[o], carriedNumber[o])
		:: else
		fi;
		carried[o] = NOBODY;
		carriedNumber[o] = 0;
		rel[o] = none }
	/* given up without an answer: executed late, or executed and the answer is lost */
	:: d_step { lates > 0 && stray[o] == none && ask[o] != none && state[o] == trying -> lates--; lose(ask[o]); ask[o] = try; doubted[o] = true }
	:: d_step { doubted[o] && state[o] == gone && !dead[CLIENT(o)] -> doubted[o] = false; releaseUnused(o) }
	:: d_step { lates > 0 && stray[o] == none && ask[o] != none && ticket[TICKETQ(o)] == o && head[TICKETQ(o)] == asking ->
		lates--; lose(ask[o]); ask[o] = none; head[TICKETQ(o)] = woken; again[TICKETQ(o)] = false }
#ifdef LATE_WHILE_HELD
	:: d_step { stray[o] != none && holder != NOBODY && !spent[holder] ->
#else
	:: d_step { stray[o] != none ->
#endif
		 execute(o, stray[o]); stray[o] = none }
	:: d_step { lates > 0 && rel[o] == sent && !strayRelease[o] -> lates--; strayRelease[o] = true }
	:: d_step { strayRelease[o] -> strayRelease[o] = false; release(o); carry = NOBODY }
	:: d_step { lates > 0 && rel[o] == answered ->
		lates--; carried[o] = NOBODY; carriedNumber[o] = 0; rel[o] = sent }
	od
}
