package pubsub

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

const ms = time.Millisecond

// asked is a vigil whose first probe was at 1 s and the second, as it was not heard,
// at 1.5 s; it is to look again at 1.75 s.
func asked() vigil {
	return vigil{interval: 500 * ms, wake: 1750 * ms, probed: 1500 * ms, due: 2500 * ms, probes: 4, unheard: 2}
}

func TestVerdict(t *testing.T) {
	for name, test := range map[string]struct {
		edit func(v *vigil, s *sight)
		want error
	}{
		"answered, and not heard for 1.5 intervals": {func(*vigil, *sight) {}, errDeaf},
		"not for 1.5 intervals yet":                 {func(_ *vigil, s *sight) { s.echoed = 1501 * ms }, nil},
		"never answered":                            {func(_ *vigil, s *sight) { s.echoed = 0 }, nil},
		"heard":                                     {func(_ *vigil, s *sight) { s.heard = 1500 * ms }, nil},
		"an event that came before the last probe":  {func(_ *vigil, s *sight) { s.heard = 1499 * ms }, errDeaf},
		"somebody is busy with what was heard":      {func(_ *vigil, s *sight) { s.reading = false }, nil},
		"one probe only":                            {func(v *vigil, _ *sight) { v.unheard = 1 }, nil},
		"the process stood still just now":          {func(v *vigil, _ *sight) { v.wake = 1999 * ms }, nil},
		"the process stood still a while ago":       {func(v *vigil, _ *sight) { v.woke = 1550 * ms }, nil},
		"the process stood still, silence": {func(v *vigil, s *sight) {
			v.unheard, v.due, v.wake, s.echoed = 3, 2000*ms, 1990*ms, 0
		}, nil},
		"silence": {func(v *vigil, s *sight) {
			v.unheard, v.due, v.wake, s.echoed = 3, 2000*ms, 2250*ms, 0
		}, errSilent},
		"requests are not answered": {func(_ *vigil, s *sight) { s.echoed, s.unanswered = 0, 4*time.Second }, errSilent},
	} {
		v := asked()
		s := sight{now: 2250 * ms, heard: 900 * ms, echoed: 1500 * ms, awaited: true, reading: true}
		v.wake = 2250 * ms
		test.edit(&v, &s)
		assert.Equal(t, test.want, v.step(s).verdict, name)
	}
}

// A process that stands still again and again for longer than a probe has time keeps
// its connection, and one that runs is told soon.
func TestStandingStillIsNotSilence(t *testing.T) {
	v := vigil{interval: 500 * ms, wake: 50 * ms}
	var now time.Duration
	for range 100 {
		now = v.wake + 10*time.Second
		a := v.step(sight{now: now, echoed: 1, awaited: true, reading: true})
		assert.NoError(t, a.verdict)
		v.wake = now + a.sleep
	}
	deaf := now
	for {
		now = v.wake
		a := v.step(sight{now: now, echoed: deaf, awaited: true, reading: true})
		v.wake = now + a.sleep
		if a.verdict != nil {
			break
		}
	}
	assert.Equal(t, 750*ms, now-deaf)
}
