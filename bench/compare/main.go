// Command compare plays the scenarios of package bench with the locks that
// people choose instead of this library, each at its defaults and tuned, and
// with the classic ways to write one's own. It is a module of its own, so that
// none of them is a dependency of the library.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/bench"
)

func main() {
	if err := execute(os.Args[1:], os.Stdin, os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func contenders() []bench.Contender {
	own := slices.DeleteFunc(bench.Contenders(), func(c bench.Contender) bool {
		return !slices.Contains([]string{"rlock", "fair", "readers", "pubsub"}, c.Name)
	})
	return slices.Concat(own, peers(), classics())
}

func execute(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if len(args) == 1 && args[0] == bench.WorkerArg {
		return bench.Work(contenders(), stdin, stdout)
	}
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	flags.SetOutput(stderr)
	url := flags.String("url", "redis://127.0.0.1:6379", "Redis `server`, one that does nothing else; it needs 7.0.5 for all contenders")
	scenarios := flags.String("scenario", "", "`patterns` of scenarios, such as 'hot-*,wakeup-*@1ms' (default all that are not 1 ms away, and no longer than 10 s)")
	names := flags.String("compare", "", "`patterns` of contenders (default all)")
	rounds := flags.Int("rounds", 5, "play each scenario that often")
	duration := flags.Duration("duration", time.Second, "of a run, where the scenario does not say")
	jsonFile := flags.String("json", "", "write everything to this `file`")
	markdownFile := flags.String("markdown", "", "write the summary, which ends the output, to this `file` as well")
	svgFile := flags.String("svg", "", "draw latencies, and hand-offs against waiters and clients, to this `file`")
	list := flags.Bool("list", false, "list scenarios and contenders")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *list {
		return printList(stdout)
	}
	if *rounds < 1 || *duration <= 0 {
		return errors.New("-rounds and -duration must be positive")
	}
	opts, err := redis.ParseURL(*url)
	if err != nil {
		return errors.New("-url: not the URL of a single Redis server") // the parser's error may repeat the password
	}
	config := bench.Config{Server: opts, Rounds: *rounds, Duration: *duration}
	if config.Scenarios, err = bench.Select(bench.Scenarios(), words(*scenarios)); err != nil {
		return fmt.Errorf("-scenario: %w", err)
	}
	if config.Contenders, err = bench.Pick(contenders(), words(*names)); err != nil {
		return fmt.Errorf("-compare: %w", err)
	}
	config.Progress = func(done, total int, scenario, contender string, round int) {
		fmt.Fprintf(stderr, "\r%d%%  %s, round %d, %s\x1b[K", 100*done/total, scenario, round, contender)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	report, err := bench.Run(ctx, config)
	fmt.Fprint(stderr, "\r\x1b[K")
	if report == nil {
		return err
	}
	if problems := len(report.Problems()); problems > 0 && err == nil {
		err = fmt.Errorf("%d runs went wrong", problems)
	}
	return errors.Join(err, report.WriteTable(stdout), save(*jsonFile, report.WriteJSON),
		save(*markdownFile, report.WriteSummary), save(*svgFile, report.WriteSVG))
}

func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

func printList(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range bench.Scenarios() {
		fmt.Fprintf(t, "%s\t%s\n", s.Name, s.About)
	}
	fmt.Fprintln(t)
	for _, c := range contenders() {
		fmt.Fprintf(t, "%s\t%s\n", c.Name, c.About)
	}
	return t.Flush()
}

func save(name string, write func(io.Writer) error) error {
	if name == "" {
		return nil
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
