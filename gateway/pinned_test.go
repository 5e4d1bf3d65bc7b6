package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/protocol"
)

// changedTool returns a catalogue in which the tool t of the server a has changed since it was seen first.
func changedTool(t *testing.T) (path, file string) {
	t.Helper()
	path, file = filepath.Join(t.TempDir(), "catalogue.json"), `{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b"}},"bowline":{"pins":"%s"%s}}`
	for _, text := range []string{"reads", "obey"} {
		servers := two()
		server.AddTool(servers["a"], protocol.Tool{Name: "t", Description: text}, func(context.Context, struct{}) (string, error) { return "done", nil })
		f := newFleetFor(t, protocol.Latest, servers, gateway.Options{Catalogue: path}, load(t, fmt.Sprintf(file, "block", "")))
		ctx := timeout(t)
		for {
			changed := f.Changed()
			if s, _ := f.Report().Server("a"); s.Tools == 2 && text == "reads" || len(f.Pins()) == 1 {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				t.Fatalf("%s: %+v", text, f.Pins())
			}
		}
		failOn(t, f.Close(timeout(t)))
	}
	return path, file
}

// The explanation of a file has tools that are kept from clients because they have changed, and says so if the policy would show them.
//
// Guarantees: G-0098.7
func TestExplainKnowsWhatIsKept(t *testing.T) {
	path, file := changedTool(t)
	g := gateway.New(gateway.Options{Catalogue: path})
	defer g.Close(t.Context())
	for _, c := range []struct{ mode, policy, want string }{
		{"block", "", "false bowline.pins: it has changed since it was approved"},
		{"block", `,"policy":[{"deny":["a/t"]},{"allow":["*"]}]`, "bowline.policy[0].deny[0]"},
		{"warn", "", "true the file has no policy"},
	} {
		for _, names := range [][]string{nil, {"a/t"}, {"a__t"}} {
			verdicts, err := g.Explain(load(t, fmt.Sprintf(file, c.mode, c.policy)), gateway.User{}, names...)
			failOn(t, err)
			i := slices.IndexFunc(verdicts, func(v gateway.Verdict) bool { return v.Server == "a" && v.Name == "t" })
			if i < 0 || !strings.HasSuffix(fmt.Sprint(verdicts[i].Allowed, " ", verdicts[i].By), c.want) {
				t.Errorf("%s, %s, %q: %+v", c.mode, c.policy, names, verdicts)
			}
		}
	}
}

// With block, a gateway whose catalogue cannot be read serves nobody, and keeps the file: else every tool would count as new. With warn it begins anew.
//
// Guarantees: G-0098.18
func TestACatalogueWithPinsThatCannotBeRead(t *testing.T) {
	path, file := changedTool(t)
	failOn(t, os.WriteFile(path, []byte("{"), 0o600))
	for _, mode := range []string{"block", "warn"} {
		g := gateway.New(gateway.Options{Catalogue: path})
		_, err := g.Apply(timeout(t), load(t, fmt.Sprintf(strings.ReplaceAll(file, "/bin/", "/none/"), mode, "")))
		var wrong *gateway.ConfigError
		if refused := errors.As(err, &wrong) && strings.Contains(err.Error(), "nobody knows which tools have changed"); refused != (mode == "block") {
			t.Errorf("%s: %v", mode, err)
		}
		failOn(t, g.Close(timeout(t)))
		text, err := os.ReadFile(path)
		failOn(t, err)
		if kept := string(text) == "{"; kept != (mode == "block") {
			t.Errorf("%s: the file is %s", mode, text)
		}
	}
}
