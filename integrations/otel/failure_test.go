package rlockotel_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"

	rlockotel "github.com/go-rlock/rlock/integrations/otel"
	"github.com/go-rlock/rlock/rlock"
)

// A call that fails has the error as an event, and a status that does not depend on the lock.
func TestSpanOfAFailure(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.server.Set("a", "not a lock"))
	require.ErrorIs(t, w.client.NewLock("a").Do(t.Context(), nothing), rlock.ErrKeyConflict)
	for _, own := range w.ended("rlock.acquire") {
		require.Equal(t, codes.Error, own[0].Status().Code)
		require.Equal(t, "error", own[0].Status().Description)
		require.Equal(t, "exception", own[0].Events()[0].Name)
	}
}

// A function that panics with the name of a lock costs neither the span nor the metrics, and is
// told of once.
func TestNamesThatPanic(t *testing.T) {
	var told []error
	before := otel.GetErrorHandler()
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { told = append(told, err) }))
	defer otel.SetErrorHandler(before)
	w := newWorld(t, rlockotel.WithLockNames(func(lock string) string { return lock[:strings.Index(lock, ":")] }))
	for _, name := range []string{"no colon", "no colon either", "invoice:42"} {
		require.NoError(t, w.client.NewLock(name).Do(t.Context(), nothing))
	}
	require.Len(t, w.spans.Ended(), len(w.spans.Started()))
	names := make(map[string]int)
	for _, own := range w.ended("rlock.acquire") {
		names[attributes(own[0])["rlock.name"]]++
	}
	require.Equal(t, map[string]int{"": 2, "invoice": 1}, names)
	require.Len(t, told, 1)
	require.ErrorContains(t, told[0], "no colon")
}

// What is no UTF-8 would have exporters refuse everything.
func TestTextThatIsNotUTF8(t *testing.T) {
	w := newWorld(t, rlockotel.WithLockNames(func(string) string { return "a\xff" }))
	w.server.HSet("a", "some\xffbody:1", "1")
	w.server.SetTTL("a", time.Hour)
	require.ErrorIs(t, w.client.NewLock("a").DoFor(t.Context(), 50*time.Millisecond, nothing), rlock.ErrNotAcquired)
	require.NoError(t, w.client.Close(t.Context()), "everything is told")
	for _, own := range w.ended("rlock.acquire") {
		require.Equal(t, "a\uFFFD", attributes(own[0])["rlock.name"])
		require.Equal(t, "some\uFFFDbody:1", attributes(own[0])["rlock.holder"])
		require.NotEmpty(t, own[0].Events())
		for _, event := range own[0].Events() {
			for _, kv := range event.Attributes {
				require.True(t, utf8.ValidString(kv.Value.String()))
			}
		}
	}
}
