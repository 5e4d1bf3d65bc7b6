//go:build cluster

package embedded

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/cluster/nats"
	"github.com/bowline-mcp/bowline/internal/testenv"
)

// The servers are three processes of nats-server, as it comes.
//
// Guarantees: G-0078.8
func TestThreeExternalServers(t *testing.T) {
	folder := testenv.Dir(t)
	program := filepath.Join(folder, "nats-server")
	if output, err := exec.Command("go", "build", "-o", program, "github.com/nats-io/nats-server/v2").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	addresses := freeAddresses(t, 6)
	clients, routes := addresses[:3], addresses[3:]
	var running [3]*exec.Cmd
	s := &servers{t: t, names: [3]string{"s0", "s1", "s2"}}
	s.start = func(n int) {
		conf := filepath.Join(folder, s.names[n]+".conf")
		text := fmt.Sprintf("server_name: %s\nlisten: %q\nauthorization { token: external }\njetstream { store_dir: %q }\ncluster { name: c, listen: %q, routes: [%s] }\n",
			s.names[n], clients[n], filepath.Join(folder, s.names[n]), routes[n], "\"nats://"+strings.Join(routes, "\", \"nats://")+"\"")
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		running[n] = exec.Command(program, "-c", conf, "-l", filepath.Join(folder, s.names[n]+".log"))
		if err := running[n].Start(); err != nil {
			t.Fatal(err)
		}
		for ctx := within(t); ; rest(ctx, t, 20*time.Millisecond) {
			if conn, err := s.dial(n); err == nil {
				conn.Close()
				return
			}
		}
	}
	s.kill = func(n int) {
		running[n].Process.Kill()
		running[n].Wait() // it was killed
	}
	s.dial = func(n int) (net.Conn, error) { return net.DialTimeout("tcp", clients[n], time.Second) }
	s.login = func(_ int, o *nats.Options) { o.Token = "external" }
	for n := range 3 {
		s.start(n)
		t.Cleanup(func() { s.kill(n) })
	}
	t.Run("contract", s.contract)
	t.Run("the leader is killed", s.leaderIsKilled)
}
