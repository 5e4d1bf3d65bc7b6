package server_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/mcptest"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

type user struct {
	Name string `json:"name"`
}

// resourceServer returns a server with resources of every kind.
func resourceServer() *server.Server {
	s := newServer(server.Options{PageSize: 2, OnSubscribe: func(_ context.Context, uri string) error {
		if uri == "config://secret" {
			return server.ErrNotFound
		}
		return nil
	}})
	server.AddResource(s, protocol.Resource{URI: "config://app", Name: "config"}, func(context.Context) ([]byte, error) { return []byte("a: 1"), nil })
	server.AddResource(s, protocol.Resource{URI: "config://bytes", Name: "bytes"}, func(context.Context) ([]byte, error) { return []byte{0xff, 0}, nil })
	server.AddResource(s, protocol.Resource{URI: "config://user", Name: "user"}, func(context.Context) (user, error) { return user{"Ada"}, nil })
	server.AddResource(s, protocol.Resource{URI: "config://gone", Name: "gone"}, func(context.Context) (string, error) {
		return "", fmt.Errorf("reading: %w", os.ErrNotExist)
	})
	server.AddResource(s, protocol.Resource{URI: "config://broken", Name: "broken"}, func(context.Context) (string, error) {
		return "", errors.New("out of paper")
	})
	server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "users://{id}", Name: "user"}, func(_ context.Context, in struct {
		ID int `json:"id"`
	}) (user, error) {
		if in.ID != 7 {
			return user{}, server.ErrNotFound
		}
		return user{"Grace"}, nil
	})
	return s
}

// Resources and templates are listed and read, and a resource that does not exist has
// the error code of the client's revision.
//
// Guarantees: G-0029.1
func TestResourcesAreListedAndRead(t *testing.T) {
	everywhere(t, resourceServer, client.Options{}, func(t *testing.T, _ *server.Server, session *client.Session) {
		var uris []string
		for r, err := range session.Resources(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			uris = append(uris, r.URI)
		}
		if got := strings.Join(uris, " "); got != "config://app config://broken config://bytes config://gone config://user" {
			t.Errorf("the resources are %s, want %q", got, "config://app config://broken config://bytes config://gone config://user")
		}
		for r, err := range session.ResourceTemplates(t.Context()) {
			if err != nil || r.URITemplate != "users://{id}" || r.MIMEType != "application/json" {
				t.Errorf("got %+v, %v, want r.URITemplate == %q and r.MIMEType == %q", r, err, "users://{id}", "application/json")
			}
		}
		for uri, want := range map[string]protocol.ResourceContents{
			"config://app":   {Text: ptr("a: 1")},
			"config://bytes": {Blob: []byte{0xff, 0}},
			"config://user":  {MIMEType: "application/json", Text: ptr(`{"name":"Ada"}`)},
			"users://7":      {MIMEType: "application/json", Text: ptr(`{"name":"Grace"}`)},
		} {
			result, err := session.ReadResource(t.Context(), &protocol.ReadResourceParams{URI: uri})
			if err != nil || len(result.Contents) != 1 {
				t.Errorf("%s: got %+v, %v", uri, result, err)
				continue
			}
			got := result.Contents[0]
			if got.URI != uri || got.MIMEType != want.MIMEType || string(got.Blob) != string(want.Blob) || want.Text != nil && (got.Text == nil || *got.Text != *want.Text) {
				t.Errorf("%s: got %+v", uri, got)
			}
		}
		notFound := int64(protocol.CodeResourceNotFound)
		if session.Server().ProtocolVersion == protocol.Latest {
			notFound = jsonrpc.CodeInvalidParams
		}
		for uri, code := range map[string]int64{
			"config://none": notFound, "config://gone": notFound, "users://8": notFound, "users://x/y": notFound,
			"config://broken": jsonrpc.CodeInternalError, "users://ada": jsonrpc.CodeInvalidParams,
		} {
			_, err := session.ReadResource(t.Context(), &protocol.ReadResourceParams{URI: uri})
			var fault *jsonrpc.Error
			if !errors.As(err, &fault) || fault.Code != code {
				t.Errorf("%s: got %v, want %d", uri, err, code)
			} else if code == notFound && uri != "users://ada" && !strings.Contains(string(fault.Data), `"`+uri+`"`) {
				t.Errorf("%s: the data are %s", uri, fault.Data)
			}
		}
	})
}

