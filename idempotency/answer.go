package idempotency

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/go-rlock/rlock/once"
)

// answer is what a handler writes. It is held back until it is stored, so a client that has got an
// answer gets the same when it repeats the request.
type answer struct {
	w      http.ResponseWriter
	outer  http.Header // what the handlers around have set
	header http.Header // and what the handler makes of it
	final  http.Header // what header was when the status was written
	status int         // 0: not written
	body   []byte
	long   bool // it has more than can be stored, and body is empty
	sent   bool
}

// Header implements [http.ResponseWriter].
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements [http.ResponseWriter]. Later changes of Header change nothing.
func (a *answer) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("idempotency: invalid status %d", status)) // as net/http does, which would be too late
	}
	if a.status == 0 && status >= 200 {
		a.status, a.final = status, a.header.Clone()
	}
}

// Write implements [http.ResponseWriter].
func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	if len(a.body)+len(p) > once.MaxResult && !a.long {
		a.send()
		a.long, a.body = true, nil
	}
	if !a.long {
		a.body = append(a.body, p...)
	}
	if a.sent {
		return a.w.Write(p)
	}
	return len(p), nil
}

// Flush implements [http.Flusher]: the answer is sent before it is stored.
func (a *answer) Flush() { _ = a.FlushError() }

// FlushError is Flush for [http.ResponseController].
func (a *answer) FlushError() error {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	a.send()
	return http.NewResponseController(a.w).Flush()
}

// send sends what was held back.
func (a *answer) send() {
	if a.sent {
		return
	}
	a.sent = true
	h := a.w.Header()
	clear(h)
	maps.Copy(h, a.final)
	// Here the first 512 bytes decide, not those of the first Write: so a replay gets the same.
	if _, set := h["Content-Type"]; !set && len(a.body) > 0 && h.Get("Content-Encoding") == "" {
		h.Set("Content-Type", http.DetectContentType(a.body))
	}
	a.w.WriteHeader(a.status)
	_, _ = a.w.Write(a.body) // a client that is gone repeats the request
}

// record is what is stored, as package gob encodes it.
type record struct {
	Status int
	Header http.Header
	Body   []byte
	Long   bool // only the status is stored
}

// unstored are headers that concern one transmission, or one session.
var unstored = []string{
	"Connection", "Date", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Set-Cookie",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// stored returns the answer for [once.Run.Finish].
func (a *answer) stored() []byte {
	r := record{Status: a.status, Header: make(http.Header), Body: a.body}
	for name, values := range a.final {
		if !slices.Contains(unstored, name) && !slices.Equal(a.outer[name], values) {
			r.Header[name] = values
		}
	}
	if text := r.encode(); !a.long && len(text) <= once.MaxResult {
		return text
	}
	return record{Status: a.status, Long: true}.encode()
}

func (r record) encode() []byte {
	var text bytes.Buffer
	if err := gob.NewEncoder(&text).Encode(r); err != nil {
		panic(err) // it has strings and numbers only
	}
	return text.Bytes()
}

// replay sends a stored answer. What the handlers around have set stays, unless the answer has it too.
func replay(w http.ResponseWriter, stored []byte) {
	var r record
	switch err := gob.NewDecoder(bytes.NewReader(stored)).Decode(&r); {
	case err != nil:
		problem(w, http.StatusInternalServerError, "The stored answer cannot be read", "The request was executed, and is not executed again.")
		return
	case r.Long:
		problem(w, http.StatusConflict, "The answer was too long to be stored",
			fmt.Sprintf("The request was executed with status %d, and is not executed again.", r.Status))
		return
	}
	a := answer{w: w, final: w.Header().Clone(), status: r.Status, body: r.Body}
	maps.Copy(a.final, r.Header)
	a.final.Set("Idempotent-Replayed", "true")
	a.send()
}
