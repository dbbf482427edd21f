// Package request sends requests to Redis. The package sends simultaneous requests together, bounds the
// wait of a caller, repeats a request where repeating is allowed, and tells the outcome of a request
// without an answer, as far as known. The package does not know the purpose of a request.
//
// A request is a function with one command to send, or several, one after another. There are three ways
// to make a request:
//
//   - [Group] sends the commands of all callers in shared pipelines, as databases let
//     concurrent transactions share a write to the log (group commit). A request runs
//     in the goroutine of the caller, and waits for one part of the answer.
//   - [Masters] is the same for a cluster, with a group for each master. [NewCarrier]
//     chooses between the two.
//   - [Detached] runs a request in a separate goroutine: a request that cannot share a pipeline,
//     or must look for the right node of a cluster.
//
// The caller returns as soon as the context ends, with two exceptions. A caller sending a request in
// its own goroutine, to a fast server, may return up to 75 ms later, because go-redis looks at the
// context only while waiting for a connection. A caller of a sent request with a [Trailer] waits for
// the answer. When a caller leaves, an unsent request is cancelled. A sent request goes on, and the
// caller's function gets the outcome.
//
// To follow an answered request, read [Do] in repeat.go, then call.go, and group.go from process on:
// the functions stand in the order of execution. A pipeline is a batch, in batch.go. Requests without
// an answer are in unanswered.go.
package request
