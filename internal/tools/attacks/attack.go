//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// attack attacks a server from one address, until stdin ends. Number says how many connections this
// process opens, and how many all attackers open together. At the end, attack prints how many attacks
// have succeeded, were refused and have failed, and in how many seconds.
func attack(ctx context.Context, name, host, from, number string, stdin io.Reader, out io.Writer) error {
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
	var done, refused, failed atomic.Int64
	begun := time.Now()
	for range connections {
		attackers.Go(func() {
			c := newConnection(host, from)
			c.most = max(1, k.open/all)
			defer c.close()
			tick := time.NewTicker(time.Second / time.Duration(k.rate))
			defer tick.Stop()
			for ctx.Err() == nil {
				switch err := k.once(ctx, c); {
				case ctx.Err() != nil:
				case err == nil:
					done.Add(1)
				case errors.Is(err, errRefused):
					refused.Add(1)
				default: // what becomes of an attack is the server's decision
					failed.Add(1)
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	attackers.Wait()
	_, err = fmt.Fprintln(out, done.Load(), refused.Load(), failed.Load(), time.Since(begun).Seconds())
	return err
}
