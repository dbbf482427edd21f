package bench

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

// What a server is taken to have. A core that is busy for longer than that lets
// requests wait for each other; the network is used to the same part.
const (
	busyCore       = 0.7
	networkBytes   = 10e9 / 8 // per second, in each direction
	serverMemory   = 8e9
	maxConnections = 10_000 // maxclients, unless it is raised
)

var masterCounts = []int{1, 3, 10, 100}

// WriteCapacity writes what the server needs for the locks of this library, and estimates for more servers and
// larger numbers. The estimates assume that the locks are spread evenly over the masters, and that each master
// has one core for commands.
func (r *Report) WriteCapacity(w io.Writer) error {
	c, err := r.capacity()
	if err != nil {
		return err
	}
	return errors.Join(c.writeCosts(w), c.writeMasters(w), c.writeAnswers(w))
}

func (c capacity) writeCosts(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nOn the server, for one\tCPU, µs\tbytes in\tout\tmemory, bytes")
	for _, one := range c.all() {
		memory := none
		if one.what == c.renewal.what || one.what == c.waiting.what {
			memory = one.memory.in(1)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", one.what, one.cpu.in(1e6), one.in.in(1), one.out.in(1), memory)
	}
	fmt.Fprintf(t, "at rest, for a second\t%s\t\t\t\n", number(c.rest*1e6))
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "A client that waits has %s connections. One lock went %s times a second from client to client.\n",
		c.connections.in(1), c.handovers.in(1))
	return err
}

// bound is how much of something a master can have, and what does not allow more.
type bound struct {
	most  float64
	limit string
}

// boundOf is that of something of which each needs so much in a second.
func boundOf(cpu, in, out, memory, connections float64) bound {
	b := bound{busyCore / cpu, "CPU"}
	for _, other := range []bound{
		{busyCore * networkBytes / max(in, out, 1e-9), "network"},
		{serverMemory / max(memory, 1e-9), "memory"},
		{maxConnections / max(connections, 1e-9), "maxclients"},
	} {
		if other.most < b.most {
			b = other
		}
	}
	return b
}

func (c capacity) pairsOf(one need) bound {
	return boundOf(one.cpu.Median, one.in.Median, one.out.Median, 0, 0)
}

func (c capacity) held() bound {
	perSecond := 1 / renewEvery.Seconds()
	return boundOf(c.renewal.cpu.Median*perSecond, c.renewal.in.Median*perSecond, c.renewal.out.Median*perSecond, c.renewal.memory.Median, 0)
}

func (c capacity) waiters(connections float64) bound {
	return boundOf(c.waiting.cpu.Median, c.waiting.in.Median, c.waiting.out.Median, c.waiting.memory.Median, connections)
}

func (c capacity) writeMasters(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\nWith a core each at %.0f %%\tlimited by", 100*busyCore)
	for _, n := range masterCounts {
		fmt.Fprintf(t, "\t%d", n)
	}
	fmt.Fprintln(t, "\tmasters")
	line := func(what string, b bound, spreads bool) {
		fmt.Fprintf(t, "%s\t%s", what, b.limit)
		for _, n := range masterCounts {
			if !spreads {
				n = 1
			}
			fmt.Fprintf(t, "\t%s", number(b.most*float64(n)))
		}
		fmt.Fprintln(t, "\t")
	}
	line("pairs per second, each request by itself", c.pairsOf(c.pairs[0]), true)
	line("pairs per second, requests share pipelines", c.pairsOf(c.pairs[1]), true)
	line(fmt.Sprintf("held locks, renewed every %.0f s", renewEvery.Seconds()), c.held(), true)
	line("waiting clients", c.waiters(c.connections.Median), true)
	line("the same, if maxclients is raised", c.waiters(0), true)
	line("hand-offs per second of one lock", c.pairsOf(c.handover), false)
	if err := t.Flush(); err != nil || c.cluster {
		return err
	}
	_, err := fmt.Fprintln(w, `One server was measured, where a client joins its requests in scripts. On a cluster it cannot, as a script has keys of one
slot only, and pairs that share pipelines cost about twice as much: measure that with --cluster.`)
	return err
}

// writeAnswers says what large numbers need.
func (c capacity) writeAnswers(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nTo have\tcores of servers\tmasters\tMbit/s in\tout\tmemory, MB\tcores of clients")
	line := func(what string, n float64, one need, times float64, b bound, stays bool) {
		memory, clients := none, number(n*times*one.clients.Median)
		if stays {
			memory, clients = number(n*one.memory.Median/1e6), none
		}
		fmt.Fprintf(t, "%s\t%s\t%.0f\t%s\t%s\t%s\t%s\n", what, number(n*times*one.cpu.Median), math.Ceil(n/b.most),
			number(8*n*times*one.in.Median/1e6), number(8*n*times*one.out.Median/1e6), memory, clients)
	}
	line("100,000 held locks", 1e5, c.renewal, 1/renewEvery.Seconds(), c.held(), true)
	line("10,000 waiting clients", 1e4, c.waiting, 1, c.waiters(c.connections.Median), true)
	line("1,000,000 pairs a second, by themselves", 1e6, c.pairs[0], 1, c.pairsOf(c.pairs[0]), false)
	line("1,000,000 pairs a second, sharing pipelines", 1e6, c.pairs[1], 1, c.pairsOf(c.pairs[1]), false)
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, `
A calculation: locks spread evenly, %.0f Gbit/s and %.0f GB for each master, %d connections. Bytes are those of the protocol;
each packet has 40 to 66 more. One lock is on one master, however many there are, and a hand-off takes a round trip.
`, networkBytes*8/1e9, serverMemory/1e9, maxConnections)
	return err
}

// in is the spread in a unit.
func (s Spread) in(unit float64) string {
	s = s.times(unit)
	return fmt.Sprintf("%s (%s..%s)", number(s.Median), number(s.Min), number(s.Max))
}

// number has three digits, and no more zeros than it needs.
func number(v float64) string {
	if v < 1 {
		return fmt.Sprintf("%.2g", v)
	}
	digits := 3 - len(fmt.Sprintf("%.0f", math.Floor(v)))
	if digits > 0 {
		return fmt.Sprintf("%.*f", digits, v)
	}
	scale := math.Pow10(-digits)
	text := fmt.Sprintf("%.0f", math.Round(v/scale)*scale)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = strings.Join([]string{text[:i], text[i:]}, ",")
	}
	return text
}
