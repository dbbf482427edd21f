// Package request sends requests to Redis. It sends those that are made at the same time
// together, bounds how long a caller waits, repeats what may be repeated, and says what is
// known of a request that got no answer. It knows nothing of what the requests do.
//
// A request is a function that sends one command, or several, one after the other. These are
// the ways to make it:
//
//   - [Group] sends the commands of all callers in shared pipelines, as databases let
//     concurrent transactions share a write to the log (group commit). A request runs
//     in the goroutine of its caller, which only waits for its part of the answer.
//   - [Masters] does that for a cluster, with a group for each master. [NewCarrier]
//     chooses between the two.
//   - [Detached] runs a request in a goroutine of its own. It is for requests that cannot
//     share a pipeline, or that look for the right node of a cluster.
//
// Either way the caller returns as soon as its context ends. Only a caller that sends the
// request itself, to a server that was fast, may return up to 75 ms after it was cancelled,
// because go-redis looks at the context of a command only while it waits for a connection.
// When the caller leaves, an unsent request is cancelled. A sent request goes on, and the outcome
// is passed to the caller's function.
//
// To follow a request that is answered, read [Do] in repeat.go, then call.go, and group.go from
// process on: its functions stand in the order in which they run. What they send is in
// batch.go. Requests that get no answer are in unanswered.go.
package request
