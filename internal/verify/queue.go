package verify

import "sync"

// queue knows which calls of a party wait, and notes those of which the library
// tells that they were refused: a fair lock must serve them before any later call.
type queue struct {
	mu      sync.Mutex               // guards waiting
	waiting map[string]map[int]event // by lock, then by client
}

func (q *queue) join(client int, e event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting == nil {
		q.waiting = make(map[string]map[int]event)
	}
	for _, t := range e.on {
		if q.waiting[t.lock] == nil {
			q.waiting[t.lock] = make(map[int]event)
		}
		q.waiting[t.lock][client] = e
	}
}

func (q *queue) leave(client int, e event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range e.on {
		if delete(q.waiting[t.lock], client); len(q.waiting[t.lock]) == 0 {
			delete(q.waiting, t.lock)
		}
	}
}

// refused returns the call that was meant, if there is no doubt: the library does
// not tell which it was, only the lock.
func (q *queue) refused(lock string) (e event, sure bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for client, call := range q.waiting[lock] {
		e = event{Lock: lock, Client: client, ID: call.ID, Kind: opQueued}
	}
	return e, len(q.waiting[lock]) == 1
}
