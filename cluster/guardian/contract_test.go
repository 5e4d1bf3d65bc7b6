//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package guardian

import (
	"context"
	"flag"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// A link to a guarded server keeps the contract of transport.Link. Each case starts three
// processes, so there are few.
//
// Guarantees: G-0079.3
func TestContractOfAGuardedServer(t *testing.T) {
	fewCases(t)
	proptest.LinkContract(t, func(t *testing.T) (a, b transport.Link) {
		directory, err := os.MkdirTemp("", "guardian")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(directory) })
		listener, err := net.Listen("unix", filepath.Join(directory, "socket"))
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		a, err = Start().Open(t.Context(), roleCommand("relay", socketVariable+"="+listener.Addr().String()), later())
		if err != nil {
			t.Fatal(err)
		}
		far, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		b, err = (&stdio.Server{In: far, Out: far}).Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return a, b
	}, proptest.ContractOptions{})
}

func fewCases(t *testing.T) {
	t.Helper()
	checks := flag.Lookup("rapid.checks").Value
	all := checks.String()
	n, err := strconv.Atoi(all)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checks.Set(all) })
	checks.Set(strconv.Itoa(max(n/20, 1)))
}

// A Conn whose links are to guarded servers restarts them and leaves nothing.
func TestSuitesOfAGuardedServer(t *testing.T) {
	o := proptest.Options{
		RealTime: true, Iterations: 1, Concurrent: 5, Window: 5 * time.Millisecond,
		Conn: conn.Options{Tuning: conn.Tuning{RequestTimeout: time.Second}},
	}
	t.Run("NoLeaks", func(t *testing.T) { proptest.NoLeaks(t, guardedEcho{}, o) })
	t.Run("Restart", func(t *testing.T) { proptest.Restart(t, guardedEcho{}, o) })
	t.Run("StopAnywhere", func(t *testing.T) { proptest.StopAnywhere(t, guardedEcho{}, o) })
}

type guardedEcho struct{}

func (guardedEcho) Open(ctx context.Context) (transport.Link, error) {
	link, err := Start().Open(ctx, roleCommand("echo server"), later())
	if err != nil {
		return nil, err
	}
	return link, nil
}
