package model_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Bounds of a run.
const (
	limit   = 60 * time.Second // of processor time: the machine may be busy
	patient = 5 * time.Minute
	memory  = 4 << 10 // MB
	deepest = 100_000 // steps of a single run of the model; more is an error
)

// The properties, by the assertion that fails.
var properties = map[string]string{
	"user":     "one holder",
	"relies":   "one holder",
	"beside":   "no writer beside others",
	"passed":   "passed by one batch",
	"told":     "told at once",
	"done":     "nobody sleeps",
	"redisson": "nobody sleeps",
	"holder":   "nothing left",
	"late":     "nothing left",
	"remains":  "nothing left",
	"spent":    "granted once",
	"taken":    "an ask takes",
	"java":     "Redisson's chance",
	"inOrder":  "order",
}

// runs in the order of the table. One with breaks must be found violated there.
var runs = []struct {
	name   string
	model  string
	macros string
	breaks string
}{
	{"3 and 1 in two clients, 1 leaves", "queue", "A=3 B=1 LEAVERS=1", ""},
	{"2 and 1, 2 leave", "queue", "A=2 B=1 LEAVERS=2", ""},
	{"2, 1 and 1, 1 leaves", "queue", "A=2 B=1 C=1 LEAVERS=1 LATER", ""},
	{"handed on in memory", "queue", "A=2 B=1 LEAVERS=1 PASSES=1", ""},
	{"subscriptions end, an ask more", "queue", "A=2 B=1 LEAVERS=1 RINGS=1 LINGERS=1", ""},
	{"connections break", "queue", "A=2 B=1 LEAVERS=1 BREAKS=1", ""},
	{"connections break half open", "queue", "A=1 B=1 C=1 BREAKS=1 HALVES=1", ""},
	{"a connection is deaf", "queue", "A=2 B=1 LEAVERS=1 DEAFS=1", ""},
	{"deaf, then half open", "queue", "A=1 B=1 C=1 DEAFS=1 HALVES=1", ""},
	{"deaf, receivers unknown", "queue", "A=1 B=1 C=1 COUNTLESS DEAFS=1", ""},
	{"the master becomes a replica", "queue", "A=1 B=1 C=1 FAILOVERS=2", ""},
	{"that, 1 leaves", "queue", "A=2 B=1 LEAVERS=1 FAILOVERS=1", ""},
	{"deaf, an ask more", "queue", "A=2 B=1 DEAFS=1 RINGS=1", ""},
	{"deaf, a grant ends unread", "queue", "A=2 B=1 DEAFS=1 LAPSES=1", ""},
	{"deaf, a request late or twice", "queue", "A=2 B=1 DEAFS=1 LATES=1 LATE_WHILE_HELD LATER", ""},
	{"a waiting process dies", "queue", "A=1 B=1 C=1 CRASHES=1 WAITER_DIES", ""},
	{"a grant ends unread", "queue", "A=2 B=1 LEAVERS=1 LAPSES=1", ""},
	{"a ticket or a release late or twice", "queue", "A=1 B=1 C=1 LEAVERS=1 LATES=1 LATE_WHILE_HELD LATER", ""},
	{"2 of these", "queue", "A=1 B=1 LEAVERS=1 LATES=2 LATE_WHILE_HELD", ""},
	{"one of these, a break", "queue", "A=2 B=1 BREAKS=1 LATES=1 LATE_WHILE_HELD LATER", ""},
	{"one of these, a hand-off, 1 leaves", "queue", "A=2 B=1 LEAVERS=1 PASSES=1 LATES=1 LATE_WHILE_HELD LATER", ""},
	{"ForceUnlock", "queue", "A=2 B=1 LEAVERS=1 FORCES=1", ""},
	{"DEL", "queue", "A=1 B=1 C=1 LEAVERS=1 DELS=1", ""},
	{"DEL, and a request late or twice", "queue", "A=2 B=1 DELS=1 LATES=1 LATE_WHILE_HELD", ""},
	{"Redisson beside 2, 1 leaves", "queue", "A=1 B=1 FOREIGN=1 LEAVERS=1", ""},
	{"Redisson beside 3, 1 leaves", "queue", "A=1 B=1 C=1 FOREIGN=1 LEAVERS=1 LATER", ""},
	{"Redisson, connections break half open", "queue", "A=1 B=1 FOREIGN=1 BREAKS=1 HALVES=1", ""},
	{"Redisson, a connection is deaf", "queue", "A=1 B=1 FOREIGN=1 DEAFS=1 HALVES=1", ""},
	{"Redisson, deaf, 1 leaves", "queue", "A=1 B=1 FOREIGN=1 LEAVERS=1 DEAFS=1 LATER", ""},
	{"fair, 1 leaves", "queue", "FAIR A=2 B=1 LEAVERS=1", ""},
	{"fair, an ask more", "queue", "FAIR A=2 B=1 RINGS=1", ""},
	{"fair, connections break", "queue", "FAIR A=2 B=1 BREAKS=1", ""},
	{"fair, a connection is deaf", "queue", "FAIR A=2 B=1 DEAFS=1", ""},
	{"fair, a grant ends unread", "queue", "FAIR A=2 B=1 LAPSES=1", ""},
	{"fair, Redisson", "queue", "FAIR A=1 B=1 C=1 FOREIGN=1 LATER", ""},
	{"fair, Redisson, deaf", "queue", "FAIR A=1 B=1 FOREIGN=1 DEAFS=1", ""},

	{"a process dies; TTL", "queue", "A=1 B=1 C=1 CRASHES=1 LEASES=1 LATER", ""},
	{"a process dies half open; TTL", "queue", "A=1 B=1 C=1 CRASHES=1 HALVES=1 LEASES=1 LATER", ""},
	{"a waiter dies, receivers unknown; TTL", "queue", "A=1 B=1 C=1 COUNTLESS CRASHES=1 WAITER_DIES LEASES=1", ""},
	{"deaf, then it dies; TTL", "queue", "A=1 B=1 C=1 DEAFS=1 CRASHES=1 WAITER_DIES LEASES=1", ""},
	{"fair, a waiter dies; TTL", "queue", "FAIR A=1 B=1 C=1 CRASHES=1 WAITER_DIES LEASES=1", ""},
	{"any request late or twice; TTL", "queue", "A=1 B=1 C=1 LEAVERS=1 LATES=1 LEASES=1 LATER", ""},
	{"fair, a request late or twice; TTL", "queue", "FAIR A=2 B=1 LATES=1 LEASES=1", ""},
	{"FLUSHALL; keep-alive", "queue", "A=2 B=1 FLUSHES=1 KEEPALIVES=1", ""},
	{"Redisson, a waiter dies; keep-alive", "queue", "A=1 B=1 C=1 FOREIGN=1 CRASHES=1 WAITER_DIES KEEPALIVES=1 LATER", ""},
	{"DEL, Redisson; keep-alive", "queue", "A=1 B=1 FOREIGN=1 DELS=1 KEEPALIVES=1 LATER", ""},
	{"a message is lost; TTL", "queue", "A=2 B=1 LEAVERS=1 LOSSES=1 LEASES=1", ""},
	{"a message is lost; keep-alive", "queue", "A=2 B=1 LEAVERS=1 LOSSES=1 KEEPALIVES=1", ""},
	{"2 messages are lost; keep-alive twice", "queue", "A=1 B=1 C=1 LEAVERS=1 LOSSES=2 KEEPALIVES=2", ""},
	{"that to a late ticket is lost; TTL", "queue", "A=1 B=1 C=1 LEAVERS=1 LATES=1 LATE_WHILE_HELD LATER LOSSES=1 LEASES=1", ""},
	{"Redisson, a message is lost; keep-alive", "queue", "A=1 B=1 FOREIGN=1 LEAVERS=1 LOSSES=1 KEEPALIVES=1", ""},
	{"Redisson beside 3, the same", "queue", "A=1 B=1 C=1 FOREIGN=1 LOSSES=1 KEEPALIVES=1 LATER", ""},
	{"fair, a message is lost; TTL", "queue", "FAIR A=2 B=1 LOSSES=1 LEASES=1", ""},
	{"fair, a message is lost; keep-alive", "queue", "FAIR A=2 B=1 LEAVERS=1 LOSSES=1 KEEPALIVES=1", ""},
	{"fair, and a grant unread; keep-alive", "queue", "FAIR A=2 B=1 LAPSES=1 LOSSES=1 KEEPALIVES=1", ""},
	{"fair, Redisson, lost; keep-alive", "queue", "FAIR A=1 B=1 FOREIGN=1 LOSSES=1 KEEPALIVES=1", ""},
	{"a process dies", "queue", "A=1 B=1 CRASHES=1", "done"},
	{"a waiter dies, receivers unknown", "queue", "A=1 B=1 C=1 COUNTLESS CRASHES=1 WAITER_DIES", "done"},
	{"any request late or twice", "queue", "A=1 B=1 LATES=1", "done"},
	{"FLUSHALL", "queue", "A=1 B=1 FLUSHES=1", "done"},
	{"DEL, Redisson", "queue", "A=1 B=1 FOREIGN=1 DELS=1 LATER", "done"},
	{"Redisson, a waiter dies", "queue", "A=1 B=1 C=1 FOREIGN=1 CRASHES=1 WAITER_DIES LATER", "done"},
	{"deaf, then it dies", "queue", "A=1 B=1 C=1 DEAFS=1 CRASHES=1 WAITER_DIES", "done"},
	{"fair, a waiter dies", "queue", "FAIR A=1 B=1 C=1 CRASHES=1 WAITER_DIES", "done"},
	{"a message is lost", "queue", "A=1 B=1 LOSSES=1", "done"},
	{"that to a late ticket is lost; keep-alive", "queue", "A=1 B=1 C=1 LEAVERS=1 LATES=1 LATE_WHILE_HELD LATER LOSSES=1 KEEPALIVES=1", "done"},
	{"that to a late ticket, deaf", "queue", "A=1 B=1 C=1 LEAVERS=1 LATES=1 LATE_WHILE_HELD LATER DEAFS=1", "done"},
	{"Redisson, a message is lost; TTL", "queue", "A=1 B=1 FOREIGN=1 LOSSES=1 LEASES=1", "done"},

	{"2 grants, 2 faults", "exclusion", "GRANTS=2 FAULTS=2", ""},
	{"2 grants, longer lease", "exclusion", "GRANTS=2 FAULTS=1 LEASE=3 PASSES=2", ""},
	{"3 grants, 1 fault", "exclusion", "GRANTS=3 FAULTS=1 RENEWALS=0 PASSES=0", ""},
	{"2 grants by a message, 1 fault", "exclusion", "GRANTS=2 FAULTS=1 RENEWALS=0 PASSES=0 MESSAGES=2", ""},
	{"3 grants, 1 by a message", "exclusion", "GRANTS=3 FAULTS=0 RENEWALS=0 PASSES=0 MESSAGES=1", ""},

	{"0 receivers ignored", "queue", "A=1 B=1 C=1 CRASHES=1 WAITER_DIES ZERO_RECEIVERS_IGNORED", "done"},
	{"sent before it is counted", "queue", "A=1 B=1 C=1 FAILOVERS=1 SENT_BEFORE_IT_IS_COUNTED", "user"},
	{"ticket granted twice", "queue", "A=1 B=1 C=1 TICKET_GRANTED_TWICE", "spent"},
	{"a held lock is passed on", "queue", "A=1 B=1 C=1 LEAVERS=1 HELD_LOCK_IS_PASSED_ON", "user"},
	{"foreign listener ignored", "queue", "A=1 B=1 FOREIGN=1 FOREIGN_LISTENER_IGNORED", "java"},
	{"foreign release unheard", "queue", "A=1 B=1 FOREIGN=1 FOREIGN_RELEASE_UNHEARD", "done"},
	{"no ask after the unlock channel's", "queue", "A=1 B=1 FOREIGN=1 NO_ASK_AFTER_LISTENING", "done"},
	{"foreign holder left alone", "queue", "A=1 B=1 C=1 FOREIGN=1 LEAVERS=1 FOREIGN_HOLDER_LEFT_ALONE LATER", "done"},
	{"wake-up pops the ticket", "queue", "FAIR A=1 B=1 C=1 FOREIGN=1 WAKE_UP_POPS", "inOrder"},
	{"an ask loses its place", "queue", "FAIR A=1 B=1 C=1 RINGS=1 ASK_LOSES_THE_PLACE", "inOrder"},
	{"an ask on a free lock only wakes", "queue", "A=1 B=1 FOREIGN=1 ASK_ONLY_WAKES", "taken"},
	{"placed before the dead are dropped", "queue", "A=2 B=1 LAPSES=1 PLACED_BEFORE_DROPPED", "taken"},
	{"dropped tickets are not told", "queue", "FAIR A=2 B=1 LAPSES=1 STAR_IS_NOT_SENT", "done"},
	{"ticket lost on inheritance", "queue", "A=2 B=1 LEAVERS=1 TICKET_LOST_ON_INHERITANCE", "done"},
	{"leaver does not withdraw", "queue", "A=1 B=1 LEAVERS=1 FOREIGN=1 LEAVER_DOES_NOT_WITHDRAW", "late"},
	{"withdrawal does not pass on", "queue", "A=1 B=1 DELS=1 WITHDRAWAL_DOES_NOT_PASS_ON", "done"},
	{"abandoned ask is not swept", "queue", "A=1 B=1 LEAVERS=1 ABANDONED_ASK_NOT_SWEPT", "holder"},
	{"an heir's owner is swept", "queue", "A=2 B=1 LEAVERS=1 HEIR_IS_SWEPT", "spent"},
	{"an heir is not told", "queue", "A=2 B=1 LEAVERS=1 LAPSES=1 HEIR_IS_NOT_TOLD", "done"},
	{"message for nobody ignored", "queue", "A=1 B=1 C=1 LEAVERS=1 LATES=1 LATE_WHILE_HELD LATER MESSAGE_FOR_NOBODY_IGNORED", "done"},
	{"message for a holder releases", "queue", "A=1 B=2 RINGS=1 MESSAGE_FOR_A_HOLDER_RELEASES", "user"},
	{"grant of an older ticket trusted", "queue", "A=2 B=2 LEAVERS=1 GRANT_OF_AN_OLDER_TICKET_TRUSTED", "user"},
	{"grant trusted beyond its lease", "queue", "A=1 B=2 LAPSES=1 OLD_GRANT_TRUSTED", "user"},
	{"no ask after the confirmation", "queue", "A=1 B=1 BREAKS=1 NO_ASK_AFTER_CONFIRMATION", "done"},
	{"deaf, and no ask after the confirmation", "queue", "A=1 B=1 DEAFS=1 NO_ASK_AFTER_CONFIRMATION", "done"},
	{"deaf is not noticed", "queue", "A=1 B=1 C=1 DEAFS=1 KEEPALIVES=1 DEAF_IS_NOT_NOTICED", "done"},
	{"deaf is replaced, and no waiter asks", "queue", "A=1 B=1 DEAFS=1 DEAF_IS_REPLACED_QUIETLY", "done"},
	{"timers trust the subscription", "queue", "A=1 B=1 LOSSES=1 KEEPALIVES=1 TIMERS_TRUST_THE_SUBSCRIPTION", "done"},
	{"wake-up during an ask forgotten", "queue", "A=1 B=1 C=1 BREAKS=1 WAKE_UP_IN_FLIGHT_FORGOTTEN", "done"},
	{"deaf ask replaces a hearing one", "queue", "A=1 B=1 BREAKS=1 LATES=1 LATE_WHILE_HELD DEAF_REPLACES_HEARING", "done"},
	{"refused release names no holder", "queue", "FAIR A=2 B=0 LATES=1 LATE_WHILE_HELD HOLDER_IS_NOT_NAMED", "done"},
	{"passed on in any answer", "queue", "A=2 B=1 DELS=1 LATES=1 LATE_WHILE_HELD PASSED_ON_IN_ANY_ANSWER", "done"},
	{"window counted from the message", "exclusion", "GRANTS=3 FAULTS=0 RENEWALS=0 PASSES=0 MESSAGES=1 WINDOW_FROM_MESSAGE", "relies"},
	{"counted from an answer after the grant", "exclusion", "GRANTS=3 FAULTS=0 RENEWALS=0 PASSES=0 MESSAGES=1 GRANT_BEFORE_THE_ANSWER", "relies"},
	{"window counted from the reply", "exclusion", "GRANTS=2 WINDOW_FROM_REPLY", "relies"},
	{"release without owner check", "exclusion", "GRANTS=3 FAULTS=1 RENEWALS=0 PASSES=0 RELEASE_WITHOUT_OWNER", "relies"},
	{"hand-off with a release in flight", "exclusion", "GRANTS=2 HANDOFF_IN_FLIGHT", "relies"},
	{"an abandoned attempt is not swept", "exclusion", "GRANTS=2 NO_SWEEP", "late"},

	{"rw, readers and writers in 3 clients", "rwqueue", "R0=1 W0=1 R1=1 W1=1 W2=1", ""},
	{"rw, 2 readers of a client", "rwqueue", "R0=2 W1=1 R2=1 W2=1", ""},
	{"rw, 1 leaves, 1 without a ticket", "rwqueue", "R0=1 W0=1 R1=1 W2=1 LEAVERS=1 TRIES=1", ""},
	{"rw, one grant in a script", "rwqueue", "R0=1 R1=1 W1=1 R2=1 PORTION=1", ""},
	{"rw, 2 downgrades", "rwqueue", "R0=1 W0=1 R1=1 W1=1 DOWNGRADES=2", ""},
	{"rw, a downgrade, one grant in a script", "rwqueue", "R0=1 W0=1 R1=1 W2=1 DOWNGRADES=1 PORTION=1", ""},
	{"rw, a lost answer, a downgrade", "rwqueue", "R0=1 W0=1 R1=1 W2=1 DOWNGRADES=1 ANSWERS=1", ""},
	{"rw, that, one grant in a script", "rwqueue", "W0=1 R1=1 R2=1 ANSWERS=1 PORTION=1", ""},
	{"rw, a waiting client dies", "rwqueue", "R0=1 R1=1 W1=1 W2=1 CRASHES=1 WAITER_DIES", ""},
	{"rw, that, a downgrade", "rwqueue", "W0=1 R1=1 W1=1 R2=1 CRASHES=1 WAITER_DIES DOWNGRADES=1", ""},
	{"rw, Redisson listens, 1 leaves", "rwqueue", "W0=1 W1=1 R2=1 VISITS=1 LEAVERS=1", ""},
	{"rw, Redisson listens, a downgrade", "rwqueue", "W0=1 R1=1 R2=1 VISITS=1 DOWNGRADES=1", ""},
	{"rw, a ticket late or twice, 1 leaves", "rwqueue", "W0=1 R1=1 W2=1 LATES=1 LATE_WHILE_HELD LEAVERS=1", ""},
	{"rw, a ticket late or twice, a downgrade", "rwqueue", "W0=1 R1=1 R2=1 LATES=1 LATE_WHILE_HELD DOWNGRADES=1", ""},
	{"rw, any request late or twice; TTL", "rwqueue", "R0=1 W0=1 W1=1 R2=1 LATES=1 LEASES=1", ""},
	{"rw, 2 late or twice; TTL", "rwqueue", "R0=1 R1=1 W2=1 LATES=2 LEASES=1", ""},
	{"rw, a client dies; TTL", "rwqueue", "W0=1 R1=1 W1=1 R2=1 CRASHES=1 PORTION=1 LEASES=1", ""},
	{"rw, a client dies half open; TTL", "rwqueue", "W0=1 R1=1 W1=1 R2=1 CRASHES=1 HALVES=1 LEASES=1", ""},
	{"rw, a late release, an abandoned ask; TTL", "rwqueue", "R0=1 R1=1 W1=1 LATES=1 LATE_WHILE_HELD LEAVERS=1 LEASES=1", ""},
	{"rw, the same; keep-alive", "rwqueue", "R0=1 R1=1 W1=1 LATES=1 LATE_WHILE_HELD LEAVERS=1 KEEPALIVES=1", ""},
	{"rw, Redisson, a ticket late; keep-alive", "rwqueue", "W0=1 R1=1 R2=1 VISITS=1 LATES=1 LATE_WHILE_HELD KEEPALIVES=1", ""},
	{"rw, Redisson, a waiter dies; keep-alive", "rwqueue", "W0=1 W1=1 R2=1 VISITS=1 DOWNGRADES=1 CRASHES=1 WAITER_DIES KEEPALIVES=1", ""},
	{"rw, a downgrade's rest; keep-alive", "rwqueue", "W0=1 R1=1 R2=1 DOWNGRADES=1 ANSWERS=1 PORTION=1 KEEPALIVES=1", ""},
	{"rw, a client dies", "rwqueue", "W0=1 R1=1 W1=1 CRASHES=1", "done"},
	{"rw, any request late or twice", "rwqueue", "R0=1 W1=1 LATES=1", "done"},
	{"rw, a late release, an abandoned ask", "rwqueue", "R1=1 W1=1 LATES=1 LATE_WHILE_HELD LEAVERS=1", "done"},
	{"rw, Redisson, a waiter dies", "rwqueue", "W0=1 W1=1 R2=1 VISITS=1 CRASHES=1 WAITER_DIES", "done"},
	{"rw, Redisson, a ticket late", "rwqueue", "W0=1 R1=1 R2=1 VISITS=1 LATES=1 LATE_WHILE_HELD", "told"},
	{"rw, Redisson, a downgrade, a waiter dies", "rwqueue", "W0=1 W1=1 R2=1 VISITS=1 DOWNGRADES=1 CRASHES=1 WAITER_DIES KEEPALIVES=1 AT_ONCE", "told"},
	{"rw, a downgrade's rest", "rwqueue", "W0=1 R1=1 R2=1 DOWNGRADES=1 ANSWERS=1 PORTION=1", "told"},
	{"rw, remedy: a refused release makes ask", "rwqueue", "R0=1 R1=1 W1=1 LATES=1 LATE_WHILE_HELD LEAVERS=1 REFUSED_RELEASE_MAKES_ASK", ""},
	{"rw, remedy: a prompt for nobody releases", "rwqueue", "W0=1 R1=1 R2=1 VISITS=1 LATES=1 LATE_WHILE_HELD PROMPT_FOR_NOBODY_RELEASES", ""},
	{"rw, remedy: any first ticket is prompted", "rwqueue", "W0=1 W1=1 R2=1 VISITS=1 DOWNGRADES=1 CRASHES=1 WAITER_DIES KEEPALIVES=1 AT_ONCE DOWNGRADE_PROMPTS_ANYBODY", ""},

	{"rw, readers join past a waiting writer", "rwqueue", "R0=2 R1=1 W2=1 JOINED_PAST_A_WRITER", "passed"},
	{"rw, a dead client is forgotten by side", "rwqueue", "W0=1 R1=1 W1=1 R2=1 CRASHES=1 WAITER_DIES DEAD_BY_SIDE", "done"},
	{"rw, a release leaves its own late ticket", "rwqueue", "W0=1 R1=1 W2=1 LATES=1 LATE_WHILE_HELD OWN_LATE_TICKET_STAYS", "spent"},
	{"rw, dead writers hide readers", "rwqueue", "W0=1 W1=1 R2=1 DOWNGRADES=1 CRASHES=1 WAITER_DIES DEAD_WRITERS_HIDE_READERS", "told"},
	{"rw, they hide them from a prompt", "rwqueue", "W0=1 W1=1 R2=1 VISITS=1 CRASHES=1 WAITER_DIES KEEPALIVES=1 AT_ONCE DEAD_WRITERS_HIDE_READERS", "told"},
	{"rw, a lost answer, and nobody asks", "rwqueue", "R0=1 W0=1 W1=1 ANSWERS=1 LOST_ANSWER_AND_NOBODY_ASKS", "done"},
	{"rw, a withdrawal does not serve", "rwqueue", "R0=1 W1=1 R2=1 LEAVERS=1 WITHDRAWAL_DOES_NOT_SERVE", "told"},
	{"rw, the rest is not served", "rwqueue", "W0=1 R1=1 R2=1 PORTION=1 REST_IS_NOT_SERVED", "told"},
	{"rw, message for nobody ignored", "rwqueue", "W0=1 R1=1 W2=1 LATES=1 LATE_WHILE_HELD LEAVERS=1 MESSAGE_FOR_NOBODY_IGNORED", "done"},
	{"rw, message for a holder releases", "rwqueue", "W0=1 R1=1 W2=1 VISITS=1 MESSAGE_FOR_A_HOLDER_RELEASES", "beside"},
}