func ptr[T any](value T) *T { return &value }

// A client that has subscribed to a resource gets each update of it.
//
// Guarantees: G-0029.4
func TestSubscribersGetUpdates(t *testing.T) {
	events := make(chan client.Event, 100) // shared by the runs, which are sequential
	o := client.Options{OnEvent: func(_ context.Context, _ *client.Session, e client.Event) { events <- e }}
	everywhere(t, resourceServer, o, func(t *testing.T, s *server.Server, session *client.Session) {
		for len(events) > 0 {
			<-events
		}
		updated := func() string {
			for {
				if e, ok := within(t, events).(*client.ResourceUpdated); ok {
					return e.URI
				}
			}
		}
		for _, uri := range []string{"config://app", "users://7"} {
			if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: uri}); err != nil {
				t.Fatal(err)
			}
		}
		for _, uri := range []string{"config://app", "users://7"} {
			s.ResourceUpdated(uri)
			for updated() != uri { // earlier updates may arrive, too
			}
		}
		if err := session.Unsubscribe(t.Context(), &protocol.UnsubscribeParams{URI: "config://app"}); err != nil {
			t.Fatal(err)
		}
	})
}

// Each change of tools, prompts or resources is reported as a change of that list.
//
// Guarantees: G-0029.4
func TestChangesAreReportedPerList(t *testing.T) {
	events := make(chan client.Event, 100) // shared by the runs, which are sequential
	o := client.Options{OnEvent: func(_ context.Context, _ *client.Session, e client.Event) { events <- e }}
	make := func() *server.Server {
		s := resourceServer()
		addNamed(s, "t")
		server.AddPrompt(s, protocol.Prompt{Name: "p"}, func(context.Context, struct{}) (string, error) { return "", nil })
		return s
	}
	everywhere(t, make, o, func(t *testing.T, s *server.Server, session *client.Session) {
		for len(events) > 0 {
			<-events
		}
		if _, err := session.ListTools(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		for _, change := range []struct {
			do   func()
			want client.Event
		}{
			{func() { s.RemoveTools("t", "none") }, &client.ToolsChanged{}},
			{func() { s.RemovePrompts("p") }, &client.PromptsChanged{}},
			{func() { s.RemoveResources("config://app") }, &client.ResourcesChanged{}},
			{func() { s.RemoveTemplates("users://{id}") }, &client.ResourcesChanged{}},
			{func() { s.RemoveTools("t"); addNamed(s, "u") }, &client.ToolsChanged{}},
		} {
			change.do()
			for fmt.Sprintf("%T", within(t, events)) != fmt.Sprintf("%T", change.want) {
			} // earlier changes may arrive, too
		}
	})
}

// The granted filter contains what the server offers, what OnSubscribe accepts, and
// each resource once. OnUnsubscribe is called once for each granted subscription,
// however it ends.
//
// Guarantees: G-0020.6
func TestSubscriptionsAreGrantedAndGivenBack(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		ended := make(chan string, 10)
		s := newServer(server.Options{
			OnSubscribe: func(_ context.Context, uri string) error {
				if uri == "x://secret" {
					return server.ErrNotFound
				}
				return nil
			},
			OnUnsubscribe: func(_ context.Context, uri string) { ended <- uri },
		})
		w := dial(t, s)
		w.send(modern(`1`, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["x://a","x://secret","x://a",""],"promptsListChanged":true}`))
		w.want(`"notifications":{"resourceSubscriptions":["x://a"]}`, subscriptionID(`1`))
		for range 100 {
			s.ResourceUpdated("x://a")
		}
		s.ResourceUpdated("x://b")
		w.want(`"method":"notifications/resources/updated"`, `"uri":"x://a"`, subscriptionID(`1`))
		w.wantNothing()
		w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		if uri := <-ended; uri != "x://a" {
			t.Errorf("OnUnsubscribe got %s, want %q", uri, "x://a")
		}
		w.initialize(protocol.Version20251125)
		w.wantFault(protocol.CodeResourceNotFound, `{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"x://secret"}}`)
		for range 2 {
			w.ask(`{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"x://b"}}`)
		}
		s.ResourceUpdated("x://b")
		w.want(`"method":"notifications/resources/updated","params":{"uri":"x://b"}`)
		w.link.Close(0)
		if uri := <-ended; uri != "x://b" {
			t.Errorf("OnUnsubscribe got %s, want %q", uri, "x://b")
		}
		synctest.Wait()
		if len(ended) > 0 {
			t.Errorf("OnUnsubscribe got %s twice, want once", <-ended)
		}
	})
}

// Without OnSubscribe, a server does not serve resources/subscribe.
func TestSubscriptionsNeedOnSubscribe(t *testing.T) {
	s := newServer(server.Options{})
	server.AddResource(s, protocol.Resource{URI: "x://a", Name: "a"}, func(context.Context) (string, error) { return "", nil })
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	w.wantFault(jsonrpc.CodeMethodNotFound, `{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"x://a"}}`)
	w.wantFault(jsonrpc.CodeMethodNotFound, `{"jsonrpc":"2.0","id":2,"method":"prompts/list"}`)
}

// AddFiles serves the visible files of the directory up to the size limit, and nothing
// outside of it.
//
// Guarantees: G-0029.5
func TestFilesAreServedAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"docs/a.txt": "a", "docs/sub/b c.md": "b", "docs/.hidden": "h", "docs/.git/config": "g", "docs/large.bin": strings.Repeat("x", 101), "secret.txt": "s",
	} {
		if i := strings.LastIndex(name, "/"); i > 0 {
			if err := os.MkdirAll(dir+"/"+name[:i], 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"link.txt": "../secret.txt", "inside.txt": ".hidden", "same.txt": "a.txt", "git": ".git"} {
		if err := os.Symlink(to, dir+"/docs/"+link); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir + "/docs")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	s := newServer(server.Options{})
	s.AddFiles("file:///docs", root.FS(), server.FilesOptions{MaxBytes: 100})
	w := dial(t, s)
	got := w.ask(modern(`1`, "resources/list", ``)).Result
	if n := strings.Count(string(got["resources"]), `"uri"`); n != 2 || !strings.Contains(string(got["resources"]), `file:///docs/sub/b%20c.md`) {
		t.Errorf("got %s, want n == 2 and %q in it", got["resources"], `file:///docs/sub/b%20c.md`)
	}
	for uri, want := range map[string]string{
		"file:///docs/a.txt":                      `"text":"a"`,
		"file:///docs/sub/b%20c.md":               `"text":"b"`,
		"file:///docs/sub/b c.md":                 "", // there is one way to write it
		"file:///docs/%61.txt":                    "",
		"file:///docs/sub%2fb%20c.md":             "",
		"file:///docs/../secret.txt":              "",
		"file:///docs/%2e%2e/secret.txt":          "",
		"file:///docs/sub/../../secret.txt":       "",
		"file:///docs//a.txt":                     "",
		"file:///docs/./a.txt":                    "",
		"file:///docs/link.txt":                   "",
		"file:///docs/inside.txt":                 "",
		"file:///docs/same.txt":                   "",
		"file:///docs/git/config":                 "",
		"file:///docs/.hidden":                    "",
		"file:///docs/.git/config":                "",
		"file:///docs/large.bin":                  "",
		"file:///docs/sub":                        "",
		"file:///docs/":                           "",
		"file:///docs/A.txt":                      "",
		`file:///docs/sub\\b`:                     "",
		"file:///docs/a.txt%00":                   "",
		"file:///docs/" + strings.Repeat("a", 99): "",
	} {
		got := w.ask(modern(`1`, "resources/read", `"uri":"`+uri+`"`))
		if want != "" && !strings.Contains(string(got.Result["contents"]), want) || want == "" && (got.Error == nil || got.Error.Code != jsonrpc.CodeInvalidParams) {
			t.Errorf("%s: got %s, %+v", uri, got.Result, got.Error)
		}
	}
	wantPanic(t, "a directory that follows links", "os.DirFS", func() { s.AddFiles("file:///x/", os.DirFS(dir), server.FilesOptions{}) })
	wantPanic(t, "no base", "absolute", func() { s.AddFiles("docs", fstest.MapFS{}, server.FilesOptions{}) })
}

