package pubsub

import "time"

// Probing, Lingering and Idling return the options with another time than the usual one. A
// negative one ends at once.

func (o Options) Probing(d time.Duration) Options {
	o.probe = d
	return o
}

func (o Options) Lingering(d time.Duration) Options {
	o.linger = d
	return o
}

func (o Options) Idling(d time.Duration) Options {
	o.idle = d
	return o
}
