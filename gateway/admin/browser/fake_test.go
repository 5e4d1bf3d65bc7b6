//go:build browser && unix

package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/gateway/audit"
)

// A fake is a gateway that shows what a test says.
type fake struct {
	mu      sync.Mutex
	report  admin.Report
	changed chan struct{}
	detail  admin.Detail
	tail    admin.Tail
	records []audit.Record
}

func (f *fake) Report() admin.Report { f.mu.Lock(); defer f.mu.Unlock(); return f.report }

func (f *fake) Changed() <-chan struct{} { f.mu.Lock(); defer f.mu.Unlock(); return f.changed }

func (f *fake) set(change func(*admin.Report)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.report)
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fake) Detail(string) (admin.Detail, bool) { return f.detail, true }

func (f *fake) Do(context.Context, string, admin.Action) error { return nil }

func (f *fake) Call(_ context.Context, tool string, arguments json.RawMessage) (json.RawMessage, error) {
	return json.Marshal(map[string]any{"content": []any{map[string]any{"type": "text", "text": tool + " " + string(arguments) + hostile}}})
}

func (f *fake) Records() ([]audit.Record, <-chan struct{}, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.records), f.changed, true
}

func (f *fake) End() {}

func (f *fake) Pins() []admin.Pin { return f.detail.Pins }

func (f *fake) Approve(context.Context, string, ...string) error { return nil }

func (f *fake) Logout(context.Context, string, string) error { return nil }

func (f *fake) Reload(context.Context) error { return nil }

func (f *fake) Stderr(string) (admin.Log, bool) { return &f.tail, true }

// at is a time of this day.
func at(hour, minute, second int) time.Time {
	now := time.Now()
	return time.Date(now.Year(), now.Month(), now.Day(), hour, minute, second, 0, time.Local)
}

// troubled is the gateway of the pictures.
func troubled() *fake {
	f := &fake{changed: make(chan struct{})}
	f.report = admin.Report{
		At: at(12, 4, 11), Version: "1", File: "mcp.json", Applied: at(12, 0, 3), Endpoint: "http://127.0.0.1:8080/mcp", Ready: true,
		Servers: []admin.ServerReport{
			{Name: "files", State: admin.Ready, Since: at(12, 0, 4), PID: 4711, Calls: 1, P50: 0.3, P99: 2.1, Tools: 12, Known: at(12, 0, 4)},
			{Name: "memory", State: admin.Ready, Since: at(12, 0, 4), PID: 4712, P50: 0.4, P99: 0.9, Tools: 9, Resources: 1, Known: at(12, 0, 4)},
			{Name: "github", State: admin.Ready, Since: at(12, 0, 9), Calls: 2, P50: 41, P99: 380, Tools: 38, Prompts: 2, Known: at(12, 0, 9)},
			{Name: "web", State: admin.Backoff, Reason: "crash-looping: exit status 1", Since: at(12, 4, 9), NextAttempt: at(12, 4, 19), Restarts: 5, Tools: 21, Known: at(11, 52, 40), Stderr: "Error: browser is not installed; run: npx playwright install"},
			{Name: "search", State: admin.Ready, Since: at(12, 0, 5), PID: 4715, Tools: 3, Known: at(12, 0, 5), Notices: []string{"tools: the description of find has 70,112 bytes, and is cut to 65536"}},
			{Name: "database", State: admin.Misconfigured, Mistake: "mcp.json:14:17: the variable DATABASE_URL is not set"},
			{Name: "maps", State: admin.Stopped, Reason: "closed", Since: at(12, 1, 30), Tools: 7, Known: at(12, 0, 6)},
		},
		Clients:   []admin.ClientReport{{Program: "claude-code 2.1.4", Revision: "2025-11-25", User: "ada@example.com (https://login.example.com 1)", Calls: 2}, {Program: "cursor 2.3", Revision: "2025-06-18", Calls: 1}},
		Questions: []admin.Question{{Server: "github", Method: "elicitation/create", Target: "github__create_issue", Program: "claude-code 2.1.4", Since: at(12, 3, 58)}},
	}
	for i, outcome := range []string{"answered", "answered", "tool error", "not answered", "denied"} {
		record := audit.Record{Number: uint64(17 + i), Time: at(12, 3, 50+i), Principal: "token ada", Client: "claude-code 2.1.4", Method: "tools/call", Name: "github__create_issue", Server: "github", Own: "create_issue", Outcome: outcome, Millis: 41.3 * float64(i)}
		if outcome == "not answered" {
			record.Principal, record.Server, record.Name, record.Delivery, record.Reason = "token bob", "web", "web__navigate", "unknown", "exited: crash-looping"
		}
		f.records = append(f.records, record)
	}
	f.records = append(f.records, audit.Record{Number: 22, Time: at(12, 4, 1), Principal: "admin", Event: "restart", Server: "web"})
	for i, state := range []admin.State{admin.Backoff, admin.Starting, admin.Backoff, admin.Starting, admin.Backoff, admin.Ready, admin.Starting} {
		change := admin.Change{At: at(12, 4, 9-i), State: state, Reason: "handshaken"}
		if state == admin.Backoff {
			change.Reason, change.NextAttempt = "crash-looping: exit status 1", at(12, 4, 19-i)
		}
		f.detail.Changes = append(f.detail.Changes, change)
	}
	f.detail.Tools = []admin.Tool{
		{Name: "web__navigate", Description: "Opens a page and waits until it has loaded.", Schema: json.RawMessage(`{"type": "object", "required": ["url"], "properties": {
			"url": {"type": "string", "title": "URL", "description": "Where to go, with its scheme"},
			"timeout": {"type": "integer", "minimum": 0, "maximum": 60000, "default": 30000, "description": "in milliseconds"},
			"device": {"type": "string", "enum": ["desktop", "phone", "tablet"]},
			"incognito": {"type": "boolean", "description": "Without cookies"},
			"headers": {"type": "object", "description": "Sent with each request"}}}`)},
		{Name: "web__screenshot", Title: "Take a picture", Schema: json.RawMessage(`{"type": "object"}`)},
	}
	for i := range 12 {
		fmt.Fprintf(&f.tail, "[playwright] attempt %d: looking for a browser in /home/me/.cache/ms-playwright\n", i/3+1)
	}
	fmt.Fprintln(&f.tail, "Error: browser is not installed; run: npx playwright install")
	return f
}
