// Package request carries requests to Redis. It sends those that are made at the
// same time together, bounds how long each is waited for, repeats what may be
// repeated, and says what is known of a request that got no answer. It knows nothing
// of what the requests do.
//
// A request is a function that sends one command, or several in turn. These are the ways
// to make it:
//
//   - [Group] sends the commands of all callers in shared pipelines, as databases let
//     concurrent transactions share a write to the log (group commit). A request runs
//     in the goroutine of its caller, who only waits for its part of the answer.
//   - [Masters] does that for a cluster, with a group for each master. [NewCarrier]
//     chooses between the two.
//   - [Detached] runs a request in a goroutine of its own. It is for what cannot share
//     a pipeline, or is looking for the right node of a cluster.
//
// Either way the caller returns as soon as its context ends; one whose own goroutine sends
// the request, to a server that was fast, may do so 75 ms after it was cancelled. go-redis
// looks at the context of a command only while it waits for a connection. What the
// caller leaves behind is cancelled if it was not sent yet; what was sent goes on, and
// its outcome is told to a function that the caller has left for it.
//
// To follow a request that is answered, read [Do] in repeat.go, call.go, and group.go from
// process on: its functions stand in the order in which they run. What they send is in
// batch.go. What ends without an answer is in unanswered.go.
package request