// A foldingFS finds a file whatever the case of its name, and reports the
// name that it was asked for, as the file systems of macOS and Windows do. Like
// Windows, it also accepts a name with a dot at the end.
type foldingFS struct{ fstest.MapFS }

func folded(name string) string {
	if name == "." {
		return name
	}
	return strings.TrimRight(strings.ToLower(name), ".")
}

func (f foldingFS) Open(name string) (fs.File, error) { return f.MapFS.Open(folded(name)) }

func (f foldingFS) Stat(name string) (fs.FileInfo, error) {
	info, err := f.MapFS.Stat(folded(name))
	return renamedInfo{info, path.Base(name)}, err
}

func (f foldingFS) ReadFile(name string) ([]byte, error) { return f.MapFS.ReadFile(folded(name)) }

func (f foldingFS) Lstat(name string) (fs.FileInfo, error) {
	info, err := f.MapFS.Lstat(folded(name))
	return renamedInfo{info, path.Base(name)}, err
}

type renamedInfo struct {
	fs.FileInfo
	name string
}

func (n renamedInfo) Name() string { return n.name }

// A file is served under its exact name only, so that no other spelling circumvents
// Visible.
func TestFilesHaveTheirOwnNamesOnly(t *testing.T) {
	s := newServer(server.Options{})
	s.AddFiles("file:///docs", foldingFS{fstest.MapFS{"sub/a.txt": {Data: []byte("a")}, "sub/k.txt": {Data: []byte("k")}}}, server.FilesOptions{})
	w := dial(t, s)
	for uri, found := range map[string]bool{
		"file:///docs/sub/a.txt": true, "file:///docs/sub/A.txt": false, "file:///docs/SUB/a.txt": false, "file:///docs/sub/a.txt.": false, "file:///docs/sub./a.txt": false,
		"file:///docs/sub/k.txt": true, "file:///docs/sub/%E2%84%AA.txt": false, // the sign of kelvin, which is a k in lower case
	} {
		if got := w.ask(modern(`1`, "resources/read", `"uri":"`+uri+`"`)); (got.Error == nil) != found {
			t.Errorf("%s: got %s, %+v, want %v", uri, got.Result, got.Error, found)
		}
	}
}

