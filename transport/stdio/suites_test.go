package stdio

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/transport"
)

// Each link is a child process, which serves its standard streams.
func TestSuitesOfACommand(t *testing.T) {
	runSuites(t, func(t *testing.T) transport.Transport { return roleCommand(t, "echo server") })
}

// The server calls, and the process that started it answers, over a socket.
func TestSuitesOfAServer(t *testing.T) {
	runSuites(t, func(*testing.T) transport.Transport { return served{} })
}

func runSuites(t *testing.T, from func(*testing.T) transport.Transport) {
	o := proptest.Options{
		RealTime: true, Iterations: 2, Concurrent: 10, Window: 5 * time.Millisecond,
		Conn: conn.Options{RequestTimeout: 100 * time.Millisecond},
	}
	for name, suite := range map[string]func(*testing.T, transport.Transport, proptest.Options){
		"Correlation":      proptest.Correlation,
		"NoLeaks":          proptest.NoLeaks,
		"CancelIdempotent": proptest.CancelIdempotent,
		"StopAnywhere":     proptest.StopAnywhere,
		"Restart":          proptest.Restart,
	} {
		t.Run(name, func(t *testing.T) { suite(t, from(t), o) })
	}
}

// served is a transport of a server's links, whose peers echo.
type served struct{}

func (served) Open(ctx context.Context) (transport.Link, error) {
	ours, theirs := net.Pipe()
	client, err := (&Server{In: theirs, Out: theirs}).Open(ctx)
	if err != nil {
		return nil, err
	}
	go proptest.Echo(client)
	return (&Server{In: ours, Out: ours}).Open(ctx)
}

// echoServer answers requests until its input ends.
func echoServer() {
	link, err := new(Server).Open(context.Background())
	if err != nil {
		panic(err)
	}
	proptest.Echo(link)
}
