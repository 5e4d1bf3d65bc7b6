//go:build unix

package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/transport/streamable"
)

// addBlock adds a block bowline to a file of mcpFile.
func addBlock(t *testing.T, path, block string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text[:len(text)-1], ",\n\"bowline\": "+block+"}"...)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// What the command prints is what the gateway does: one user may call a tool and another one may not, a group has its own endpoint, and the trail says which
// line has decided.
//
// Guarantees: G-0098.6, G-0098.7, G-0100.6
func TestPolicyOfTheCommand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcp.json")
	mcpFile(t, path, "one")
	catalogue, trail := filepath.Join(t.TempDir(), "catalogue.json"), filepath.Join(t.TempDir(), "audit.jsonl")
	addBlock(t, path, `{"catalogue": "`+catalogue+`", "audit": {"file": "`+trail+`"},
 "policy": [{"who": "token ada", "allow": ["one/echo"]}, {"who": "group:dev", "allow": ["*"]}],
 "groups": {"none": {"deny": ["one/echo"]}}}`)
	t.Setenv("XDG_RUNTIME_DIR", shortFolder(t))
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	ada, bob := newUser(t, "token", "add", "ada"), newUser(t, "token", "add", "bob")
	bowline(t, "", "policy", path, "--as", "token ada").want(t, 2, "", "nothing is known")
	up := startUp(t, path, "--auth", "tokens")
	if text, err := callWith(t, &streamable.Client{URL: up.url}, ada); !strings.Contains(text, "hello") {
		t.Errorf("ada: %q, %v", text, err)
	}
	if _, err := callWith(t, &streamable.Client{URL: up.url}, bob); err == nil || !strings.Contains(err.Error(), "unknown tool") {
		t.Errorf("bob: %v", err)
	}
	if _, err := callWith(t, &streamable.Client{URL: up.url + "/none"}, ada); err == nil || !strings.Contains(err.Error(), "unknown tool") {
		t.Errorf("ada in the group: %v", err)
	}
	if _, err := callWith(t, &streamable.Client{URL: up.url + "/other"}, ada); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("a group that is not there: %v", err)
	}
	up.end()
	bowline(t, "", "audit", trail, "--user", "token bob").want(t, 0, "denied", "")
	bowline(t, "", "audit", trail, "--user", "token ada").want(t, 0, "bowline.policy[0].allow[0]", "")

	allowed, denied := "allow  one/echo  "+path+":3:", "deny  one/echo  "
	for _, c := range []struct {
		want string
		args []string
	}{
		{allowed, []string{"--as", "token ada", "one/echo"}}, {allowed, []string{"--as", "token ada", "one__echo"}}, {denied, []string{"--as", "token bob", "one/echo"}},
		{"bowline.policy: no rule for this user names it", []string{"--as", "", "one/echo"}}, {"allow  one/none", []string{"--as", "https://as.test x", "--claim", "groups=a", "--claim", "groups=dev", "one/none"}},
		{"deny  one/echo  " + path + ":4:", []string{"--as", "token ada", "--group", "none", "one/echo"}},
	} {
		bowline(t, "", append([]string{"policy", path}, c.args...)...).want(t, 0, c.want, "")
	}
	everything := bowline(t, "", "policy", path, "--as", "token ada")
	everything.want(t, 0, "allow  one/echo", "")
	if !strings.Contains(everything.stdout, "\ndeny   one/") {
		t.Error(everything.stdout)
	}
	bowline(t, "", "policy", path, "--as", "token ada", "two/echo").want(t, 2, "", "a server of the file, a slash")
	bowline(t, "", "policy", path, "one/echo").want(t, 2, "", "for whom?")
	bowline(t, "", "policy", "--as", "x").want(t, 2, "", "name an mcp.json")
	bowline(t, "", "policy", path, "--as", "ada", "one/echo").want(t, 2, "", `write "token ada"`)
	bowline(t, "", "policy", path, "--as", "token ada", "--claim", "y").want(t, 2, "", "expected NAME=VALUE")
	bowline(t, "", "policy", path+"x", "--as", "token ada").want(t, 2, "", "no such file")
	if strings.Contains(everything.stdout, "at most") {
		t.Error("a file without limits has some:", everything.stdout)
	}
	limited := filepath.Join(t.TempDir(), "mcp.json")
	mcpFile(t, limited, "one")
	addBlock(t, limited, `{"rate": {"perMinute": 600, "inFlight": 32}, "personas": {"contractor": {"who": "token ada", "rate": {"perMinute": 60}}, "all": {"who": "*"}}}`)
	bowline(t, "", "policy", limited, "--as", "token ada", "one/echo").want(t, 0, ": bowline.personas.contractor.rate.perMinute\nat most 32 requests at a time  bowline.rate.inFlight\n", "")
	bowline(t, "", "policy", limited, "--as", "token bob", "one/echo").want(t, 0, "\nat most 600 requests in a minute  bowline.rate.perMinute\nat most 32 requests at a time  bowline.rate.inFlight\n", "")
	addBlock(t, path, `{"policy": [{}]}`)
	bowline(t, "", "policy", path, "--as", "token ada").want(t, 2, "", "mcp.json")
}