// A countingDirFS counts how often a directory is read.
type countingDirFS struct {
	fstest.MapFS
	read *int
}

func (c countingDirFS) Open(name string) (fs.File, error) {
	if info, err := c.Lstat(name); err == nil && info.IsDir() {
		*c.read++
	}
	return c.MapFS.Open(name)
}

func (c countingDirFS) ReadDir(name string) ([]fs.DirEntry, error) {
	*c.read++
	return c.MapFS.ReadDir(name)
}

// Reading a file does not read its directory.
func TestReadingAFileReadsNoDirectory(t *testing.T) {
	files, read := fstest.MapFS{"sub/b.txt": {Data: []byte("b")}}, 0
	for n := range 20_000 {
		files[fmt.Sprintf("file-%06d.txt", n)] = &fstest.MapFile{Data: []byte("a")}
	}
	s := newServer(server.Options{})
	s.AddFiles("file:///docs", countingDirFS{files, &read}, server.FilesOptions{})
	w := dial(t, s)
	for _, name := range []string{"file-000388.txt", "file-019999.txt", "sub/b.txt"} {
		if got := w.ask(modern(`1`, "resources/read", `"uri":"file:///docs/`+name+`"`)); got.Error != nil {
			t.Errorf("%s: got %v, want its text", name, got.Error)
		}
	}
	if read > 0 {
		t.Errorf("directories were read %d times, want 0", read)
	}
}

// The list of files is kept for a second, however many clients ask for it. What the program adds or
// removes is listed at once.
//
// Guarantees: G-0029.17
func TestListOfFilesIsKeptForASecond(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		files, read := fstest.MapFS{"a.txt": {Data: []byte("a")}}, 0
		s := newServer(server.Options{})
		s.AddFiles("file:///docs", countingDirFS{files, &read}, server.FilesOptions{})
		w := dial(t, s)
		listed := func() (names []string) {
			for _, r := range result[protocol.ListResourcesResult](w, "resources/list", ``).Resources {
				names = append(names, r.Name)
			}
			return names
		}
		want := func(reads int, names ...string) {
			t.Helper()
			if got := listed(); !slices.Equal(got, names) || read != reads {
				t.Errorf("got %v after %d reads, want %v after %d", got, read, names, reads)
			}
		}
		want(1, "a.txt")
		files["b.txt"] = &fstest.MapFile{Data: []byte("b")}
		pass(time.Second - 1)
		want(1, "a.txt")
		pass(1)
		want(2, "a.txt", "b.txt")
		server.AddResource(s, protocol.Resource{Name: "c", URI: "x://c"}, func(context.Context) (string, error) { return "", nil })
		want(3, "a.txt", "b.txt", "c")
		s.RemoveResources("x://c")
		want(4, "a.txt", "b.txt")
		s.AddFiles("file:///more", fstest.MapFS{"d.txt": {}}, server.FilesOptions{})
		want(5, "a.txt", "b.txt", "d.txt")
		want(5, "a.txt", "b.txt", "d.txt")
	})
}

