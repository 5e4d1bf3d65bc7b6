package embedded

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/auth/resource"
	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/proptest/stores"
	"github.com/bowline-mcp/bowline/protocol"
)

// join returns nodes of one cluster, with an engine each. They are closed at the end of the test.
func (s *switchable) join(t *testing.T, names ...string) (nodes []*cluster.Node) {
	t.Helper()
	for _, name := range names {
		e, _ := s.connect(t)
		n, err := cluster.Join(t.Context(), e, cluster.Options{
			Cluster: "test", Node: name, Key: bytes.Repeat([]byte{1}, cluster.KeySize), Log: slog.New(slog.DiscardHandler),
			Labels: map[string]string{"label-of-ada": "x"}, Version: "version-of-ada",
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := errors.Join(n.Close(context.WithoutCancel(t.Context())), e.Close()); err != nil {
				t.Error(err)
			}
		})
		nodes = append(nodes, n)
	}
	return nodes
}

// A part of a store has the entries of some principals, under other names. So many tests can share
// one store, and each begins with an empty one.
type part struct {
	auth.Store
	name string
}

func (p part) key(k auth.Key) auth.Key {
	k.Principal = p.name + k.Principal
	return k
}

func (p part) Load(ctx context.Context, k auth.Key) (*auth.Entry, error) {
	return p.Store.Load(ctx, p.key(k))
}

func (p part) Locked(ctx context.Context, k auth.Key, f func(*auth.Entry) (*auth.Entry, error)) error {
	return p.Store.Locked(ctx, p.key(k), f)
}

// Guarantees: G-0081.1
func TestLoginsOnNATS(t *testing.T) {
	nodes := newSwitchable(t).join(t, "a", "b")
	tests := 0
	stores.LoginStoreContract(t, func(*testing.T) stores.Logins {
		tests++
		name := fmt.Sprintf("test %d, ", tests)
		return stores.Logins{A: part{nodes[0].Logins(), name}, B: part{nodes[1].Logins(), name}}
	}, proptest.ContractOptions{})
}

// A wire records what passes on connections to a server.
type wire struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *wire) record(c net.Conn) net.Conn { return &recordedConn{c, w} }

func (w *wire) add(b []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(b)
}

func (w *wire) all() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Clone(w.text.Bytes())
}

type recordedConn struct {
	net.Conn
	of *wire
}

func (c *recordedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.of.add(b[:n])
	return n, err
}

func (c *recordedConn) Write(b []byte) (int, error) {
	c.of.add(b)
	return c.Conn.Write(b)
}

// readable returns what nobody must find: a part of each secret, in the forms that it has in JSON, and
// members of records.
func readable() []string {
	all := []string{"of-ada", `"epoch"`, `"owner"`, `"identity"`, `"v":1`}
	for shift := range 3 {
		text := base64.StdEncoding.EncodeToString(append(make([]byte, shift), "identity-of-ada"...))
		all = append(all, text[4:16]) // without what the bytes around it change
	}
	return all
}

// Nothing that nodes keep or send can be read without the key of the cluster: not in the files of the
// server, and not on the wire. That is checked for all buckets, messages and control requests.
//
// Guarantees: G-0081.5
func TestServerAndWireTellNothing(t *testing.T) {
	s := newSwitchable(t)
	w := new(wire)
	s.through = w.record
	nodes := s.join(t, "a", "b")
	n := nodes[0]
	k := auth.Key{Resource: "https://resource-of-ada.example", Principal: "principal-of-ada"}
	err := n.Logins().Locked(t.Context(), k, func(*auth.Entry) (*auth.Entry, error) {
		return &auth.Entry{Access: auth.NewSecret("token-of-ada"), Issuer: "https://issuer-of-ada.example"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	result := json.RawMessage(`{"content":[{"type":"text","text":"result-of-ada"}]}`)
	err = n.Tasks().Save(t.Context(), &server.TaskRecord{
		Task: protocol.DetailedTask{Task: protocol.Task{TaskID: "task-of-ada", Status: protocol.TaskCompleted, StatusMessage: "message-of-ada"}, FinalResult: result},
		Tool: "tool-of-ada", Owner: "owner-of-ada", Client: "client-of-ada", Created: time.Now(), Expires: time.Now().Add(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	sessions := n.Sessions()
	sessions.Save("session-of-ada", recordOfAda())
	sessions.Save("ended-session-of-ada", recordOfAda())
	await(t, "the sessions are saved", func() bool { return n.Report().Unsaved == 0 })
	sessions.Forget("ended-session-of-ada")
	sessions.Free("session-of-ada")
	await(t, "the sessions are given up", func() bool { return n.Report().Unsaved == 0 })
	if r, err := nodes[1].Sessions().Take(t.Context(), "session-of-ada", "identity-of-ada"); err != nil || !bytes.Contains(r.State, []byte("level-of-ada")) {
		t.Errorf("got %+v, %v, so this test stores too little", r, err)
	}
	until := time.Now().Add(time.Minute)
	if first, err := n.Spent().Spend(t.Context(), [16]byte([]byte("a state-of-ada..")), until); !first || err != nil {
		t.Errorf("got %t, %v", first, err)
	}
	if fresh, err := n.Proofs().Take(t.Context(), resource.ProofID([]byte("this is a long proof-of-ada, yes")), until); !fresh || err != nil {
		t.Errorf("got %t, %v", fresh, err)
	}
	heard := make(chan server.Change, 10)
	defer nodes[1].Changes().Subscribe(func(c server.Change) { heard <- c })()
	n.Changes().Publish(server.Change{URI: "file:///uri-of-ada"})
	for c := range heard {
		if c.URI == "file:///uri-of-ada" {
			break
		}
	}
	if all, err := n.Reports(t.Context()); len(all) != 2 || err != nil {
		t.Errorf("got %d reports, %v", len(all), err)
	}
	for _, n := range nodes {
		if err := n.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.stop() // so that everything is in the files
	files := new(bytes.Buffer)
	err = filepath.WalkDir(s.options.Folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		files.WriteString(path)
		files.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string][]byte{"the files": files.Bytes(), "the wire": w.all()} {
		for _, secret := range readable() {
			for rest := text; ; {
				at := bytes.Index(rest, []byte(secret))
				if at < 0 {
					break
				}
				t.Errorf("%s can be read: %q", where, rest[max(0, at-20):min(len(rest), at+20)])
				rest = rest[at+len(secret):]
			}
		}
		// What the test must see, so that it would see more.
		for _, seen := range []string{"$KV.bl_test_lease.node.a", "$KV.bl_test_login.", "$KV.bl_test_task.o.", "$KV.bl_test_session."} {
			if !bytes.Contains(text, []byte(seen)) {
				t.Errorf("%s: nothing of %s, so this test sees too little", where, seen)
			}
		}
	}
	for _, seen := range []string{"$KV.bl_test_spent.state.", "$KV.bl_test_spent.proof.", "bl.test.pub.ev", "bl.test.req.ctl"} {
		if !bytes.Contains(w.all(), []byte(seen)) {
			t.Errorf("the wire: nothing of %s, so this test sees too little", seen)
		}
	}
}
