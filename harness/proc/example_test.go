package proc_test

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os/exec"

	"example.com/controllers/harness/proc"
)

// The shell starts a child in the background. Without Group, only the shell would be killed: the child would keep
// running, with standard output open, and Scan would not return.
func ExampleGroup() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", "sleep 1000 & echo started; wait")
	proc.Group(cmd)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		log.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		log.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	lines.Scan()
	fmt.Println(lines.Text())

	cancel()
	fmt.Println("more output:", lines.Scan()) // false once all processes of the group have exited
	fmt.Println(cmd.Wait())
	// Output:
	// started
	// more output: false
	// signal: terminated
}
