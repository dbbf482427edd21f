package verify

import (
	"context"
	"strings"

	"github.com/stretchr/testify/require"
)

// retainedFaults are of locks that their clients keep.
var retainedFaults = []fault{
	{
		// Nobody holds the lock, but its key is there for as long as a lease.
		name: "process killed while it keeps a lock", kills: true, steady: true,
		strike: func(ctx context.Context, w *world) {
			for w.between(ctx, 1*ms, 10*ms) {
				lock, owner := w.parked(w.job.names())
				p := w.partyOf(owner)
				if p < 0 {
					continue
				}
				w.parties[p].Stop()
				if _, same := w.parked([]string{lock}); same != owner { // somebody was faster
					w.parties[p].Cont()
					continue
				}
				w.kill(p)
				w.strikes++
				<-ctx.Done()
				return
			}
		},
	},
}

// parked returns a lock that is kept while nobody holds it: the hold count of its owner is 0.
func (w *world) parked(locks []string) (lock, owner string) {
	for _, lock := range locks {
		holds, err := w.admin.HGetAll(context.Background(), lock).Result()
		require.NoError(w, err)
		for owner, count := range holds {
			if count == "0" {
				return lock, owner
			}
		}
	}
	return "", ""
}

// partyOf returns which party has had grants of the owner's client; -1: none that is known.
func (w *world) partyOf(owner string) int {
	client, _, found := strings.Cut(owner, ":")
	if !found {
		return -1
	}
	for p, path := range w.journal {
		events, err := readJournal(path)
		require.NoError(w, err)
		for _, e := range events {
			if strings.HasPrefix(e.Owner, client+":") {
				return p
			}
		}
	}
	return -1
}
