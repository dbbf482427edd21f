package main

import (
	"context"
	"fmt"
	"sync"
)

const (
	scriptClients = 8
	scriptCalls   = 25 // of each of them
)

// countScript reads a number and writes the next one, by commands that locks need as
// well. Between the two there is time for another script, if the server lets one in. Who may
// not call PEXPIRE does not get as far as a key that would stay.
const countScript = `local n
for i = 1, 20 do
	n = (tonumber(redis.call('hgetall', KEYS[1])[2]) or 0) + 1
end
redis.call('pexpire', KEYS[1], 10000)
redis.call('hset', KEYS[1], 'n', n)
redis.call('pexpire', KEYS[1], 10000)
return n`

// checkScripts finds out whether scripts that run at the same time see each other's
// writes half done. There are servers that run the commands of a script one by one,
// or do so unless told otherwise: two clients then both find a lock free.
func (d *doctor) checkScripts(ctx context.Context) {
	key := []string{d.prefix + d.name}
	var mu sync.Mutex // guards what follows
	seen := make(map[int64]int)
	var failure error
	var wg sync.WaitGroup
	for range scriptClients {
		wg.Go(func() {
			for range scriptCalls {
				n, err := d.rdb.Eval(ctx, countScript, key).Int64()
				mu.Lock()
				seen[n]++
				if err != nil {
					failure = err
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	_ = d.rdb.Del(ctx, key...).Err() // or it ends by itself
	f := finding{Check: "scripts", Level: fine, Text: fmt.Sprintf("atomic, in %d calls by %d connections", scriptClients*scriptCalls, scriptClients)}
	switch {
	case failure != nil:
		f.Level, f.Text = unchecked, fmt.Sprintf("the trial failed: %v", failure)
	case len(seen) < scriptClients*scriptCalls:
		f.Level = broken
		f.Text = fmt.Sprintf("not atomic: %d of %d scripts have overwritten what another had written meanwhile, so two clients may get the same lock", scriptClients*scriptCalls-len(seen), scriptClients*scriptCalls)
		f.Advice = "a setting by which the server runs a script as a transaction, or another server"
	}
	d.report.add(f)
}
