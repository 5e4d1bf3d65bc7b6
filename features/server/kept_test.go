package server_test

import (
	"context"
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// keptParams are params that the server of TestNoRequestIsKept accepts, by method.
var keptParams = map[string]string{
	protocol.MethodInitialize:    `"protocolVersion":"VERSION","capabilities":{"roots":{}},"clientInfo":{"name":"padded","version":"1"}`,
	protocol.MethodCallTool:      `"name":"t","arguments":{"a":"x"}`,
	protocol.MethodReadResource:  `"uri":"x://a"`,
	protocol.MethodSubscribe:     `"uri":"x://a"`,
	protocol.MethodUnsubscribe:   `"uri":"x://b"`,
	protocol.MethodGetPrompt:     `"name":"p","arguments":{"a":"x"}`,
	protocol.MethodComplete:      `"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"x"}`,
	protocol.MethodSetLogLevel:   `"level":"debug"`,
	protocol.MethodListen:        `"notifications":{"resourceSubscriptions":["x://a"],"toolsListChanged":true}`,
	protocol.MethodGetSkill:      `"uri":"skill://a/SKILL.md"`,
	protocol.MethodReadDirectory: `"uri":"skill://a"`,
	protocol.MethodGetTask:       `"taskId":"none"`,
	protocol.MethodUpdateTask:    `"taskId":"none","inputResponses":{}`,
	protocol.MethodCancelTask:    `"taskId":"none"`,
	protocol.MethodGetTaskResult: `"taskId":"none"`,

	protocol.NotificationCancelled: `"requestId":"none","reason":"none"`,
	protocol.NotificationProgress:  `"progressToken":"none","progress":1`,
}

// After a server has answered a request of 4 MiB, half of it in _meta, it keeps nothing of it, whatever the method: not in the
// session, and not while a subscription stays open.
//
// Guarantees: G-0029.16
func TestNoRequestIsKept(t *testing.T) {
	testenv.Crowd(t)
	padding := `"padding":"` + strings.Repeat("x", 2<<20) + `"`
	for _, version := range protocol.Versions() {
		t.Run(version, func(t *testing.T) {
			s := withSkills(t, server.Options{Tasks: &server.TaskOptions{}, OnSubscribe: func(context.Context, string) error { return nil }})
			type in struct {
				A string `json:"a" enum:"x,y"`
			}
			server.AddTool(s, protocol.Tool{Name: "t"}, func(context.Context, in) (string, error) { return "", nil })
			server.AddPrompt(s, protocol.Prompt{Name: "p"}, func(context.Context, in) (string, error) { return "", nil })
			server.AddResource(s, protocol.Resource{Name: "a", URI: "x://a"}, func(context.Context) (string, error) { return "", nil })
			ours, theirs := inmem.Pipe(inmem.Options{})
			s.Accept(theirs)
			w := &rawPeer{t, ours, make(chan string, 100)}
			ours.Bind(w)
			ours.Grant(transport.Main, cap(w.frames))
			ask := func(method string, members ...string) {
				t.Helper()
				meta := `"_meta":{` + strings.Join(members[min(1, len(members)):], ",") + `}`
				if protocol.IsModern(version) {
					meta = strings.Replace(strings.Replace(meta, `{`, `{`+context20260728+`,`, 1), ",}", "}", 1)
				}
				params := meta
				if len(members) > 0 && members[0] != "" {
					params = members[0] + "," + meta
				}
				frame := `{"jsonrpc":"2.0","method":"` + method + `","params":{` + strings.Replace(params, "VERSION", version, 1) + `}`
				if strings.HasPrefix(method, "notifications/") {
					w.send(frame + `}`)
					return
				}
				w.send(frame + `,"id":"` + method + `"}`)
				for answered := false; !answered; {
					var got struct {
						ID     any    `json:"id"`
						Method string `json:"method"`
					}
					if err := json.Unmarshal([]byte(w.next()), &got); err != nil {
						t.Fatal(err)
					}
					ours.Grant(transport.Main, 1)
					answered = got.ID == method || got.Method == protocol.NotificationAcknowledged
				}
			}
			ask("ping")
			for _, m := range protocol.Methods() {
				if !m.In(version) || m.Sender == protocol.ByServer {
					continue
				}
				before := liveHeap()
				ask(m.Name, strings.Trim(padding+","+keptParams[m.Name], ","), padding)
				if m.Sender == protocol.ByClient && m.Name != protocol.MethodListen {
					ask("ping") // so that nothing is under way
				}
				if kept := liveHeap() - before; kept > 1<<20 {
					t.Errorf("%s: %d bytes are kept, want less than 1 MiB", m.Name, kept)
				}
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// liveHeap returns the bytes that are in use after a collection.
func liveHeap() int {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}
