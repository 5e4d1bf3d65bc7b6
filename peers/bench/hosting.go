package bench

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// hosting is what stands behind a URL. A child finds it in its environment.
type hosting struct {
	servers int // of a gateway
	tools   int // to list, of all servers together, beside their own
}

const (
	hostedServers = "BENCH_SERVERS"
	hostedTools   = "BENCH_TOOLS"
)

func (h hosting) env() []string {
	return []string{fmt.Sprintf("%s=%d", hostedServers, h.servers), fmt.Sprintf("%s=%d", hostedTools, h.tools)}
}

// hostedHere is one server without tools to list, unless the environment says otherwise.
func hostedHere() hosting {
	servers, _ := strconv.Atoi(os.Getenv(hostedServers))
	tools, _ := strconv.Atoi(os.Getenv(hostedTools))
	return hosting{cmp.Or(servers, 1), tools}
}

func freeAddress() (host, port string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer listener.Close()
	return net.SplitHostPort(listener.Addr().String())
}

// reachable returns when a program that is not ours accepts connections: it has no other way to say so.
func reachable(ctx context.Context, address string) (err error) {
	var conn net.Conn
	for range 500 {
		if conn, err = new(net.Dialer).DialContext(ctx, "tcp", address); err == nil {
			return conn.Close()
		}
		rest(20 * time.Millisecond)
	}
	return err
}