// A listingFS has its own ReadDir: directories that it opens cannot be read.
// It has no Lstat.
type listingFS struct{ files fstest.MapFS }

func (l listingFS) Open(name string) (fs.File, error) {
	file, err := l.files.Open(name)
	return struct{ fs.File }{file}, err
}

func (l listingFS) ReadDir(name string) ([]fs.DirEntry, error) { return l.files.ReadDir(name) }

// AddFiles works with a file system that has its own ReadDir.
func TestFilesOfASystemThatReadsDirectoriesItself(t *testing.T) {
	s := newServer(server.Options{})
	s.AddFiles("file:///docs", listingFS{fstest.MapFS{
		"sub/a.txt": {Data: []byte("a")}, "link.txt": {Mode: fs.ModeSymlink, Data: []byte("sub/a.txt")},
	}}, server.FilesOptions{})
	w := dial(t, s)
	if got := string(w.ask(modern(`1`, "resources/list", ``)).Result["resources"]); strings.Count(got, `"uri"`) != 1 {
		t.Errorf("got %s, want 1", got)
	}
	for uri, found := range map[string]bool{"file:///docs/sub/a.txt": true, "file:///docs/link.txt": false} {
		if got := w.ask(modern(`1`, "resources/read", `"uri":"`+uri+`"`)); (got.Error == nil) != found {
			t.Errorf("%s: got %s, %+v, want %v", uri, got.Result, got.Error, found)
		}
	}
}

// An unlinkedFS counts how often a directory is read, and has no Lstat.
type unlinkedFS struct {
	files fs.FS
	read  *int
}

func (u unlinkedFS) Open(name string) (fs.File, error) { return u.files.Open(name) }

func (u unlinkedFS) ReadDir(name string) ([]fs.DirEntry, error) {
	*u.read++
	return fs.ReadDir(u.files, name)
}

// A directory that must be read is read once, and again only after it has changed.
func TestDirectoriesAreReadAgainWhenTheyHaveChanged(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		dir, read := t.TempDir(), 0
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		changed := time.Unix(1_700_000_000, 0)
		change := func(does error) {
			t.Helper()
			changed = changed.Add(time.Millisecond)
			if err := errors.Join(does, os.Chtimes(dir, changed, changed)); err != nil {
				t.Fatal(err)
			}
		}
		file := func(name string) string { return filepath.Join(dir, name) }
		change(os.WriteFile(file("ä.txt"), []byte("a"), 0o600))
		s := newServer(server.Options{})
		s.AddFiles("file:///docs", unlinkedFS{root.FS(), &read}, server.FilesOptions{})
		w := dial(t, s)
		look := func(name string, found bool, reads int) {
			t.Helper()
			before := read
			got := w.ask(modern(`1`, "resources/read", `"uri":"file:///docs/`+url.PathEscape(name)+`"`))
			if (got.Error == nil) != found || read-before != reads {
				t.Errorf("%s: got %s, %+v after %d directories were read; want found %v after %d", name, got.Result, got.Error, read-before, found, reads)
			}
		}
		look("ä.txt", true, 1)
		look("ä.txt", true, 1) // the directory may have changed within the resolution of its time
		pass(2 * time.Second)
		look("ä.txt", true, 1)
		for range 3 {
			look("ä.txt", true, 0)
		}
		change(os.WriteFile(file("ö.txt"), []byte("o"), 0o600))
		look("ö.txt", true, 1)
		pass(2 * time.Second)
		look("ä.txt", true, 1)
		look("ö.txt", true, 0)
		change(errors.Join(os.Remove(file("ä.txt")), os.Symlink("ö.txt", file("ä.txt"))))
		look("ä.txt", false, 1)
		look("ö.txt", true, 1)
	})
}

