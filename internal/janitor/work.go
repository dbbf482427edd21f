package janitor

import (
	"container/heap"
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/internal/request"
)

// work starts the due jobs.
func (j *Janitor) work() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, p := range j.parts {
		j.workOn(p)
	}
	if j.alarm != nil {
		j.arrange()
	}
}

// workOn starts the due jobs of a server. mu is held.
func (j *Janitor) workOn(p *part) {
	for j.pauseOn(p) == 0 {
		one := heap.Pop(&p.due).(*job)
		if time.Now().After(one.until) && (one.refused > 0 || j.hasty && (one.tried || p.trouble > 0)) {
			j.drop(one)
			continue
		}
		one.index = -1
		p.busy++
		j.busy++
		j.Begin()
		go func() {
			defer j.End()
			j.do(one)
		}()
	}
}

// do makes one attempt.
func (j *Janitor) do(one *job) {
	err := request.ErrNoAnswer
	defer func() { j.tried(one, err) }() // also if a hook of the application ends this goroutine
	err = one.Release(context.Background())
}

// tried notes the end of an attempt. Any answer means: the orphan is gone. No answer puts the job back.
// A refusal (the user has lost the right to the key, say, and may get the right back) also puts back
// the job of a likely orphan, but counts neither as soon nor as trouble. A closed client of go-redis
// sends no more requests, so the job is dropped.
func (j *Janitor) tried(one *job, err error) {
	o, final := j.Classify(err)
	unable := closed(err) // without mu, like the line before: methods of err may be the application's
	j.mu.Lock()
	defer j.mu.Unlock()
	now, p := time.Now(), one.part
	one.tried = true
	p.busy--
	j.busy--
	if o == request.Answered || final {
		p.trouble = 0
	}
	redo := one.redo
	one.redo = false
	switch {
	case unable:
		j.drop(one)
	case o != request.Answered && final && one.Likely:
		one.at = now.Add(request.BackOff(one.refused))
		one.refused++
		heap.Push(&p.due, one)
		one.hurry(false)
	case o == request.Answered || final:
		j.released(one, now, redo)
	default:
		if !now.Before(p.retry) { // several failures at once count as one
			p.retry = now.Add(p.pause())
			p.trouble++
		}
		one.at = now
		heap.Push(&p.due, one)
	}
	j.arrange()
}

// released ends a job after an answered release, or puts the job back for a late request. mu is
// held.
func (j *Janitor) released(one *job, now time.Time, redo bool) {
	switch {
	case redo:
		one.at = now
	case one.late == 0 || j.hasty:
		j.drop(one)
		return
	default:
		one.repeat(now)
	}
	heap.Push(&one.part.due, one)
	one.hurry(!one.at.After(now))
}

// closed reports whether a request was not sent because the client of go-redis is closed. closed does
// not look into errors of several servers, as errors.Is does: some of the clients may be open.
func closed(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if err == redis.ErrClosed {
			return true
		}
	}
	return false
}
