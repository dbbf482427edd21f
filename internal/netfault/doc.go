// Package netfault is a TCP proxy for tests, between a Redis client and its server. The proxy
// loses, delays and keeps back requests and replies on demand.
//
// The proxy reads requests, replies and push messages of RESP2 and RESP3, and matches each reply
// with its request. So a fault can hit one command: executed but never answered
// ([Proxy.CutReplies]), or executed long after the client has given up ([Proxy.Hold],
// [Proxy.LateRandom]). The proxy does not understand CLIENT REPLY and MONITOR.
//
//	client            proxy                     server
//	evalsha try  ───► Hold keeps it back
//	gives up, closes
//	                  Deliver  ───────────────► executes it: the lock is held by nobody
//
// A fault applies to traffic that reaches the proxy after the call that switches the fault. The proxy
// does only what a network can do: the order within a connection is kept, and nothing follows
// lost data.
package netfault
