package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// crowdServer returns a server with the tool echo.
func crowdServer() *server.Server {
	s := server.New(serverInfo, server.Options{})
	addEcho(s)
	return s
}

// playCrowd serves crowdServer on standard input and output.
func playCrowd() {
	if err := crowdServer().Serve(context.Background(), &stdio.Server{}); err != nil {
		panic(err)
	}
}

// Any number of callers can share a connection: each waits for its turn, and all are
// served.
//
// Guarantees: G-0004.10, G-0007.6
func TestCrowdOfCallersIsServed(t *testing.T) {
	testenv.Crowd(t)
	for _, callers := range []int{1000, 4096} {
		for name, to := range map[string]func(t *testing.T) transport.Transport{
			"in memory": func(t *testing.T) transport.Transport {
				n := &network{server: crowdServer()}
				t.Cleanup(n.close)
				return n.transport()
			},
			"child": func(t *testing.T) transport.Transport { return role(t, "crowd") },
			"http": func(t *testing.T) transport.Transport {
				return &streamable.Client{URL: "http://" + newSite(t, crowdServer()).address}
			},
		} {
			t.Run(fmt.Sprintf("%s/%d", name, callers), func(t *testing.T) {
				session, err := client.New(clientInfo, client.Options{Conn: conn.Tuning{RequestTimeout: 5 * time.Minute}}).Connect(timeoutContext(t), to(t))
				if err != nil {
					t.Fatal(err)
				}
				defer session.Close(context.Background())
				began := time.Now()
				failed := make(map[string]int)
				var lock sync.Mutex
				var calling sync.WaitGroup
				start := make(chan struct{})
				for range callers {
					calling.Go(func() {
						<-start
						if _, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "echo", Arguments: json.RawMessage(echoArguments)}); err != nil {
							lock.Lock()
							failed[fmt.Sprintf("%.100s", err)]++
							lock.Unlock()
						}
					})
				}
				close(start)
				calling.Wait()
				for text, many := range failed {
					t.Errorf("%d calls failed with %s, want none", many, text)
				}
				t.Logf("%d calls took %v", callers, time.Since(began))
			})
		}
	}
}
