// Package topology holds the evidence for locks on Redis Sentinel and Redis
// Cluster: real servers, whose masters are replaced and whose slots move while
// locks are held and waited for. It has nothing but tests.
//
// The long series, with its table, and the throughput run with
//
//	RLOCK_TOPOLOGY=1 go test -count=1 -v -timeout 15m ./internal/topology
//
// and the throughput alone, on a machine that does nothing else, with
//
//	RLOCK_TOPOLOGY=1 go test -count=1 -v -run TestThroughput ./internal/topology
package topology