// A feature that Visible hides from a client is not listed, and is unknown when the
// client uses it.
//
// Guarantees: G-0029.3
func TestInvisibleFeaturesAreUnknown(t *testing.T) {
	s := newServer(server.Options{PageSize: 1, Visible: func(ctx context.Context, f server.Feature) bool {
		return server.RequestFrom(ctx) != nil && !strings.Contains(f.Name, "hidden")
	}})
	addNamed(s, "a", "hidden", "z")
	server.AddPrompt(s, protocol.Prompt{Name: "hidden"}, func(context.Context, struct {
		A string `json:"a" enum:"b"`
	}) (string, error) {
		return "", nil
	})
	s.AddFiles("files://", fstest.MapFS{"hidden.txt": &fstest.MapFile{}}, server.FilesOptions{})
	server.AddResource(s, protocol.Resource{URI: "x://hidden", Name: "x"}, func(context.Context) (string, error) { return "", nil })
	server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "hidden://{a}", Name: "x"}, func(_ context.Context, _ map[string]string) (string, error) { return "", nil })
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	if names, sizes := w.list(); !slices.Equal(names, []string{"a", "z"}) || !slices.Equal(sizes, []int{1, 1}) {
		t.Errorf("got %v in %v, want %v and %v", names, sizes, []string{"a", "z"}, []int{1, 1})
	}
	for _, frame := range []string{
		`"method":"tools/call","params":{"name":"hidden"}`,
		`"method":"prompts/get","params":{"name":"hidden"}`,
		`"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"hidden"},"argument":{"name":"a","value":""}}`,
		`"method":"completion/complete","params":{"ref":{"type":"ref/resource","uri":"x://hidden"},"argument":{"name":"a","value":""}}`,
		`"method":"completion/complete","params":{"ref":{"type":"ref/resource","uri":"hidden://{a}"},"argument":{"name":"a","value":""}}`,
	} {
		hidden := w.wantFault(jsonrpc.CodeInvalidParams, `{"jsonrpc":"2.0","id":1,`+frame+`}`)
		unknown := w.wantFault(jsonrpc.CodeInvalidParams, `{"jsonrpc":"2.0","id":1,`+strings.ReplaceAll(frame, "hidden", "nobody")+`}`)
		if want := strings.ReplaceAll(unknown.Message, "nobody", "hidden"); hidden.Message != want {
			t.Errorf("%s: got %q, want %q", frame, hidden.Message, want)
		}
	}
	for _, uri := range []string{"x://hidden", "hidden://a", "files:///hidden.txt", "files://hidden.txt", "x://hidden" + strings.Repeat("a", 300)} {
		fault := w.wantFault(protocol.CodeResourceNotFound, `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"`+uri+`"}}`)
		if string(fault.Data) != `{"uri":"`+uri+`"}` {
			t.Errorf("got %s, want the whole URI %s", fault.Data, uri)
		}
	}
}

// A resource, a file or a template that a client may not see hides no other one with the same URI.
func TestHiddenResourcesHideNoOther(t *testing.T) {
	s := newServer(server.Options{Visible: func(_ context.Context, f server.Feature) bool { return !strings.Contains(f.Name, "a") }})
	server.AddResource(s, protocol.Resource{URI: "x://a", Name: "x"}, func(context.Context) (string, error) { return "hidden", nil })
	s.AddFiles("x://", fstest.MapFS{"a.txt": &fstest.MapFile{Data: []byte("hidden")}}, server.FilesOptions{})
	for _, template := range []string{"x://{+a}", "x://{+b}", "y://{+a}", "x://{+c}"} {
		server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: template, Name: "x"}, func(context.Context, map[string]string) (string, error) {
			return "of " + template, nil
		})
	}
	w := dial(t, s)
	for _, uri := range []string{"x://a", "x://a.txt", "x://c"} {
		got := result[protocol.ReadResourceResult](w, "resources/read", `"uri":"`+uri+`"`).Contents[0].Text
		if got == nil || *got != "of x://{+b}" {
			t.Errorf("%s: got %+v, want the first template that the client may see", uri, got)
		}
	}
}

