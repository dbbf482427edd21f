package kind

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// taken takes all places of a node.
func taken(t *testing.T, p *Places, ctx context.Context, n node) (release []func()) {
	for range placesOfNode {
		began := time.Now()
		release = append(release, p.take(ctx, n))
		require.Zero(t, time.Since(began))
	}
	return release
}

// Whoever finds no place waits for one, at this node only.
func TestFakeTimePlacesOfANode(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		var p Places
		a, b := node{rdb: "a"}, node{rdb: "a", master: "b"}
		release := taken(t, &p, t.Context(), a)
		got := make(chan func(), 2)
		for range cap(got) {
			go func() { got <- p.take(t.Context(), a) }()
		}
		synctest.Wait()
		require.Empty(t, got)
		for _, other := range taken(t, &p, t.Context(), b) {
			other()
		}
		synctest.Wait()
		require.Empty(t, got, "places of another node")
		release[0]()
		synctest.Wait()
		require.Len(t, got, 1, "one for one")
		for _, r := range release[1:] {
			r()
		}
		(<-got)()
		(<-got)()
		require.Empty(t, p.nodes, "what nobody uses is forgotten")
	})
}

// A pipeline may hang for longer than its context: the place is free by then, and what was given back
// is not given back again.
func TestFakeTimePlaceIsFreeWhenTheContextEnds(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		var p Places
		a := node{rdb: "a"}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		hang := taken(t, &p, ctx, a)
		impatient, leave := context.WithTimeout(t.Context(), time.Second/2)
		defer leave()
		began := time.Now()
		require.Nil(t, p.take(impatient, a))
		require.Equal(t, time.Second/2, time.Since(began))
		release := p.take(t.Context(), a)
		require.Equal(t, time.Second, time.Since(began))
		rest := make([]func(), placesOfNode-1)
		for i := range rest {
			rest[i] = p.take(t.Context(), a)
		}
		for _, r := range hang {
			r() // at last
		}
		got := make(chan func(), 1)
		go func() { got <- p.take(t.Context(), a) }()
		synctest.Wait()
		require.Empty(t, got, "all places are taken")
		release()
		(<-got)()
		for _, r := range rest {
			r()
		}
		require.Empty(t, p.nodes)
	})
}
