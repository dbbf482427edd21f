package bench

import (
	"encoding/base64"
	"errors"
	"slices"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// summarize makes one sample of what the workers and the servers have counted.
func summarize(s Scenario, span time.Duration, tallies []*tally, used counters) (*Sample, error) {
	raw, wakeups := newHistogram(), newHistogram()
	sample := &Sample{
		Elapsed: span, Section: s.Section, Locks: s.Keys, Clients: s.clients(), Counted: used.elapsed,
		Commands: used.commands(), Scripts: used.scripts(), Messages: used.messages(), Calls: used.calls,
		Reads: used.reads, Bytes: used.bytes, Received: used.received, ServerCPU: used.cpu,
	}
	var taken []int64
	timed := 0 // goroutines
	for i, t := range tallies {
		if s.shared() {
			share, err := t.share(s, span)
			if err != nil {
				return nil, err
			}
			sample.Shares = append(sample.Shares, share)
		}
		if t.Timed {
			if err := errors.Join(decode(raw, t.Latencies), decode(wakeups, t.Wakeups)); err != nil {
				return nil, err
			}
			timed += len(t.Taken)
			sample.Longest = max(sample.Longest, t.Longest)
		}
		if s.Kind != Foreign || i < s.Processes {
			taken = append(taken, t.Taken...)
		}
		for _, n := range t.Taken {
			sample.Ops += n
		}
		sample.Handoffs += t.Handoffs
		sample.Inside += t.Inside
		sample.Passed += t.Passed
		sample.Lost += t.Lost
		sample.Errors += t.Errors
		if sample.FirstErr == "" {
			sample.FirstErr = t.FirstErr
		}
		sample.Reads -= t.Probes
		sample.Commands -= t.Probes
		sample.Probes += t.Published
		if t.Beside {
			continue
		}
		sample.ClientCPU += t.CPU
		sample.Allocs += t.Allocs
		sample.AllocBytes += t.AllocBytes
		sample.Goroutines += t.Goroutines
		sample.Memory += t.Memory
	}
	if s.Kind == Idle { // nothing is released, so nothing else is published
		sample.Probes = sample.Messages + used.calls["ping"]
	}
	sample.Messages = max(sample.Messages-sample.Probes, 0)
	sample.Jain = jain(taken)
	if len(taken) > 0 {
		sample.Least, sample.Most = slices.Min(taken), slices.Max(taken)
	}
	sample.Raw, sample.Wakeups = percentiles(raw), percentiles(wakeups)
	sample.latencies = s.correct(raw, span, timed)
	sample.Latency = percentiles(sample.latencies)
	return sample, nil
}

// decode adds what a worker has recorded.
func decode(all *hdr.Histogram, text string) error {
	encoded, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return err
	}
	h, err := hdr.Decode(encoded)
	if err != nil {
		return err
	}
	all.Merge(h)
	return nil
}

// jain is Jain's index of fairness: 1 if all have the same, 1/n if one has all.
func jain(shares []int64) float64 {
	var sum, squares float64
	for _, s := range shares {
		sum += float64(s)
		squares += float64(s) * float64(s)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(shares)) * squares)
}