// ListTTL is the lifetime of lists. Their scope is public, or private if Visible is
// set.
func TestListTTLIsTheLifetimeOfLists(t *testing.T) {
	for scope, visible := range map[string]func(context.Context, server.Feature) bool{
		`"public"`: nil, `"private"`: func(context.Context, server.Feature) bool { return true },
	} {
		s := newServer(server.Options{ListTTL: 1500_000_000, Visible: visible})
		addNamed(s, "a")
		w := dial(t, s)
		if got := w.ask(modern(`1`, "tools/list", ``)).Result; string(got["ttlMs"]) != "1500" || string(got["cacheScope"]) != scope {
			t.Errorf("got %s", got)
		}
	}
}

// AddResource and AddTemplate panic if the program's arguments are wrong.
func TestAddResourceRefusesTheProgramsOwnMistakes(t *testing.T) {
	ok := func(context.Context) (string, error) { return "", nil }
	for name, add := range map[string]func(*server.Server){
		"no name":     func(s *server.Server) { server.AddResource(s, protocol.Resource{URI: "x://a"}, ok) },
		"no URI":      func(s *server.Server) { server.AddResource(s, protocol.Resource{Name: "a"}, ok) },
		"no function": func(s *server.Server) { server.AddResource[string](s, protocol.Resource{URI: "x://a", Name: "a"}, nil) },
		"blocks": func(s *server.Server) {
			server.AddResource(s, protocol.Resource{URI: "x://a", Name: "a"}, func(context.Context) (protocol.Contents, error) { return nil, nil })
		},
		"bad template": func(s *server.Server) {
			server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "x://{", Name: "a"}, func(context.Context, map[string]string) (string, error) { return "", nil })
		},
		"empty expression": func(s *server.Server) {
			server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "x://{}", Name: "a"}, func(context.Context, map[string]string) (string, error) { return "", nil })
		},
		"long prefix": func(s *server.Server) {
			server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "x://{a:1001}", Name: "a"}, func(context.Context, map[string]string) (string, error) { return "", nil })
		},
		"variable without a field": func(s *server.Server) {
			server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "x://{name}/{b}", Name: "a"}, func(context.Context, user) (string, error) { return "", nil })
		},
		"field without a variable": func(s *server.Server) {
			server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "x://a", Name: "a"}, func(context.Context, user) (string, error) { return "", nil })
		},
		"completion of no variable": func(s *server.Server) {
			server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "x://{name}", Name: "a"}, func(context.Context, user) (string, error) { return "", nil },
				server.Completion{Argument: "other", Values: func(context.Context, string, map[string]string) ([]string, error) { return nil, nil }})
		},
	} {
		wantPanic(t, name, "", func() { add(newServer(server.Options{})) })
	}
}

// Contents that name no URI or MIME type have those of the resource. What the program returned does not change.
//
// Guarantees: G-0106.2
func TestContentsHaveURIAndType(t *testing.T) {
	s := newServer(server.Options{})
	text := "x"
	kept := &protocol.ReadResourceResult{Contents: []protocol.ResourceContents{
		{Text: &text}, {URI: "db://a", Text: &text}, {MIMEType: "text/css", Text: &text}, {URI: "db://b", Text: &text},
	}}
	read := func(context.Context) (*protocol.ReadResourceResult, error) { return kept, nil }
	server.AddResource(s, protocol.Resource{URI: "db://a", Name: "a", MIMEType: "text/html"}, read)
	server.AddResource(s, protocol.Resource{URI: "db://plain", Name: "plain"}, read)
	server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "row://{id}", Name: "row", MIMEType: "text/csv"},
		func(context.Context, map[string]string) (*protocol.ReadResourceResult, error) { return kept, nil })
	session := mcptest.Connect(t, s, mcptest.Options{})
	for uri, want := range map[string][]string{
		"db://a":     {"db://a text/html", "db://a text/html", "db://a text/css", "db://b "},
		"db://plain": {"db://plain ", "db://a ", "db://plain text/css", "db://b "},
		"row://7":    {"row://7 text/csv", "db://a ", "row://7 text/css", "db://b "},
	} {
		result, err := session.ReadResource(t.Context(), &protocol.ReadResourceParams{URI: uri})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range result.Contents {
			got = append(got, c.URI+" "+c.MIMEType)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", uri, got, want)
		}
	}
	if kept.Contents[0].URI != "" || kept.Contents[2].URI != "" {
		t.Errorf("the result of the program has changed: %+v", kept.Contents)
	}
}
