package janitor

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/internal/request"
)

// work starts the due jobs of a server, and sets the alarm for the next. While it may start no more, the end of a job of
// this server sets the alarm, and so does the end of any job that makes room among all servers.
func (j *Janitor) work(p *part) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for len(p.due) > 0 {
		most := maxReleases
		switch {
		case p.trouble > maxPrompt:
			most = 1
		case p.trouble > 0, j.busy >= maxReleases:
			most = maxProbes
		}
		if p.busy >= most {
			return
		}
		one, pause := p.due[0], time.Duration(0)
		if !j.hasty || one.tried {
			pause = time.Until(one.at)
		}
		if p.trouble > 0 {
			pause = max(pause, time.Until(p.retry))
		}
		if pause > 0 {
			p.alarm.Reset(pause)
			return
		}
		p.due[0] = nil
		p.due = p.due[1:]
		if time.Now().After(one.until) && (one.refused > 0 || j.hasty && (one.tried || p.trouble > 0)) {
			j.drop(one)
			continue
		}
		one.busy = true
		p.busy++
		j.busy++
		j.Begin()
		go func() {
			defer j.End()
			err := request.ErrNoAnswer
			defer func() { j.tried(one, err) }() // also if a hook of the application ends this goroutine
			err = one.Release(context.Background())
		}()
	}
}

// tried notes the end of an attempt. Any answer means that the orphan is gone, but a late request may still arrive. No
// answer puts the job back. A refusal (for example, the user has lost the right to the key, and may get the right back)
// also puts back the job of a likely orphan, but counts neither as soon nor as trouble. A closed client of go-redis
// sends no more requests, so the job is dropped.
func (j *Janitor) tried(one *job, err error) {
	o, final := j.Classify(err)
	unable := closed(err) // without mu, like the line before: methods of err may be the application's
	j.mu.Lock()
	defer j.mu.Unlock()
	now, p, redo := time.Now(), one.part, one.redo
	one.busy, one.tried, one.redo = false, true, false
	p.busy--
	if j.busy--; j.busy == maxReleases-1 { // each server may start more than maxProbes again
		for _, other := range j.parts {
			other.alarm.Reset(0)
		}
	}
	silent := o != request.Answered && !final
	if !silent {
		p.trouble = 0
	}
	switch {
	case unable:
		j.drop(one)
	case silent:
		if !now.Before(p.retry) { // several failures at once count as one
			pause := slowRetry
			if p.trouble <= maxPrompt {
				pause = min(request.BackOff(p.trouble), maxRetry)
			}
			p.retry = now.Add(pause)
			p.trouble++
		}
		one.schedule(now)
	case o != request.Answered && one.Likely:
		one.schedule(now.Add(request.BackOff(one.refused)))
		one.refused++
		one.hurry(false)
	case redo:
		one.schedule(now)
		one.hurry(true)
	case one.late == 0 || j.hasty:
		j.drop(one)
	default:
		if one.answered.IsZero() {
			one.answered = now
		}
		one.schedule(one.answered.Add(one.late))
		one.tried = false
		one.hurry(!one.at.After(now))
		if last := min(max(one.Lease, minArrival), maxArrival); one.late < last {
			one.late = min(2*one.late, last)
		} else {
			one.late = 0
		}
	}
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
