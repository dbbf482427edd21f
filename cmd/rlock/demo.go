package main

import (
	"bufio"
	"context"
	"crypto/fips140"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"

	"github.com/go-rlock/rlock/rlock"
)

// sceneLimit bounds a scene, so that the demo ends whatever goes wrong.
const sceneLimit = 30 * time.Second

func demoCommand() *cli.Command {
	return &cli.Command{
		Name:  "demo",
		Usage: "show in 20 seconds what a lock does, without Redis",
		Description: `Runs scenes with several processes on an embedded server, and prints the expected and the
measured results. The embedded server is in the memory of this process, so other
commands cannot use it.`,
		CustomHelpTemplate: localHelp,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() || cmd.IsSet("url") || cmd.String("prefix") != os.Getenv("RLOCK_PREFIX") { // which is for other commands
				return usagef(cmd, "the demo has a server of its own and takes no arguments")
			}
			return playAll(ctx, cmd.Root().Writer, scenes)
		},
	}
}

// stage is where the scenes play.
type stage struct {
	url    string
	rdb    *redis.Client
	client *rlock.Client
}

// scene is one thing to show. play returns what it measured, and whether that
// is what was expected.
type scene struct {
	title, expected string
	play            func(context.Context, *stage) (measured string, ok bool, err error)
}

// playAll plays the scenes on a server of their own. The error is that one failed.
func playAll(ctx context.Context, out io.Writer, scenes []scene) error {
	redisServer := miniredis.NewMiniRedis()
	redisServer.ClockTTL(true) // or leases would not end
	var err error
	fips140.WithoutEnforcement(func() { err = redisServer.StartAddr("127.0.0.1:0") }) // it names scripts by SHA-1
	if err != nil {
		return err
	}
	defer redisServer.Close()
	s := &stage{url: "redis://" + redisServer.Addr()}
	s.rdb = redis.NewClient(&redis.Options{Addr: redisServer.Addr()})
	defer func() { _ = s.rdb.Close() }()
	if s.client, err = rlock.New(s.rdb, nil); err != nil {
		return err
	}
	defer closeWithin(s.client, closeTimeout)

	fmt.Fprintf(out, "rlock demo: %d scenes on an embedded server at %s.\n", len(scenes), redisServer.Addr())
	fmt.Fprintln(out, "That server is for demonstration only; it forgets everything when the demo ends.")
	failed := 0
	for i, scene := range scenes {
		fmt.Fprintf(out, "\n%d. %s\n   expected  %s\n   measured  ", i+1, scene.title, scene.expected)
		measured, ok := s.play(ctx, scene)
		verdict := "ok"
		if !ok {
			verdict, failed = "FAILED", failed+1
		}
		fmt.Fprintf(out, "%s\n   %s\n", measured, verdict)
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d scenes failed", failed, len(scenes))
	}
	fmt.Fprintf(out, "\nAll %d scenes went as expected.\n", len(scenes))
	return nil
}

func (s *stage) play(ctx context.Context, scene scene) (measured string, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, sceneLimit)
	defer cancel()
	measured, ok, err := scene.play(ctx, s)
	if err != nil {
		return err.Error(), false
	}
	return measured, ok
}

// actor is another process of the demo.
type actor struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

// hire starts this program again, in a role of demo_actor.go. The actor leaves
// when its standard input ends, with us at the latest.
func (s *stage) hire(ctx context.Context, role string) (*actor, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, exe, "demo-actor", role, s.url)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &actor{cmd, bufio.NewScanner(stdout)}, cmd.Start()
}

// says returns the next line that the actor prints.
func (a *actor) says() (string, error) {
	if !a.lines.Scan() {
		return "", fmt.Errorf("process %d said nothing", a.cmd.Process.Pid)
	}
	return strings.TrimSpace(a.lines.Text()), nil
}

// kill sends SIGKILL and returns when the actor is gone.
func (a *actor) kill() {
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait() // the error is that it was killed
}
