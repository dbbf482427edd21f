package fifo

// Waiter is a goroutine that waits. It is embedded by what its user knows of it, a W, and enters
// a [Queue] once.
type Waiter[W any, G Grant] struct {
	self           *W
	before, behind *Waiter[W, G] // nil at the ends of the queue

	State State
	Given G // handed to it, and not taken yet
	Got   G // the one that it has

	wake  chan struct{} // capacity 1; made when it first has to wait
	woken bool          // there was a wake-up before that
}

// State says what a waiter is doing: the comment of the package has a diagram.
type State int

// States of a waiter.
const (
	Blocked State = iota // another waiter is before it, or its process has the lock
	Asking               // a request is under way, or about to be made
	Queued               // that was refused: it sleeps until something happens
)

// Wake wakes the waiter. A wake-up that comes before it sleeps is kept for it; several are one.
func (w *Waiter[W, G]) Wake() {
	if w.wake == nil {
		w.woken = true
		return
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// C returns the channel of the wake-ups. The mutex is not held while it is waited for.
func (w *Waiter[W, G]) C() <-chan struct{} {
	if w.wake == nil {
		w.wake = make(chan struct{}, 1)
		if w.woken {
			w.Wake()
		}
	}
	return w.wake
}

// Ready reports whether the waiter can be handed a grant.
func (w *Waiter[W, G]) Ready() bool {
	var none G
	return w.State != Asking && w.Given == none && w.Got == none
}

// Give hands it a grant.
func (w *Waiter[W, G]) Give(g G) {
	w.Given = g
	w.Wake()
}

// Take makes the grant that it was handed the one that it has, and returns it; the zero value if
// there is none.
func (w *Waiter[W, G]) Take() (g G) {
	var none G
	if w.Given != none {
		w.Got, w.Given = w.Given, none
		return w.Got
	}
	return none
}
