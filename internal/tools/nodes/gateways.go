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
	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/audit"
	"github.com/bowline-mcp/bowline/internal/tools/nodes/child"
	"github.com/bowline-mcp/bowline/protocol"
)

// A User uses the gateways of a Site with a token.
type User struct {
	Name, Token string
	MayErase    bool // no persona forbids the user child.Erase
}

const (
	siteUsers    = 5
	mostInFlight = 8 // requests of a user with a limit, at a node
)

// gateways is what a Site of gateways has beside its nodes.
type gateways struct {
	program string // of the servers behind them
	folder  string
	lies    Lies
	users   []User
	watcher User // makes calls that are to be refused, and has no session of a Load
}

// openGateways makes the users, and a file for each gateway, as on machines of their own.
func openGateways(program, folder string, lies Lies) (*gateways, error) {
	g := &gateways{program: program, folder: folder, lies: lies}
	for i := range siteUsers {
		user, err := g.addUser(fmt.Sprintf("user%d", i), i == 0)
		if err != nil {
			return nil, err
		}
		g.users = append(g.users, user)
	}
	var err error
	if g.watcher, err = g.addUser("watcher", false); err != nil {
		return nil, err
	}
	for node := range siteNodes {
		if err := os.WriteFile(g.file(node), g.configuration(node), 0o600); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func (g *gateways) addUser(name string, mayErase bool) (User, error) {
	token, err := tokens.Add(filepath.Join(g.folder, "tokens.json"), name, time.Time{})
	return User{name, token, mayErase}, err
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
			"auth":     map[string]string{"tokens": filepath.Join(g.folder, "tokens.json")},
			"audit":    map[string]any{"file": g.trail(node), "sync": true, "show": []any{map[string]any{"of": []string{"*"}, "members": []string{"id"}}}},
			"personas": g.personas(),
		},
	})
	return text
}

// personas say that one user may do everything. The others have one that forbids child.Erase, and a limit, which counts for each node: they reach it when one node has all their sessions.
func (g *gateways) personas() map[string]any {
	all, others, denied := []string{}, []string{}, []string{child.One + "/" + child.Erase, child.Own + "/" + child.Erase}
	for _, user := range append(g.users[:len(g.users):len(g.users)], g.watcher) {
		if user.MayErase {
			all = append(all, "token "+user.Name)
		} else {
			others = append(others, "token "+user.Name)
		}
	}
	if g.lies.Permits {
		denied = []string{}
	}
	return map[string]any{
		"everything": map[string]any{"who": all},
		"most":       map[string]any{"who": others, "deny": denied, "rate": map[string]int{"inFlight": mostInFlight}},
	}
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

// Trails are what the audit trails of all gateways say of the calls, by their ids. Whatever else they have is no business of the books: lists, and sessions that begin and end.
type trails struct {
	answered map[string]int  // how many records say that the call was answered
	notSent  map[string]bool // the gateway has refused the call, for its limit or since the server was away, and no server has got it
	denied   map[string]int  // how many say that it was denied by a persona
}

func newTrails() trails { return trails{map[string]int{}, map[string]bool{}, map[string]int{}} }

// recorded reads the trails of the gateways, which have ended. It also returns what is wrong with them. A trail that is broken is not read.
func (g *gateways) recorded(machine func(node int) string) (read trails, wrong []string, err error) {
	read = newTrails()
	for node := range siteNodes {
		key, err := audit.ReadKey(filepath.Join(machine(node), "bowline", "audit.key"))
		if err == nil && g.lies.Trail != nil {
			err = g.lies.Trail(g.trail(node), key)
		}
		if err != nil {
			return trails{}, nil, err
		}
		if _, broken := audit.Verify(g.trail(node), key); broken != nil {
			wrong = append(wrong, broken.Error())
			continue
		}
		if err := read.add(g.trail(node)); err != nil {
			return trails{}, nil, err
		}
	}
	return read, wrong, nil
}

// add reads a trail. It is whole: its file of now, and those before it that were full.
func (t *trails) add(path string) error {
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
			if err := t.count(line); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// count counts a record, if it is that of a call.
func (t *trails) count(line []byte) error {
	var r audit.Record
	if err := json.Unmarshal(line, &r); err != nil {
		return err
	}
	denied, notSent := r.Outcome == string(server.OutcomeDenied) && r.Rule != "", r.Delivery == conn.NotSent.String()
	if r.Method != protocol.MethodCallTool || r.Outcome != string(server.OutcomeAnswered) && !denied && !notSent {
		return nil
	}
	if denied { // it shows no arguments
		id, err := idOfTrace(r.Trace)
		t.denied[id]++
		return err
	}
	// The file of the gateway says that the id is shown. A record without it would be a mistake there, and hide all others.
	var call struct{ ID string }
	if err := json.Unmarshal(r.Shown, &call); err != nil {
		return fmt.Errorf("record %d shows no id of a call: %w", r.Number, err)
	}
	if notSent {
		t.notSent[call.ID] = true
	} else {
		t.answered[call.ID]++
	}
	return nil
}

// A call that a persona forbids says its id as that of a trace: its record shows nothing else that the client has chosen for one call.
func traceOf(session, call int) string {
	return fmt.Sprintf("00-%016x%016x-%016x-01", session+1, call, call)
}

func callID(session, call int) string { return fmt.Sprintf("%d-%d", session, call) }

// idOfTrace returns the id of the call whose trace has this id.
func idOfTrace(id string) (string, error) {
	var session, call int
	if n, err := fmt.Sscanf(id, "%16x%16x", &session, &call); n != 2 {
		return "", fmt.Errorf("a call that was denied has the trace %q: %w", id, err)
	}
	return callID(session-1, call), nil
}
