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

// The explanation of a file says how much a user may ask, and which lines say so: each number is the most that one of the user's personas gives, and everybody's where none gives one.
//
// Guarantees: G-0098.7, G-0100.6
func TestExplainHowMuchAUserMayAsk(t *testing.T) {
	g := gateway.New(gateway.Options{})
	defer g.Close(t.Context())
	const personas = `"personas":{"con":{"who":["token con","token both"],"rate":{"perMinute":3,"inFlight":1}},"team":{"who":["group:team","token both"],"rate":{"perMinute":5}}}`
	for _, c := range []struct {
		block string
		user  gateway.User
		want  string
	}{
		{`"rate":{"perMinute":2,"inFlight":9},` + personas, gateway.User{Identity: "token con"}, "3 con.rate.perMinute, 1 con.rate.inFlight"},
		{`"rate":{"perMinute":2,"inFlight":9},` + personas, gateway.User{Identity: "token both"}, "5 team.rate.perMinute, 1 con.rate.inFlight"},
		{`"rate":{"perMinute":2,"inFlight":9},` + personas, gateway.User{Claims: map[string][]string{"groups": {"team"}}}, "5 team.rate.perMinute, 9 bowline.rate.inFlight"},
		{`"rate":{"perMinute":2},` + personas, gateway.User{Identity: "token guest"}, "2 bowline.rate.perMinute, 0 "},
		{personas, gateway.User{}, "0 , 0 "},
		{`"rate":{"inFlight":4}`, gateway.User{}, "0 , 4 bowline.rate.inFlight"},
	} {
		v, err := g.ExplainRate(load(t, `{"mcpServers":{},"bowline":{`+c.block+`}}`), c.user)
		failOn(t, err)
		short := func(place string) string {
			if _, of, is := strings.Cut(place, "bowline.personas."); is {
				return of
			}
			return place
		}
		if got := fmt.Sprintf("%d %s, %d %s", v.PerMinute, short(v.PerMinuteBy), v.InFlight, short(v.InFlightBy)); got != c.want {
			t.Errorf("%s, %+v: %s, want %s", c.block, c.user, got, c.want)
		}
	}
	var wrong *gateway.ConfigError
	if _, err := g.ExplainRate(load(t, `{"mcpServers":{},"bowline":{"maxName":1}}`), gateway.User{}); !errors.As(err, &wrong) {
		t.Errorf("a file with a mistake: %v", err)
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
