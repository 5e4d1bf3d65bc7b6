package command

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMetricsOverStdio checks that a server on standard input and output has its metrics on a page,
// that the page counts the calls and the connection, that standard output has nothing but answers,
// and that the server ends with its input all the same.
func TestMetricsOverStdio(t *testing.T) {
	cmd := command(t, "serve", "--stdio", "--metrics", "127.0.0.1:0")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	admin, messages := "", bufio.NewScanner(stderr)
	for admin == "" && messages.Scan() {
		if _, after, ok := strings.Cut(messages.Text(), "metrics at "); ok {
			admin = strings.TrimSuffix(after, "/metrics")
		}
	}
	if admin == "" {
		t.Fatalf("the server has not printed where its metrics are: %v", messages.Err())
	}
	answers := bufio.NewScanner(stdout)
	call := func(id int, tool string) string {
		t.Helper()
		const meta = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
		fmt.Fprintf(stdin, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"_meta":%s,"name":%q,"arguments":{"message":"hello"}}}`+"\n", id, meta, tool)
		if !answers.Scan() {
			t.Fatalf("the server has not answered: %v", answers.Err())
		}
		var answer struct {
			ID int `json:"id"`
		}
		if err := json.Unmarshal(answers.Bytes(), &answer); err != nil || answer.ID != id {
			t.Errorf("standard output has %q, want the answer to %d", answers.Text(), id)
		}
		return answers.Text()
	}
	for id := range 3 {
		if answer := call(id+1, "echo"); !strings.Contains(answer, "hello") {
			t.Errorf("the answer is %s", answer)
		}
	}
	call(4, "fail")
	families := scrape(t, admin)
	if diff := cmp.Diff(map[string]uint64{"echo": 3, "fail tool_error": 1}, callsByTool(families)); diff != "" {
		t.Errorf("calls by tool and error (-made +counted):\n%s", diff)
	}
	ready := 0.0
	for _, m := range families["bowline_conns"].GetMetric() {
		ready += m.Gauge.GetValue()
	}
	if ready != 1 || families["bowline_build_info"] == nil || families["bowline_http_sessions"] != nil {
		t.Errorf("the page has %v connections, build info: %v, HTTP: %v; want 1, some, none", ready, families["bowline_build_info"], families["bowline_http_sessions"])
	}
	if status, _ := get(t, admin+"/livez"); status != http.StatusOK {
		t.Errorf("/livez has the status %d", status)
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(stdout)
	if err != nil || answers.Scan() || len(rest) > 0 {
		t.Errorf("standard output has also %q and %q: %v", answers.Text(), rest, err)
	}
	said := new(strings.Builder)
	for messages.Scan() {
		said.WriteString(messages.Text() + "\n")
	}
	if status := exitStatus(t, cmd.Wait()); status != 0 {
		t.Errorf("the server has ended with status %d: %s", status, said)
	}
}
