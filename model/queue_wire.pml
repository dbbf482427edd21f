/* Part of queue.pml: connections, a caller of Redisson, and what happens to keys and processes. */

inline confirmed(c) { /* the confirmation is a wake-up */
	y = 0;
	do
	:: y < QUEUES ->
		if
		:: HOME(y) == c && head[y] == joining -> head[y] = woken
#ifndef NO_ASK_AFTER_CONFIRMATION
		:: HOME(y) == c && head[y] != joining -> rouse(y)
#endif
		:: else
		fi;
		y++
	:: else -> break
	od;
	skip
}

inline cut(c) {
	lost = true;
	heard[c] = false;
	former[c] = false;
	listener[c] = false;
	deaf[c] = false;
	do
	:: up[c]?_
	:: down[c]?_, _, _
	:: len(up[c]) == 0 && len(down[c]) == 0 -> break
	od;
	skip
}

inline die(c, kept) { /* a process: what it sent may still arrive */
	crashes--;
	cut(c);
	dead[c] = true; wanted[c] = false; asked[c] = false; live[c] = false; broken[c] = false;
	b = 0;
	do
	:: b < CALLERS ->
		if
		:: CLIENT(b) == c ->
			done = (state[b] == gone -> done : done + 1);
			user = (user == b -> NOBODY : user);
			state[b] = gone;
			owner[b] = NOBODY;
			owed[b] = false;
			ask[b] = (kept -> ask[b] : none);
			left[b] = (kept -> left[b] : none);
			rel[b] = (kept -> rel[b] : none);
			w = QUEUE(b);
			head[w] = none; ticket[w] = NOBODY; again[w] = false; believed[w] = 0; listening[w] = false;
			do
			:: memory[w]?_
			:: len(memory[w]) == 0 -> break
			od
		:: else
		fi;
		b++
	:: else -> break
	od;
	skip
}

/* The next on a connection is a message, not the confirmation of a subscription. */
#define PUBLISHED(c) (down[c]?[grant] || down[c]?[wake] || down[c]?[star] || down[c]?[zero])

/* Client is a client's connection from both ends. */
proctype Client(byte c) {
end:	do
	:: d_step { wanted[c] && !asked[c] && !broken[c] && !dead[c] && len(up[c]) < 2 -> asked[c] = true; up[c]!sub }
	:: d_step { up[c]?[sub] -> up[c]?_; heard[c] = true; put(c, subbed, 0, 0) }
	:: d_step { up[c]?[unsub] -> up[c]?_; heard[c] = false }
	:: d_step { LISTENS(c) && !listener[c] && live[c] -> listener[c] = true; put(c, listens, 0, 0) }
	:: d_step { !LISTENS(c) && listener[c] -> listener[c] = false }
	:: d_step { len(down[c]) > 0 ->
		down[c]?what, v, m;
		if
		:: what == subbed -> live[c] = true; confirmed(c)
		:: what == grant -> deliver(v, m)
		:: what == wake && ticket[TICKETQ(v)] == v -> rouse(TICKETQ(v))
		:: what == wake && ticket[TICKETQ(v)] != v -> releaseUnused(v)
		:: what == star -> rouseAll(c)
		:: what == zero ->
#ifndef FOREIGN_RELEASE_UNHEARD
			rouseAll(c)
#else
			skip
#endif
		:: what == listens ->
#ifndef NO_ASK_AFTER_LISTENING
			rouseAll(c)
#else
			skip
#endif

		fi }
	:: d_step { losses > 0 && PUBLISHED(c) -> losses--; down[c]?_, _, _ }
	:: d_step { deafs > 0 && asked[c] && !broken[c] && !deaf[c] ->
		deafs--;
		deaf[c] = true;
		do
		:: down[c]?_, _, _
		:: len(down[c]) == 0 -> break
		od;
		skip }
	/* a probe is counted, and not heard: the connection is given up */
#ifdef DEAF_IS_REPLACED_QUIETLY
	:: d_step { deaf[c] -> deaf[c] = false }
#elif !defined(DEAF_IS_NOT_NOTICED)
	:: d_step { deaf[c] -> cut(c); broken[c] = true }
	:: d_step { deaf[c] && halves > 0 -> halves--; cut(c); broken[c] = true; ghost[c] = true }
#endif
	:: d_step { failovers > 0 && heard[c] && !broken[c] && !deaf[c] -> failovers--; heard[c] = false; former[c] = true }
	:: d_step { former[c] -> cut(c); broken[c] = true } /* nobody received a probe */
	:: d_step { lingers > 0 && live[c] && head[c] == none /* of a plain lock */ && len(up[c]) < 2 ->
		lingers--; asked[c] = false; live[c] = false; wanted[c] = false; up[c]!unsub }
	:: d_step { breaks > 0 && asked[c] && !broken[c] -> breaks--; cut(c); broken[c] = true }
	:: d_step { breaks > 0 && halves > 0 && asked[c] && !broken[c] -> breaks--; halves--; cut(c); broken[c] = true; ghost[c] = true }
	:: d_step { broken[c] -> broken[c] = false; asked[c] = false; live[c] = false; rouseAll(c) }
	:: d_step { ghost[c] -> ghost[c] = false }
	od
}

inline takes() {
	assert(user == NOBODY || torn);
	user = JAVA; holder = JAVA; redisson = holding
}

/* Redisson is a caller that knows no tickets. It hears of releases, if it listens, and tells of its own. */
proctype Redisson() {
end:	do
	:: d_step { redisson == idle ->
		if
		:: holder == NOBODY -> takes()
		:: else -> redisson = trying
		fi }
	:: d_step { redisson == trying -> java = true; announced = true; redisson = waiting }
	:: d_step { redisson == waiting && announced ->
		announced = false;
		if
		:: holder == NOBODY -> java = false; takes()
		:: else
		fi }
	:: d_step { redisson == holding ->
		redisson = gone;
		user = (user == JAVA -> NOBODY : user);
		if
		:: holder == JAVA ->
			holder = NOBODY;
			k = 0;
			do
			:: k < CLIENTS ->
				if
				:: listener[k] -> put(k, zero, 0, 0)
				:: else
				fi;
				k++
			:: else -> break
			od
		:: else
		fi }
	od
}

/* Fate is what happens to keys and processes. */
proctype Fate() {
end:	do
	:: d_step { forces > 0 && holder != NOBODY && user != NOBODY ->
		forces--; torn = true; lost = true; user = NOBODY; holder = NOBODY; last = NOBODY; passOn(NOBODY, CLIENTS, true); carry = NOBODY }
	:: d_step { dels > 0 && holder != NOBODY && user != NOBODY -> dels--; torn = true; lost = true; user = NOBODY; holder = NOBODY }
	:: d_step { flushes > 0 && holder != NOBODY ->
		flushes--; torn = true; lost = true; user = NOBODY; holder = NOBODY; last = NOBODY;
		do
		:: tickets?_
		:: len(tickets) == 0 -> break
		od;
		skip }
	:: d_step { lapses > 0 && holder < JAVA && !RELIED(holder) && state[holder] != trying -> lapses--; lost = true; lapse() }
#ifdef WAITER_DIES /* and not the holder, nor what it asks for */
	:: d_step { crashes > 0 && !dead[1] && (holder >= JAVA || CLIENT(holder) != 1) -> die(1, false) }
#else
	:: d_step { crashes > 0 && !dead[1] -> die(1, true) }
	:: d_step { crashes > 0 && !dead[1] -> die(1, false) }
	:: d_step { crashes > 0 && halves > 0 && heard[1] && !dead[1] -> halves--; die(1, true); ghost[1] = true }
#endif
	od
}
