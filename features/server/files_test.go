package server_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A vanishingFS lists a file that is gone when somebody looks at it.
type vanishingFS struct{ fstest.MapFS }

func (v vanishingFS) ReadDir(name string) ([]fs.DirEntry, error) {
	all, err := v.MapFS.ReadDir(name)
	for i, entry := range all {
		if strings.HasPrefix(entry.Name(), "gone") {
			all[i] = goneEntry{entry}
		}
	}
	return all, err
}

type goneEntry struct{ fs.DirEntry }

func (goneEntry) Info() (fs.FileInfo, error) { return nil, fs.ErrNotExist }

// A file is listed and read if it is not larger than MaxBytes, whose default is 8 MiB, and if it is still there. Both agree.
//
// Guarantees: G-0029.5
func TestSizesOfFiles(t *testing.T) {
	for name, test := range map[string]struct {
		most   int64
		files  map[string]int // sizes
		served string
	}{
		"the default":       {0, map[string]int{"fits": 8 << 20, "large": 8<<20 + 1}, "fits"},
		"below it":          {-1, map[string]int{"fits": 8 << 20, "large": 8<<20 + 1}, "fits"},
		"of the program":    {10, map[string]int{"fits": 10, "large": 11}, "fits"},
		"an empty file":     {10, map[string]int{"empty": 0}, "empty"},
		"what has vanished": {10, map[string]int{"gone": 1, "here": 1}, "here"},
	} {
		all := fstest.MapFS{}
		for name, size := range test.files {
			all[name] = &fstest.MapFile{Data: make([]byte, size)}
		}
		s := newServer(server.Options{})
		s.AddFiles("file:///docs", vanishingFS{all}, server.FilesOptions{MaxBytes: test.most, MIMEType: func(string) string { return "image/png" }})
		w := dial(t, s)
		if got := result[protocol.ListResourcesResult](w, "resources/list", ``).Resources; len(got) != 1 || got[0].Name != test.served || *got[0].Size != int64(test.files[test.served]) {
			t.Errorf("%s: got %v, want %s alone", name, got, test.served)
		}
		for file := range test.files {
			if file == "gone" || file == test.served && test.files[file] > 1<<20 {
				continue // of the former only the entry is wrong; reading the latter takes long
			}
			if got := w.ask(modern(`1`, "resources/read", `"uri":"file:///docs/`+file+`"`)); (got.Error == nil) != (file == test.served) {
				t.Errorf("%s: reading %s: got %.100s, %v", name, file, got.Result, got.Error)
			}
		}
	}
}

// Bytes are sent as text if their type is textual, or if they have no type and are UTF-8, and else as they are.
func TestBytesAreTextOrNot(t *testing.T) {
	const text, binary = "text", "\xff"
	for kind, isText := range map[string]bool{
		"": true, "text/plain": true, "text/x-unknown; charset=utf-8": true, "application/json": true, "application/problem+json": true,
		"application/xml": true, "image/svg+xml": true, "application/javascript": true, "application/yaml": true, "application/x-yaml": true,
		"application/toml": true, "application/x-sh": true, "application/sql": true, "application/graphql": true,
		"image/png": false, "application/octet-stream": false, "application/pdf": false, "application/x-json": false, "json": false, "a/b/c": false, "TEXT/Plain": true,
	} {
		s := newServer(server.Options{})
		for name, content := range map[string]string{"x://text": text, "x://binary": binary} {
			server.AddResource(s, protocol.Resource{URI: name, Name: "a", MIMEType: kind}, func(context.Context) ([]byte, error) { return []byte(content), nil })
		}
		server.AddResource(s, protocol.Resource{URI: "x://none", Name: "a", MIMEType: kind}, func(context.Context) ([]byte, error) { return nil, nil })
		w := dial(t, s)
		read := func(uri string) protocol.ResourceContents {
			return result[protocol.ReadResourceResult](w, "resources/read", `"uri":"`+uri+`"`).Contents[0]
		}
		if got := read("x://text"); (got.Text != nil) != isText || isText && *got.Text != text || !isText && string(got.Blob) != text || got.MIMEType != kind {
			t.Errorf("%q: got %+v, want it as text: %t", kind, got, isText)
		}
		if got := read("x://binary"); got.Text != nil || string(got.Blob) != binary {
			t.Errorf("%q: bytes that are no text: got %+v, want them as they are", kind, got)
		}
		if got := read("x://none"); (got.Text != nil) != isText || got.Text == nil && got.Blob == nil {
			t.Errorf("%q: no bytes: got %+v, want an empty content", kind, got)
		}
	}
}

