package catalogue

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func learned(t *testing.T, path string) *Catalogue {
	t.Helper()
	c, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	s := Server{Name: "s", Identity: "1"}
	c.Apply(planned(s), []Server{s})
	list := tools("read", "x.y")
	list.Entries[0] = json.RawMessage(`{ "name": "read", "title": "<b> & \u2028", "inputSchema": {} }`)
	c.Learn(s, Tools, list)
	return c
}

// What was saved is offered after a restart, with its age, before any server has answered. The file is the user's
// alone, and nothing else is left in the folder.
//
// Guarantees: G-0090.13
func TestACatalogueIsSavedAndRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "catalogue.json")
	c := learned(t, path)
	for range 2 {
		if err := c.Save(); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info.Mode(), err)
	}
	if files, _ := os.ReadDir(filepath.Dir(path)); len(files) != 1 {
		t.Errorf("the folder has %d files", len(files))
	}
	again, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(again.Snapshot().Items(Tools)); n != 0 {
		t.Errorf("%d tools are offered before the file is applied", n)
	}
	s := Server{Name: "s", Identity: "1"}
	again.Apply(planned(s), []Server{s})
	if again.Snapshot().Digest(Tools) != c.Snapshot().Digest(Tools) {
		t.Error("the tools are others")
	}
	equal(t, "tools", called(again.Snapshot().Items(Tools)), called(c.Snapshot().Items(Tools)))
	equal(t, "ages", again.Snapshot().Ages("s"), []Age{{Tools, 2, noon}})
	equal(t, "hint", again.Snapshot().Hint(Tools, func(string) bool { return false }), Hint{TTL: time.Minute})
	s.Identity = "2"
	again.Apply(planned(s), []Server{s})
	if n := len(again.Snapshot().Items(Tools)); n != 0 {
		t.Errorf("%d tools of another command are offered", n)
	}
}

// A file that cannot be used is an error, with what is wrong, and the catalogue begins empty. It replaces the file when
// it saves.
//
// Guarantees: G-0090.13
func TestAFileThatCannotBeUsed(t *testing.T) {
	text, _ := encodeFile(learned(t, filepath.Join(t.TempDir(), "c")).Snapshot())
	for _, c := range []struct{ text, want string }{
		{string(text[:len(text)/2]), "unexpected end"},
		{"", "unexpected end"},
		{`[]`, "cannot unmarshal"},
		{`{"v":2}`, "it has version 2, and only 1 is known"},
		{`{"v":1,"servers":[{"name":"a"},{"name":"a"}]}`, `the server "a" is there twice`},
		{`{"servers":[]}`, "it has version 0, and only 1 is known"},
		{`{"v":1,"servers":[{"name":""}]}`, "has no name"},
		{`{"v":1,"servers":[` + strings.Repeat(`{"name":"a"},`, maxServers) + `{"name":"a"}]}`, "10001 servers"},
		{string(text) + "x", "invalid character"},
	} {
		path := filepath.Join(t.TempDir(), "catalogue.json")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		known, err := Open(path)
		var failed *FileError
		if !errors.As(err, &failed) || failed.Op != "read" || failed.Path != path || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40q: %v, want %q", c.text, err, c.want)
		}
		if saved, kept := known.Save(), known.Unread(); saved != nil || kept != err {
			t.Errorf("%.40q: before somebody decided that it is replaced: %v, %v", c.text, saved, kept)
		}
		if left, _ := os.ReadFile(path); string(left) != c.text {
			t.Errorf("%.40q: it was replaced by %s", c.text, left)
		}
		known.Replace()
		if len(known.Snapshot().servers) != 0 || known.Save() != nil {
			t.Errorf("%.40q: it does not begin empty", c.text)
		}
		if _, err := Open(path); err != nil {
			t.Errorf("%.40q: after Save: %v", c.text, err)
		}
	}
}

