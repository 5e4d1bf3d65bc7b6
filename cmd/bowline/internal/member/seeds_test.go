package member

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/internal/private"
)

// A node finds itself in the list of seeds: by what it advertises, by the address on which it listens, or by
// the addresses of its machine.
func TestANodeFindsItselfAmongTheSeeds(t *testing.T) {
	for _, c := range []struct{ listen, seeds, advertise, want string }{
		{":4248", "a:4248,b:4248,c:4248", "b", "b:4248"},
		{":4248", "a:4248,b:4248,c:4248", "b:7777", "b:4248"},
		{":4248", "a:4248,b:5000,c:4248", "b", "b:5000"}, // behind another port
		{":2", "a:1,a:2,a:3", "a", "a:2"},
		{":12", "a:1,a:2,a:12", "a", "a:12"},
		{":4248", "[2001:db8::1]:4248,[2001:db8::2]:4248,c:4248", "2001:db8::2", "[2001:db8::2]:4248"},
		{"127.0.0.1:2", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "", "127.0.0.1:2"},
		{":3", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "", "127.0.0.1:3"},
		{":1", "203.0.113.1:1,127.0.0.1:1,203.0.113.3:1", "", "127.0.0.1:1"},
		{":1", "203.0.113.1:1,127.0.1.1:1,203.0.113.3:1", "", "127.0.1.1:1"},
		{":4", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "", ""},
		{":1", "203.0.113.1:1,203.0.113.2:1,203.0.113.3:1", "", ""},
		{":4248", "a:4248,b:4248,c:4248", "d", ""},
	} {
		s := seedFlags{listen: c.listen, seeds: strings.Split(c.seeds, ",")}
		if err := s.check(nil, true); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		self, err := s.self(t.Context(), c.advertise)
		if self != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%+v: it is %q: %v", c, self, err)
		}
	}
	s := seedFlags{listen: ":4248"}
	if hop, advertise := s.reach("b:4248", "", ""); hop != ":0" || advertise != "b" {
		t.Errorf("other nodes reach it at %s, %s", hop, advertise)
	}
	if hop, advertise := s.reach("b:4248", ":7777", "x"); hop != ":7777" || advertise != "x" {
		t.Errorf("with flags other nodes reach it at %s, %s", hop, advertise)
	}
}

// A command that names the cluster only has the key of the node that started last on this machine.
func TestKeyOfARunningNode(t *testing.T) {
	t.Setenv(keyVariable, "")
	folder := t.TempDir()
	named := ClusterFlags{Name: "x", keyFile: filepath.Join(t.TempDir(), "key")}
	if err := private.MakeKey(named.keyFile, cluster.KeySize); err != nil {
		t.Fatal(err)
	}
	alone := ClusterFlags{Name: "x"}
	if _, err := alone.observerKey(folder); err == nil || !strings.Contains(err.Error(), "give --cluster-key FILE") {
		t.Errorf("without a node there is a key: %v", err)
	}
	if _, err := os.Stat(filepath.Join(folder, "key")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("who looks at a cluster has made a key: %v", err)
	}
	for _, node := range []ClusterFlags{named, alone, named} {
		key, err := node.given()
		if err == nil {
			key, err = node.keep(key, folder)
		}
		if err != nil {
			t.Fatal(err)
		}
		if seen, err := alone.observerKey(folder); err != nil || string(seen) != string(key) {
			t.Errorf("the key of a node is not found: %v", err)
		}
	}
}
