package redistest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	RunChild(map[string]func(args []string){"echo": echo, "fail": fail, "parent": parent})
	goleak.VerifyTestMain(m, Dials)
}

// echo reports its arguments, then every line it reads, until its input ends.
func echo(args []string) {
	fmt.Println("args", args)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		fmt.Println("ignore this line")
		fmt.Println("got", in.Text())
	}
}

func fail([]string) { os.Exit(3) }

// parent has a child of its own, which keeps standard output open.
func parent([]string) {
	cmd := exec.Command("sleep", "1000")
	cmd.Stdout = os.Stdout
	p, err := startProcess(cmd)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("started")
	<-p.done
}
