package nodes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/auth/tokens"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/audit"
	"github.com/bowline-mcp/bowline/internal/tools/nodes/child"
	"github.com/bowline-mcp/bowline/protocol"
)

// A User uses the gateways of a Site with a token.
type User struct{ Name, Token string }

// siteUsers is how many users there are.
const siteUsers = 5

// gateways is what a Site of gateways has beside its nodes.
type gateways struct {
	program string // of the servers behind them
	folder  string
	lies    Lies
	users   []User
}

// openGateways makes the users, and a file for each gateway, as on machines of their own.
func openGateways(program, folder string, lies Lies) (*gateways, error) {
	g := &gateways{program: program, folder: folder, lies: lies}
	for i := range siteUsers {
		name := fmt.Sprintf("user%d", i)
		token, err := tokens.Add(filepath.Join(folder, "tokens.json"), name, time.Time{})
		if err != nil {
			return nil, err
		}
		g.users = append(g.users, User{name, token})
	}
	for node := range siteNodes {
		if err := os.WriteFile(g.file(node), g.configuration(node), 0o600); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func (g *gateways) file(node int) string { return filepath.Join(g.folder, nodeName(node)+".json") }

func (g *gateways) trail(node int) string {
	return filepath.Join(g.folder, nodeName(node)+".audit.jsonl")
}

func (g *gateways) violations() string { return filepath.Join(g.folder, "violations") }

// configuration has a server of which the cluster has one, and one of which each user has his own. Records of calls are in the trail of the node before they are answered.
func (g *gateways) configuration(node int) []byte {
	one := "one"
	if g.lies.Everywhere {
		one = "each"
	}
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
		"mcpServers": map[string]any{child.One: entry(child.One, "all", one), child.Own: entry(child.Own, "user", "each")},
		"bowline": map[string]any{
			"auth":  map[string]string{"tokens": filepath.Join(g.folder, "tokens.json")},
			"audit": map[string]any{"file": g.trail(node), "sync": true, "show": []any{map[string]any{"of": []string{"*"}, "members": []string{"id"}}}},
		},
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

// recorded reads the trails of the gateways, which have ended. It returns of how many answers to each call there are records, and what is wrong with the trails. A trail that is broken is not read.
func (g *gateways) recorded(machine func(node int) string) (answers map[string]int, wrong []string, err error) {
	answers = make(map[string]int)
	for node := range siteNodes {
		key, err := audit.ReadKey(filepath.Join(machine(node), "bowline", "audit.key"))
		if err == nil && g.lies.Trail != nil {
			err = g.lies.Trail(g.trail(node), key)
		}
		if err != nil {
			return nil, nil, err
		}
		if _, broken := audit.Verify(g.trail(node), key); broken != nil {
			wrong = append(wrong, broken.Error())
			continue
		}
		if err := answersIn(g.trail(node), answers); err != nil {
			return nil, nil, err
		}
	}
	return answers, wrong, nil
}

// answersIn counts the answers to calls that a trail has. It is whole: its file of now, and those before it that were full.
func answersIn(path string, answers map[string]int) error {
	full, newest, err := audit.OpenFiles(path)
	if err != nil {
		return err
	}
	if err := newest.Close(); err != nil {
		return err
	}
	for _, name := range append(full, path) {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for line := range bytes.Lines(text) {
			if err := countAnswer(line, answers); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// countAnswer counts a record, if it is that of a call with an answer. Whatever else the trail has is no business of the books:
// lists, sessions that begin and end, and calls that were refused or that have failed.
func countAnswer(line []byte, answers map[string]int) error {
	var r audit.Record
	if err := json.Unmarshal(line, &r); err != nil {
		return err
	}
	if r.Method != protocol.MethodCallTool || r.Outcome != string(server.OutcomeAnswered) {
		return nil
	}
	// The file of the gateway says that the id is shown. A record without it would be a mistake there, and hide all others.
	var call struct{ ID string }
	if err := json.Unmarshal(r.Shown, &call); err != nil {
		return fmt.Errorf("record %d shows no id of a call: %w", r.Number, err)
	}
	answers[call.ID]++
	return nil
}