// What is added and what is removed in one moment is listed beside the files at once, and what the program adds hides a file.
//
// Guarantees: G-0029.17
func TestListOfFilesFollowsEveryChange(t *testing.T) {
	s := newServer(server.Options{})
	s.AddFiles("file:///docs", fstest.MapFS{"a": {Data: []byte("file")}}, server.FilesOptions{})
	add := func(uri, name string) {
		server.AddResource(s, protocol.Resource{URI: uri, Name: name}, func(context.Context) (string, error) { return name, nil })
	}
	w := dial(t, s)
	want := func(names ...string) {
		t.Helper()
		var got []string
		for _, r := range result[protocol.ListResourcesResult](w, "resources/list", ``).Resources {
			got = append(got, r.Name)
		}
		if strings.Join(got, " ") != strings.Join(names, " ") {
			t.Errorf("got %q, want %q", got, names)
		}
	}
	want("a")
	add("x://one", "one")
	want("a", "one")
	add("x://two", "two")
	s.RemoveResources("x://one")
	want("a", "two")
	s.RemoveResources("x://two", "x://none")
	add("file:///docs/a", "own")
	want("own")
	if got := result[protocol.ReadResourceResult](w, "resources/read", `"uri":"file:///docs/a"`).Contents[0]; got.Text == nil || *got.Text != "own" {
		t.Errorf("got %+v, want what the program has added", got)
	}
	s.RemoveResources("file:///docs/a")
	want("a")
}

// Names that begin with a dot are served only if the program wants that, whether they are files or directories.
//
// Guarantees: G-0029.5
func TestHiddenFilesAreTheProgramsChoice(t *testing.T) {
	files := fstest.MapFS{".a": {}, ".b/c": {}, "d/.e": {}, "d/f": {}, "d/g.": {}}
	for _, hidden := range []bool{false, true} {
		s := newServer(server.Options{})
		s.AddFiles("file:///docs", files, server.FilesOptions{Hidden: hidden})
		w := dial(t, s)
		var listed []string
		for _, r := range result[protocol.ListResourcesResult](w, "resources/list", ``).Resources {
			listed = append(listed, r.Name)
		}
		want := "d/f d/g."
		if hidden {
			want = ".a .b/c d/.e d/f d/g."
		}
		if got := strings.Join(listed, " "); got != want {
			t.Errorf("hidden ones are served: %t: got %q, want %q", hidden, got, want)
		}
		for name := range files {
			if got := w.ask(modern(`1`, "resources/read", `"uri":"file:///docs/`+name+`"`)); (got.Error == nil) != strings.Contains(want, name) {
				t.Errorf("hidden ones are served: %t: %s: got %s, %v", hidden, name, got.Result, got.Error)
			}
		}
	}
}

// An unreadableFS finds a file that cannot be read.
type unreadableFS struct{ fstest.MapFS }

func (unreadableFS) ReadFile(string) ([]byte, error) {
	return nil, &fs.PathError{Op: "open", Path: "/home/ada/secret", Err: fs.ErrPermission}
}

// A file that is there and cannot be read is not found, and its client does not learn why.
//
// Guarantees: G-0029.5
func TestFilesThatCannotBeRead(t *testing.T) {
	s := newServer(server.Options{})
	s.AddFiles("file:///docs", unreadableFS{fstest.MapFS{"a": {Data: []byte("text")}}}, server.FilesOptions{})
	got := dial(t, s).wantFault(jsonrpc.CodeInvalidParams, modern(`1`, "resources/read", `"uri":"file:///docs/a"`))
	if got.Message != "resource not found: file:///docs/a" || string(got.Data) != `{"uri":"file:///docs/a"}` {
		t.Errorf("got %q, %s", got.Message, got.Data)
	}
}

