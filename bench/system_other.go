//go:build !unix

package bench

import (
	"errors"
	"math"
	"os"
	"time"
)

// mapShared: the processes of a run share memory, for which this has no calls here.
func mapShared(*os.File, int) ([]byte, error) { return nil, errors.ErrUnsupported }

func unmapShared([]byte) error { return nil }

func clock() int64 { return time.Now().UnixNano() }

func nap(d time.Duration) { time.Sleep(d) }

func killSelf() { os.Exit(1) }

func cpuTime() time.Duration { return 0 }

func openFiles() int64 { return math.MaxInt64 }
