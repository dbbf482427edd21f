// Rlockvet finds mistakes around locks of package rlock:
//
//   - the outer context under a lock. A lock call under it does not re-enter; one of
//     the same lock waits for its own caller;
//   - the dropped context. A lost lease cannot end the work;
//   - the missing Unlock, and the deferred one whose error nobody gets;
//   - work that goes on although the lock call has failed;
//   - work under the context of a lock after its Unlock;
//   - a context that is declared in a branch, where the lock is held for longer.
//
// It reads the code of one function at a time, and rather says nothing than something
// wrong. What exactly it finds is documented in package analyzer.
//
//	go run github.com/go-rlock/rlock/cmd/rlockvet@latest ./...
//
// Installed, it works as a tool of go vet as well, which keeps its results:
//
//	go vet -vettool=$(which rlockvet) ./...
//
// A line that is meant to be so ends with a comment that says why, or follows one:
//
//	_, hold, err := mu.Lock(ctx) //rlockvet:ignore the test looks at the lock only
package main

import (
	"golang.org/x/tools/go/analysis/singlechecker"

	"github.com/go-rlock/rlock/cmd/rlockvet/analyzer"
)

func main() { singlechecker.Main(analyzer.Analyzer) }
