package nodes_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/internal/tools/nodes"
)

// A stalled relay accepts connections and passes nothing. Afterwards, what was sent meanwhile arrives.
func TestRelayStalls(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	echoing := make(chan struct{})
	go func() {
		defer close(echoing)
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			if line, err := bufio.NewReader(c).ReadString('\n'); err == nil {
				fmt.Fprint(c, line)
			}
			c.Close()
		}
	}()
	relay, err := nodes.NewRelay(echo.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(relay.Close(), echo.Close()); err != nil {
			t.Error(err)
		}
		<-echoing
	}()
	for _, stalled := range []bool{false, true, false} {
		if stalled {
			relay.Stall()
		}
		c, err := net.Dial("tcp", relay.Address())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(c, "hello")
		lines := bufio.NewReader(c)
		if stalled {
			if err := c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			if _, err := lines.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("through a stalled relay: %v", err)
			}
			relay.Resume()
		}
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if line, err := lines.ReadString('\n'); err != nil || line != "hello\n" {
			t.Errorf("stalled %v: %q, %v", stalled, line, err)
		}
		c.Close()
	}
}