// What a server has said is read back as it was, and for how long and for whom it may be cached. A tool of a cluster is not pinned by that.
//
// Guarantees: G-0090.13
func TestWhatAFileKeeps(t *testing.T) {
	of := Server{Name: "s", Identity: "1", Shared: true}
	s, lists := Empty().Apply(planned(of), []Server{of}), make(map[Kind]List)
	for i, entry := range []string{`{"name":"t","inputSchema":{}}`, `{"name":"p"}`, `{"uri":"a:b","name":"r"}`, `{"uriTemplate":"a:{b}","name":"r"}`} {
		kind := Kinds()[i]
		lists[kind] = List{Entries: []json.RawMessage{json.RawMessage(entry)}, At: time.Date(2026, 1, 1+i, 0, 0, 0, 0, time.UTC), TTL: time.Duration(i) * time.Second, Private: i%2 == 0}
		s = s.Learn(of, kind, lists[kind])
	}
	text, err := encodeFile(s)
	if err != nil {
		t.Fatal(err)
	}
	back, err := decodeFile(text)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := encodeFile(back); err != nil || string(again) != string(text) {
		t.Errorf("it is written as %s, and was %s, %v", again, text, err)
	}
	for kind, want := range lists {
		if got, known := back.ListOf(of, kind); !known || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %+v, want %+v", kind, got, want)
		}
	}
	if one := back.servers[0]; !one.Shared || len(one.pins) != 0 {
		t.Errorf("%+v", one)
	}
	back, err = decodeFile([]byte(`{"v":1,"servers":[{"name":"s","identity":"1","lists":{"tools":{"ttl":-5,"entries":[]}}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if list, known := back.ListOf(of, Tools); !known || list.TTL != 0 {
		t.Errorf("a time in the past: %+v", list)
	}
}

// A file that others could write is not believed, nor is one that is none. A folder that cannot be written to is an
// error of Save, and the catalogue goes on.
//
// Guarantees: G-0090.13
func TestAFileOfOthers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "catalogue.json")
	if err := errors.Join(os.Chmod(dir, 0o777), os.WriteFile(path, []byte(`{"v":1}`), 0o600)); err != nil {
		t.Fatal(err)
	}
	c, err := Open(path)
	if err == nil || !strings.Contains(err.Error(), "others can write to the folder") {
		t.Errorf("a folder of others: %v", err)
	}
	c.Replace()
	var failed *FileError
	if err := c.Save(); !errors.As(err, &failed) || failed.Op != "save" {
		t.Errorf("saved in it: %v", err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(link); err == nil {
		t.Error("a link is read")
	}
	large := filepath.Join(t.TempDir(), "large")
	if err := errors.Join(os.WriteFile(large, nil, 0o600), os.Truncate(large, MaxFile+1)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(large); err == nil || !strings.Contains(err.Error(), "above the limit") {
		t.Errorf("a large file: %v", err)
	}
	if err := New().Save(); err != nil {
		t.Errorf("without a file: %v", err)
	}
}

// FuzzFile reads any file. What is read is saved and read again as the same.
//
// Guarantees: G-0090.13
func FuzzFile(f *testing.F) {
	f.Add([]byte(`{"v":1,"servers":[{"name":"s","identity":"1","lists":{"tools":{"at":"2026-11-27T12:00:00Z","ttl":1,"entries":[{"name":"a.b","inputSchema":{}}]}}}]}`))
	f.Add([]byte(`{"v":1,"servers":[{"name":"s","lists":{"resourceTemplates":{"entries":[{"uriTemplate":"a://{+b}"}, 5]},"resources":{"entries":[{"uri":"\ud800"}]}}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := decodeFile(text)
		if err != nil {
			return
		}
		again, err := encodeFile(s)
		if err != nil {
			return // larger than a file may be
		}
		same, err := decodeFile(again)
		if err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		var servers []Server
		for _, one := range s.servers {
			servers = append(servers, one.Server)
		}
		plan := planned(servers...)
		s, same = s.Apply(plan, servers), same.Apply(plan, servers)
		for _, kind := range Kinds() {
			if s.Digest(kind) != same.Digest(kind) {
				t.Fatalf("%s: %v and then %v", kind, s.Items(kind), same.Items(kind))
			}
			for _, item := range s.Items(kind) {
				if !json.Valid(item.Raw) {
					t.Fatalf("%s is no JSON", item.Raw)
				}
			}
		}
	})
}
