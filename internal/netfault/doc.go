// Package netfault is a TCP proxy for tests, between a Redis client and its
// server, that loses, delays and keeps back what it is told to.
//
// It reads requests, replies and push messages of RESP2 and RESP3, and knows
// which reply belongs to which request. So a fault can hit one command: executed
// but never answered ([Proxy.CutReplies]), or executed long after the client has
// given up ([Proxy.Hold], [Proxy.LateRandom]). CLIENT REPLY and MONITOR are not
// understood.
//
// A fault applies to what reaches the proxy after the call that switches it. The
// proxy does nothing that a network could not do: the order within a connection
// is kept, and where something was lost nothing follows.
package netfault
