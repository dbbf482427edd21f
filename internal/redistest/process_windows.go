package redistest

import "syscall"

// Windows knows neither: to send one is an error.
const (
	sigStop = syscall.Signal(-1)
	sigCont = syscall.Signal(-1)
)
