//go:build unix

package stdio

import (
	"bufio"
	"os"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// Send writes on its own goroutine as long as the pipe has room.
//
// Guarantees: G-0051.1
func TestSendWritesOnItsGoroutine(t *testing.T) {
	out, in := mustPipe(t)
	defer closeAll([]*os.File{out, in})
	w := newWriter(in, Lines, 1<<20) // the test does not call run
	out.SetReadDeadline(time.Now().Add(hangGuard))
	lines := bufio.NewReader(out)
	for _, send := range []func(frame string){
		func(frame string) {
			if err := w.send(transport.Outbound{Frame: []byte(frame)}); err != nil {
				t.Fatal(err)
			}
		},
		func(frame string) {
			w.flush()
			if err := w.send(transport.Outbound{Frame: []byte(frame)}); err != nil {
				t.Fatal(err)
			}
			w.flush()
		},
	} {
		send("frame")
		if line, err := lines.ReadString('\n'); line != "frame\n" {
			t.Fatalf("got %q, %v, want %q", line, err, "frame\n")
		}
	}
}
