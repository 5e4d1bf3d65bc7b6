// Command run runs nodes behind a balancer until it is interrupted:
//
//	go run ./internal/tools/nodes/run -nodes 3 -- bowline serve --http 127.0.0.1:0 --cluster demo
//
// It prints "serving URL" when all of them serve. In the arguments {node} stands for the number of the node.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bowline-mcp/bowline/internal/tools/nodes"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const patience = time.Minute // for the nodes to begin

func run() error {
	count := flag.Int("nodes", 3, "how many nodes")
	flag.Parse()
	if flag.NArg() == 0 {
		return fmt.Errorf("name the command of a node")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	starting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	all, err := nodes.Start(starting, nodes.Options{
		Nodes: *count, Log: os.Stderr,
		Command: func(node int) (*exec.Cmd, error) {
			var arguments []string
			for _, argument := range flag.Args() {
				arguments = append(arguments, strings.ReplaceAll(argument, "{node}", strconv.Itoa(node)))
			}
			return exec.Command(arguments[0], arguments[1:]...), nil
		},
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "bowline: serving %s\n", all.URL())
	<-ctx.Done()
	return all.Close()
}