// TestModel searches as many variants at once as there are cores, prints a line when a search ends, because
// a run may be cut, and the table in the order of the runs.
func TestModel(t *testing.T) {
	lines := make([]string, len(runs))
	t.Run("all", func(t *testing.T) {
		for i, run := range runs {
			t.Run(run.name, func(t *testing.T) {
				t.Parallel()
				c := check(t, run.model, strings.Fields(run.macros))
				verdict := "holds"
				if c.failed != "" {
					verdict = "found: " + properties[c.failed]
				}
				if c.failed != run.breaks {
					verdict = "UNEXPECTED " + verdict
					t.Errorf("%s, %s: want the assertion on %q to fail, not that on %q:\n%s", run.model, run.macros, run.breaks, c.failed, c.output)
				}
				lines[i] = fmt.Sprintf("%-9s  %-42s  %10d  %5.1fs  %6.0f  %s\n", run.model, run.name, c.states, c.took.Seconds(), c.megabytes, verdict)
				fmt.Print(lines[i])
			})
		}
	})
	fmt.Printf("\n%-9s  %-42s  %10s  %6s  %6s  %s\n", "model", "variant", "states", "time", "MB", "verdict")
	fmt.Println(strings.Join(lines, ""))
}

// checked is the outcome of a complete search, or of one that found a violation.
type checked struct {
	states    int
	megabytes float64
	took      time.Duration // of the search alone, processor time
	failed    string        // what the violated assertion is about; "" if none is
	output    string
}