// With InRoots a client of every revision reads what is within its present roots, and nothing else: no file beside them, and none that a link of a root leads to. Who
// has no roots reads nothing.
//
// Guarantees: G-0106.7
func TestFilesInRoots(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"shop/a b.txt": "in", "shop2/a.txt": "beside", "bakery/a.txt": "later"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700), os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if runtime.GOOS != "windows" {
		if err := errors.Join(os.Symlink("../shop2", filepath.Join(dir, "shop/link")), os.Symlink("../shop2/a.txt", filepath.Join(dir, "shop/file"))); err != nil {
			t.Fatal(err)
		}
	}
	directory, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer directory.Close()
	base := (&url.URL{Scheme: "file", Path: "/" + strings.TrimPrefix(filepath.ToSlash(dir), "/")}).String()
	make := func() *server.Server {
		s := newServer(server.Options{})
		s.AddFiles(base, directory.FS(), server.FilesOptions{InRoots: true})
		return s
	}
	var root atomic.Value
	o := client.Options{Roots: func(context.Context, *client.Session) ([]protocol.Root, error) {
		if root.Load() == "none" {
			return nil, nil
		}
		return []protocol.Root{{URI: "file:///elsewhere"}, {URI: base + root.Load().(string)}}, nil
	}}
	everywhere(t, make, o, func(t *testing.T, _ *server.Server, session *client.Session) {
		want := func(readable ...string) {
			t.Helper()
			for _, name := range []string{"shop/a%20b.txt", "shop2/a.txt", "bakery/a.txt", "shop/link/a.txt", "shop/file"} {
				result, err := session.ReadResource(t.Context(), &protocol.ReadResourceParams{URI: base + "/" + name})
				if slices.Contains(readable, name) != (err == nil) {
					t.Errorf("%s: got %+v, %v, want only %q", name, result, err, readable)
				}
				if err != nil && !strings.Contains(err.Error(), "in none of the client's roots") && !strings.Contains(err.Error(), "resource not found") {
					t.Errorf("%s: got %v, want it to say why", name, err)
				}
			}
		}
		root.Store("/shop")
		want("shop/a%20b.txt")
		for next, readable := range map[string][]string{"/bakery": {"bakery/a.txt"}, "none": nil, "": {"shop/a%20b.txt", "shop2/a.txt", "bakery/a.txt"}} {
			root.Store(next)
			if err := session.Client().RootsChanged(t.Context()); err != nil {
				t.Fatal(err)
			}
			want(readable...)
		}
	})
	everywhere(t, make, client.Options{}, func(t *testing.T, _ *server.Server, session *client.Session) {
		if got, err := session.ReadResource(t.Context(), &protocol.ReadResourceParams{URI: base + "/shop/a%20b.txt"}); err == nil {
			t.Errorf("without roots: got %+v, want an error", got)
		}
	})
}

// Only files have roots.
func TestBaseOfFilesInRoots(t *testing.T) {
	for _, base := range []string{"notes://all", "file:notes", "file:///notes?a", "file:///notes#a", "file://"} {
		func() {
			defer func() {
				if problem := recover(); problem == nil || !strings.Contains(fmt.Sprint(problem), "InRoots") {
					t.Errorf("%s: got %v, want a panic that names InRoots", base, problem)
				}
			}()
			newServer(server.Options{}).AddFiles(base, fstest.MapFS{}, server.FilesOptions{InRoots: true})
		}()
	}
}

// An unreadable is a folder that cannot be listed.
type unreadable struct{ fstest.MapFS }

func (unreadable) ReadDir(string) ([]fs.DirEntry, error) { return nil, errors.New("no such disk") }

// If one of several folders cannot be listed, the list fails: it does not look as if the files were gone.
func TestAFolderThatCannotBeListed(t *testing.T) {
	s := newServer(server.Options{})
	s.AddFiles("files://a", fstest.MapFS{"x": {Data: []byte("x")}}, server.FilesOptions{})
	s.AddFiles("files://b", unreadable{fstest.MapFS{"y": {Data: []byte("y")}}}, server.FilesOptions{})
	w := dial(t, s)
	w.send(modern("1", "resources/list", ""))
	w.want(`"error"`)
	for id, uri := range map[string]string{"2": "files://a/x", "3": "files://b/y"} { // both can be read
		w.send(modern(id, "resources/read", `"uri":"`+uri+`"`))
		w.want(`"id":`+id, `"text":"`+uri[len(uri)-1:]+`"`)
	}
}
