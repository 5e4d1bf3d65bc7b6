//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"
)

// attack attacks a server from one address, until stdin ends. Number says how many connections this
// process opens, and how many all attackers open together.
func attack(ctx context.Context, name, host, from, number string, stdin io.Reader) error {
	k, err := kindOf(name)
	if err != nil {
		return err
	}
	var connections, all int
	if _, err := fmt.Sscan(number, &connections, &all); err != nil {
		return fmt.Errorf("the numbers of connections: %w", err)
	}
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, 19); err != nil {
		return fmt.Errorf("nice 19: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		stop()
	}()
	var attackers sync.WaitGroup
	for range connections {
		attackers.Go(func() {
			c := newConnection(host, from)
			c.most = max(1, k.open/all)
			defer c.close()
			tick := time.NewTicker(time.Second / time.Duration(k.rate))
			defer tick.Stop()
			for ctx.Err() == nil {
				_ = k.once(ctx, c) // what becomes of an attack is the server's decision
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	attackers.Wait()
	return nil
}
