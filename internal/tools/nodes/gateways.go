package nodes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/auth/tokens"
	"github.com/bowline-mcp/bowline/internal/tools/nodes/child"
)

// A User uses the gateways of a Site with a token.
type User struct{ Name, Token string }

// siteUsers is how many users there are.
const siteUsers = 5

// gateways is what a Site of gateways has beside its nodes.
type gateways struct {
	program string // of the servers behind them
	folder  string
	users   []User
}

// openGateways makes the users, and a file for each gateway, as on machines of their own.
func openGateways(program, folder string) (*gateways, error) {
	g := &gateways{program: program, folder: folder}
	for i := range siteUsers {
		name := fmt.Sprintf("user%d", i)
		token, err := tokens.Add(filepath.Join(folder, "tokens.json"), name, time.Time{})
		if err != nil {
			return nil, err
		}
		g.users = append(g.users, User{name, token})
	}
	for node := range siteNodes {
		if err := os.WriteFile(g.file(node), g.configuration(), 0o600); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func (g *gateways) file(node int) string { return filepath.Join(g.folder, nodeName(node)+".json") }

func (g *gateways) violations() string { return filepath.Join(g.folder, "violations") }

// configuration has a server of which the cluster has one, and one of which each user has his own.
func (g *gateways) configuration() []byte {
	entry := func(kind, share, instances string) map[string]any {
		return map[string]any{
			"command": g.program, "args": []string{kind},
			"env": map[string]string{
				child.Variable: kind, child.Ledger: filepath.Join(g.folder, "ledger"), child.Lock: filepath.Join(g.folder, "lock"), child.Violation: g.violations(),
			},
			"bowline": map[string]string{"share": share, "instances": instances},
		}
	}
	text, _ := json.Marshal(map[string]any{ // it has nothing that JSON cannot express
		"mcpServers": map[string]any{child.One: entry(child.One, "all", "one"), child.Own: entry(child.Own, "user", "each")},
		"bowline":    map[string]any{"auth": map[string]string{"tokens": filepath.Join(g.folder, "tokens.json")}},
	})
	return text
}

// arguments are those of the gateway of a node.
func (g *gateways) arguments(node int) []string {
	return []string{"up", g.file(node), "--http", "127.0.0.1:0", "--admin", "off", "--auth", "tokens"}
}

// wrong returns what the servers have noticed that must not be.
func (g *gateways) wrong() ([]string, error) {
	text, err := os.ReadFile(g.violations())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n"), err
}