var (
	violation = regexp.MustCompile(`(?m)^pan:\d+: assertion violated\W*(\w+)`)
	stored    = regexp.MustCompile(`(?m)^\s*(\d+) states, stored`)
	used      = regexp.MustCompile(`(?m)^\s*([\d.]+)\s+total actual memory usage`)
	errorLine = regexp.MustCompile(`(?m)errors: (\d+)$`)
)

// check builds the verifier of a model and runs it to the end.
func check(t *testing.T, model string, macros []string) (c checked) {
	t.Helper()
	source, err := filepath.Abs(model + ".pml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	args := []string{"-a"}
	for _, macro := range macros {
		args = append(args, "-D"+macro)
	}
	command(t, dir, "spin", append(args, source)...)
	command(t, dir, "gcc", "-Og", "-w", "-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=2048", fmt.Sprintf("-DMEMLIM=%d", memory), "-o", "pan", "pan.c")
	c.output, c.took = command(t, dir, "./pan", "-b", fmt.Sprintf("-m%d", deepest))
	if c.took > limit {
		t.Errorf("%s: the search took %v: at most %v", model, c.took, limit)
	}

	errors := errorLine.FindStringSubmatch(c.output)
	states, megabytes := stored.FindStringSubmatch(c.output), used.FindStringSubmatch(c.output)
	if errors == nil || states == nil || megabytes == nil {
		t.Fatalf("%s: the search has no result:\n%s", model, c.output)
	}
	c.states, _ = strconv.Atoi(states[1])
	c.megabytes, _ = strconv.ParseFloat(megabytes[1], 64)
	if found := violation.FindStringSubmatch(c.output); found != nil {
		c.failed = found[1]
	} else if errors[1] != "0" || strings.Contains(c.output, "Search not completed") {
		t.Fatalf("%s: the search was not completed:\n%s", model, c.output)
	}
	return c
}

func command(t *testing.T, dir, name string, args ...string) (output string, took time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	text, err := cmd.CombinedOutput()
	if err != nil && ctx.Err() != nil {
		t.Fatalf("%s was not through in %v:\n%s", name, patient, text)
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, text)
	}
	return string(text), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}
