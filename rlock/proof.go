package rlock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-rlock/rlock/internal/kind"
)

// Proof returns a text that another process can pass to [Lock.Join], to work under this hold. The text
// contains the owner, the fencing token, the lease and a checksum for the lock. The text consists of
// printable ASCII characters without spaces, so it fits into an environment variable or a header of
// HTTP or gRPC. A proof is not a secret, and gives no rights beyond access to Redis.
//
// A proof is valid until the lock is released or lost, and any number of processes can use it. After a
// call of Proof, the lock is not passed on in memory: the last Unlock releases it in Redis, and the
// proof becomes invalid. Proof returns "" if the hold is unlocked or lost. It also returns "" for
// read/write and quorum locks, because these cannot be joined.
func (h *Hold) Proof() string {
	if h == nil {
		return ""
	}
	g := h.grant
	if _, ok := g.lock.wire.(kind.Joinable); !ok || !g.check() {
		return ""
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state != owned || h.unlocked {
		return ""
	}
	g.leaves(proofGiven)
	lease := g.lock.terms.lease
	if asks := g.entry.Asks(); asks > 0 { // less, if only nested holds with shorter leases are left
		lease = min(lease, asks)
	}
	return proof{g.owner, g.token, lease}.text(g.lock.key)
}

// Proof returns a text with which another process can join the lock that ctx owns, see [Hold.Proof]. It
// returns "" if ctx does not own the lock, or if the lock has ended. Proof sends nothing to Redis.
func (l *Lock) Proof(ctx context.Context) string {
	if l.err != nil {
		return ""
	}
	if h := holdIn(ctx, l); h != nil {
		return h.live().Proof()
	}
	return ""
}

// live returns a live hold of the same grant: h, or another hold under the same context; nil if there is
// none.
func (h *Hold) live() *Hold {
	h.grant.mu.Lock()
	defer h.grant.mu.Unlock()
	for _, other := range h.grant.holds {
		if other == h || h.unlocked {
			return other
		}
	}
	return nil
}

// proof is the content of a proof.
type proof struct {
	owner string
	token int64
	lease time.Duration // with which the holder renews
}

// proofVersion is the beginning of a proof. After the release of a form, another form gets another
// version.
const proofVersion = "rlock1"

// text is the given-out form of the proof, for the lock with that key.
func (p proof) text(key string) string {
	body := fmt.Sprintf("%s.%s.%d.%d", proofVersion, p.owner, p.token, p.lease.Milliseconds())
	return body + "." + checksum(key, body)
}

// checksum ties a proof to its lock. The checksum is against mistakes; it keeps nobody from making a
// proof.
func checksum(key, body string) string {
	sum := sha256.Sum256([]byte(key + "\x00" + body))
	return hex.EncodeToString(sum[:8])
}

var (
	errNoProof    = errors.New("the proof is empty: it comes from Hold.Proof, which returns none for a hold that is over, nor for a kind of lock that cannot be joined")
	errNotAProof  = errors.New("this is not the text of a proof: it comes from Hold.Proof, or from RLOCK_PROOF under rlock run")
	errOtherProof = errors.New("the proof is of another lock, or was damaged: join the lock of the same name, with the same prefix")
)

// mostProofs is how many proofs of a lock are looked at in one text: a made-up text causes no more
// requests.
const mostProofs = 8

// readProofs reads results of [Hold.Proof] for the lock with that key. A text may have several proofs,
// separated by spaces or commas: also of this lock, which is another lock on each server. The last come
// first.
func readProofs(key, text string) (found []proof, err error) {
	words := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' })
	if len(words) == 0 {
		return nil, errNoProof
	}
	err = errNotAProof
	for _, word := range slices.Backward(words) {
		parts := strings.Split(word, ".")
		if len(parts) != 5 || parts[0] != proofVersion {
			continue
		}
		token, tokenErr := strconv.ParseInt(parts[2], 10, 64)
		lease, leaseErr := strconv.ParseInt(parts[3], 10, 64) // milliseconds
		p := proof{parts[1], token, time.Duration(lease) * time.Millisecond}
		switch {
		case tokenErr != nil, leaseErr != nil, p.lease <= 0, !strings.Contains(p.owner, ":"):
		case p.text(key) != word:
			err = errOtherProof
		case len(found) < mostProofs && !slices.Contains(found, p):
			found = append(found, p)
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	return nil, err
}
