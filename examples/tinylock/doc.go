// Package tinylock is a lock on Redis in five steps. Each step is a package of a single file, which differs from the
// step before by one small diff and gives one guarantee more. README.md shows the diffs, and the test of this package
// runs each step's check on the step before, where it must fail.
//
//	step0  one owner at a time; an unlock ends nobody else's hold
//	step1  the lease is renewed, and a loss is told before anybody else can hold the lock
//	step2  nested: a context that owns the lock does not wait for itself
//	step3  a waiter is woken by a message
//	step4  a request that is repeated, or arrives late, does no harm
//
// The steps use the scripts, the key and the channel of package rlock. So a tiny lock and a lock of rlock exclude each other.
package tinylock
