package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth"
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

// Nothing that nodes keep can be read in the files of the server.
//
// Guarantees: G-0081.5
func TestFilesOfTheServerTellNothing(t *testing.T) {
	s := newSwitchable(t)
	n := s.join(t, "a")[0]
	k := auth.Key{Resource: "https://resource-of-ada.example", Principal: "principal-of-ada"}
	err := n.Logins().Locked(t.Context(), k, func(*auth.Entry) (*auth.Entry, error) {
		return &auth.Entry{Access: auth.NewSecret("token-of-ada"), Issuer: "https://issuer-of-ada.example"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	err = n.Tasks().Save(t.Context(), &server.TaskRecord{
		Task: protocol.DetailedTask{Task: protocol.Task{TaskID: "task-of-ada", Status: protocol.TaskWorking, StatusMessage: "message-of-ada"}},
		Tool: "tool-of-ada", Owner: "owner-of-ada", Client: "client-of-ada", Created: time.Now(), Expires: time.Now().Add(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.stop() // so that everything is in the files
	buckets := 0
	err = filepath.WalkDir(s.options.Folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte("-of-ada")) {
			t.Errorf("%s can be read", path)
		}
		for _, bucket := range []string{"$KV.bl_test_login.", "$KV.bl_test_task.o."} {
			if bytes.Contains(text, []byte(bucket)) {
				buckets++
			}
		}
		return err
	})
	if err != nil || buckets < 2 {
		t.Errorf("%v; the files have %d of the buckets that were written, so this test sees too little", err, buckets)
	}
}
