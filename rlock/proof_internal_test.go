package rlock

import (
	"strings"
	"testing"
	"time"
)

// FuzzReadProof: whatever a proof is made of, it is read as it was written, and only for
// its own lock.
func FuzzReadProof(f *testing.F) {
	written := proof{"d2k7m3o6n88ekjf0v0vg:17", 1763655000123456, 30 * time.Second}.text("a")
	f.Add("a", written)
	f.Add("a", written+", "+written)
	f.Add("b", written)
	f.Add("", "rlock1.:.0.1.")
	f.Add("a", "rlock1.x:1.+5.30000.0123456789abcdef")
	f.Fuzz(func(t *testing.T, key, text string) {
		proofs, err := readProofs(key, text)
		if (err == nil) != (len(proofs) > 0) {
			t.Errorf("%q is read as %v, %v", text, proofs, err)
		}
		for _, p := range proofs {
			if !strings.Contains(text, p.text(key)) {
				t.Errorf("%q is read as %v", text, p)
			}
		}
		if got, err := readProofs(key, written); (err == nil) != (key == "a") {
			t.Errorf("the proof of a, for %q: %v, %v", key, got, err)
		}
	})
}
