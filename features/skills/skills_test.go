package skills_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/features/skills"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

func newServer(o server.Options) *server.Server {
	return server.New(protocol.Implementation{Name: "s", Version: "1"}, o)
}

// skillText returns the text of a SKILL.md.
func skillText(name string) string {
	return "---\nname: " + name + "\ndescription: what " + name + " is for\nlicense: MIT\n---\nbody of " + name + "\n"
}

// skillFiles returns the files of two skills, one of which contains a third, and files
// of no skill.
func skillFiles() fstest.MapFS {
	files := fstest.MapFS{}
	for name, text := range map[string]string{
		"refunds/SKILL.md":           skillText("refunds"),
		"refunds/scripts/run me.txt": "echo",
		"refunds/scripts/.hidden":    "secret",
		"refunds/inner/SKILL.md":     skillText("inner"),
		"acme/billing/SKILL.md":      skillText("billing"),
		"acme/README.md":             "of no skill",
		"stray.md":                   "of no skill",
		".git/SKILL.md":              skillText("git"),
	} {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return files
}

func withSkills(t *testing.T, o server.Options) (*server.Server, fstest.MapFS) {
	t.Helper()
	s, files := newServer(o), skillFiles()
	if err := skills.New(s).Add(files); err != nil {
		t.Fatal(err)
	}
	return s, files
}

// Skills are listed with their frontmatter, and with the size and digest of each file.
//
// Guarantees: G-0042.1
func TestSkillsAreListedWithTheirFiles(t *testing.T) {
	s, files := withSkills(t, server.Options{PageSize: 2})
	w := dial(t, s)
	first := result[protocol.ListSkillsResult](w, "skills/list", ``)
	second := result[protocol.ListSkillsResult](w, "skills/list", `"cursor":"`+*first.NextCursor+`"`)
	var uris []string
	for _, skill := range append(first.Skills, second.Skills...) {
		uris = append(uris, skill.URI)
		if got := result[protocol.GetSkillResult](w, "skills/get", `"uri":"`+skill.URI+`"`); fmt.Sprint(got.Skill) != fmt.Sprint(*skill) {
			t.Errorf("got %v, and in the list %v", got.Skill, *skill)
		}
	}
	if want := []string{"skill://acme/billing/SKILL.md", "skill://refunds/SKILL.md", "skill://refunds/inner/SKILL.md"}; !slices.Equal(uris, want) || second.NextCursor != nil {
		t.Errorf("got %q, want %v and second.NextCursor == nil", uris, want)
	}
	refunds := first.Skills[1]
	if string(refunds.Frontmatter) != `{"description":"what refunds is for","license":"MIT","name":"refunds"}` {
		t.Errorf("got %s, want %q", refunds.Frontmatter, `{"description":"what refunds is for","license":"MIT","name":"refunds"}`)
	}
	want := map[string]string{
		"skill://refunds/SKILL.md": "refunds/SKILL.md", "skill://refunds/inner/SKILL.md": "refunds/inner/SKILL.md",
		"skill://refunds/scripts/run%20me.txt": "refunds/scripts/run me.txt",
	}
	if len(refunds.Resources.Files) != len(want) {
		t.Errorf("got %v", refunds.Resources.Files)
	}
	for _, file := range refunds.Resources.Files {
		data := files[want[file.URI]].Data
		if file.Size != int64(len(data)) || file.Digest != fmt.Sprintf("sha256:%x", sha256.Sum256(data)) {
			t.Errorf("got %v", file)
		}
		read := result[protocol.ReadResourceResult](w, "resources/read", `"uri":"`+file.URI+`"`)
		if read.Contents[0].Text == nil || *read.Contents[0].Text != string(data) {
			t.Errorf("got %+v", read.Contents)
		}
	}
	listed := result[protocol.ListResourcesResult](dial(t, withAllSkills(t)), "resources/list", ``)
	for _, r := range listed.Resources {
		if strings.HasSuffix(r.URI, "refunds/SKILL.md") && (r.Name != "refunds" || r.Description != "what refunds is for" || r.MIMEType != "text/markdown") {
			t.Errorf("got %+v", r)
		}
	}
	if len(listed.Resources) != 4 {
		t.Errorf("got %d resources, want 4 elements", len(listed.Resources))
	}
}

func withAllSkills(t *testing.T) *server.Server {
	s, _ := withSkills(t, server.Options{})
	return s
}

// If a file of a skill changes, its digest and that of its skill change.
//
// Guarantees: G-0042.1
func TestAChangedSkillHasOtherDigests(t *testing.T) {
	s, files := withSkills(t, server.Options{})
	w := dial(t, s)
	get := func() protocol.Skill {
		return result[protocol.GetSkillResult](w, "skills/get", `"uri":"skill://acme/billing/SKILL.md"`).Skill
	}
	before := get()
	files["acme/billing/SKILL.md"] = &fstest.MapFile{Data: []byte(skillText("billing") + "more")}
	after := get()
	if before.Resources.Files[0].Digest == after.Resources.Files[0].Digest {
		t.Errorf("got %v", after)
	}
	files["acme/billing/SKILL.md"] = &fstest.MapFile{Data: []byte("no skill any more")}
	w.wantFault(jsonrpc.CodeInvalidParams, request("skills/get", `"uri":"skill://acme/billing/SKILL.md"`))
	if got := result[protocol.ListSkillsResult](w, "skills/list", ``); len(got.Skills) != 2 {
		t.Errorf("got %v, want 2 elements", got.Skills)
	}
}

// A directory of a skill can be listed, page by page.
//
// Guarantees: G-0042.1
func TestDirectoriesOfSkillsAreRead(t *testing.T) {
	s, _ := withSkills(t, server.Options{})
	w := dial(t, s)
	read := func(uri string) (got []string) {
		for _, r := range result[protocol.ReadDirectoryResult](w, "resources/directory/read", `"uri":"`+uri+`"`).Resources {
			got = append(got, r.URI+" "+r.MIMEType)
		}
		return got
	}
	if got := read("skill://refunds"); !slices.Equal(got, []string{
		"skill://refunds/SKILL.md text/markdown", "skill://refunds/inner inode/directory", "skill://refunds/scripts inode/directory",
	}) {
		t.Errorf("got %q", got)
	}
	if got := read("skill://refunds/scripts"); len(got) != 1 || !strings.HasPrefix(got[0], "skill://refunds/scripts/run%20me.txt") {
		t.Errorf("got %q, want len(got) == 1 and the prefix %q", got, "skill://refunds/scripts/run%20me.txt")
	}
}

// Files outside of the skills, hidden files and links that lead out of the directory
// are not served.
//
// Guarantees: G-0042.2
func TestNothingOutsideOfSkillsIsServed(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"secret.txt": "secret", "skills/a/SKILL.md": skillText("a"), "skills/stray.md": "stray"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"skills/a/out.txt": "../../secret.txt", "skills/b": ".."} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.OpenRoot(filepath.Join(root, "skills"))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	s := newServer(server.Options{})
	if err := skills.New(s).Add(dir.FS()); err != nil {
		t.Fatal(err)
	}
	w := dial(t, s)
	for _, uri := range []string{
		"skill://a/../../secret.txt", "skill://a/%2e%2e/stray.md", "skill://stray.md", "skill://a/out.txt", "skill://b/secret.txt",
		"skill://a//SKILL.md", "skill://a/SKILL.md/", "skill://%61/SKILL.md", "skill://../secret.txt", "skill:///a/SKILL.md", "skill://a/.git", "skill://", "",
	} {
		for method, code := range map[string]int64{"resources/read": jsonrpc.CodeInvalidParams, "skills/get": jsonrpc.CodeInvalidParams, "resources/directory/read": jsonrpc.CodeInvalidParams} {
			w.wantFault(code, request(method, `"uri":"`+uri+`"`))
		}
	}
	for _, uri := range []string{"skill://a/SKILL.md", "skill://missing"} {
		w.wantFault(jsonrpc.CodeInvalidParams, request("resources/directory/read", `"uri":"`+uri+`"`))
	}
	skills := result[protocol.ListSkillsResult](w, "skills/list", ``).Skills
	if len(skills) != 1 || len(skills[0].Resources.Files) != 1 {
		t.Errorf("got %v, want len(skills) == 1 and len(skills[0].Resources.Files) == 1", skills)
	}
}

// A skill that a client may not see is unknown to it, and so are its files.
//
// Guarantees: G-0042.2
func TestInvisibleSkillsAreUnknown(t *testing.T) {
	s, _ := withSkills(t, server.Options{Visible: func(_ context.Context, f server.Feature) bool { return !strings.Contains(f.Name, "refunds") }})
	w := dial(t, s)
	if got := result[protocol.ListSkillsResult](w, "skills/list", ``).Skills; len(got) != 1 || got[0].URI != "skill://acme/billing/SKILL.md" {
		t.Errorf("got %v, want the visible skill alone", got)
	}
	if got := result[protocol.ListResourcesResult](w, "resources/list", ``).Resources; len(got) != 1 || got[0].URI != "skill://acme/billing/SKILL.md" {
		t.Errorf("got %v, want the visible file alone", got)
	}
	for method, uri := range map[string]string{"skills/get": "skill://refunds/SKILL.md", "resources/read": "skill://refunds/scripts/run%20me.txt"} {
		w.wantFault(jsonrpc.CodeInvalidParams, request(method, `"uri":"`+uri+`"`))
	}
	if got := result[protocol.ReadDirectoryResult](w, "resources/directory/read", `"uri":"skill://refunds"`).Resources; len(got) != 0 {
		t.Errorf("got %v, want no entries", got)
	}
	for _, uri := range []string{"skill://acme/billing/SKILL.md", "skill://acme/billing/none", "skill://acme"} { // the first is visible
		if got := w.ask(request("skills/get", `"uri":"`+uri+`"`)); (got.Error == nil) != (uri == "skill://acme/billing/SKILL.md") {
			t.Errorf("%s: got %s, %v", uri, got.Result, got.Error)
		}
	}
}

// The limits of skills are exact: as much as every host must support, and not more. A name that some system reads as a path is
// refused, although the directory lists it.
//
// Guarantees: G-0042.2, G-0042.3
func TestLimitsOfSkills(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	many := func(skills, files, size int) fstest.MapFS {
		all := fstest.MapFS{}
		for i := range skills {
			all[fmt.Sprintf("a%d/SKILL.md", i)] = file(skillText(fmt.Sprintf("a%d", i)))
		}
		for i := range files - 1 {
			all[fmt.Sprintf("a0/%d", i)] = &fstest.MapFile{}
		}
		if size > 0 {
			all["a0/large"] = &fstest.MapFile{Data: make([]byte, size-len(skillText("a0")))}
		}
		return all
	}
	long, tooLong := strings.Repeat("a", 64), strings.Repeat("a", 65)
	for name, test := range map[string]struct {
		files fstest.MapFS
		fails string
	}{
		"1,000 skills":            {many(1000, 0, 0), ""},
		"1,001 skills":            {many(1001, 0, 0), "more than 1000"},
		"512 files":               {many(1, 512, 0), ""},
		"513 files":               {many(1, 513, 0), "more than 512 files"},
		"16 MiB":                  {many(1, 1, 16<<20), ""},
		"a byte more":             {many(1, 1, 16<<20+1), "16777216 bytes"},
		"a name of 64 characters": {fstest.MapFS{long + "/SKILL.md": file(skillText(long))}, ""},
		"a name of 65 characters": {fstest.MapFS{tooLong + "/SKILL.md": file(skillText(tooLong))}, "lower-case"},
		"an empty name":           {fstest.MapFS{"a/SKILL.md": file("---\nname: \"\"\ndescription: d\n---\n")}, "lower-case"},
		"a hyphen at the start":   {fstest.MapFS{"-a/SKILL.md": file(skillText("-a"))}, "lower-case"},
		"a hyphen at the end":     {fstest.MapFS{"a-/SKILL.md": file(skillText("a-"))}, "lower-case"},
		"single hyphens":          {fstest.MapFS{"a-0-z/SKILL.md": file(skillText("a-0-z"))}, ""},
		"capitals":                {fstest.MapFS{"aB/SKILL.md": file(skillText("aB"))}, "lower-case"},
		"no description":          {fstest.MapFS{"a/SKILL.md": file("---\nname: a\n---\n")}, "no description"},
		"frontmatter of a list":   {fstest.MapFS{"a/SKILL.md": file("---\n- a\n---\n")}, "frontmatter"},
		"a skill at the root":     {fstest.MapFS{"SKILL.md": file("none")}, ""},
		"a hidden skill":          {fstest.MapFS{".a/SKILL.md": file("none"), "b/.a/SKILL.md": file("none")}, ""},
		"a hidden SKILL.md":       {fstest.MapFS{"a/.SKILL.md": file("none")}, ""},
		"a directory SKILL.md":    {fstest.MapFS{"a/SKILL.md/b": file("none")}, ""},
	} {
		if err := skills.New(newServer(server.Options{})).Add(test.files); (err == nil) != (test.fails == "") || err != nil && !strings.Contains(err.Error(), test.fails) {
			t.Errorf("%s: got %v, want %q", name, err, test.fails)
		}
	}
	s := newServer(server.Options{})
	if err := skills.New(s).Add(fstest.MapFS{"a/SKILL.md": file(skillText("a")), `a/b\c/d`: file("d"), "a/b/d": file("d")}); err != nil {
		t.Fatal(err)
	}
	w := dial(t, s)
	for uri, found := range map[string]bool{"skill://a/b": true, "skill://a/b%5Cc": false, `skill://a/b\\c`: false, "skill://a/%62": false, "kill://a/b": false, "a/b": false} {
		if got := w.ask(request("resources/directory/read", `"uri":"`+uri+`"`)); (got.Error == nil) != found {
			t.Errorf("%s: got %s, %v", uri, got.Result, got.Error)
		}
	}
}

// To list files, or to read one, costs no look into files of a skill other than their SKILL.md.
func TestFilesOfSkillsAreNotOpenedForAList(t *testing.T) {
	all := fstest.MapFS{"a/SKILL.md": {Data: []byte(skillText("a"))}}
	for i := range 100 {
		all[fmt.Sprintf("a/%d", i)] = &fstest.MapFile{}
	}
	s, files := newServer(server.Options{}), &openedFS{MapFS: all}
	if err := skills.New(s).Add(files); err != nil {
		t.Fatal(err)
	}
	files.MapFS["a/100"] = &fstest.MapFile{} // is not known yet
	files.opened.Store(0)
	w := dial(t, s)
	if got := result[protocol.ListResourcesResult](w, "resources/list", ``).Resources; len(got) == 0 {
		t.Error("got no resources, want a page of them")
	}
	if opened := files.opened.Load(); opened != 0 {
		t.Errorf("%d files were opened, want none", opened)
	}
}

// A skill is not served while one of its files has changed and cannot be read: the digest of its earlier text would be wrong.
func TestAChangedFileThatCannotBeRead(t *testing.T) {
	all := fstest.MapFS{"a/SKILL.md": {Data: []byte(skillText("a"))}, "a/more": {Data: []byte("more")}}
	s, files := newServer(server.Options{}), &openedFS{MapFS: all}
	if err := skills.New(s).Add(files); err != nil {
		t.Fatal(err)
	}
	w := dial(t, s)
	get := `"uri":"skill://a/SKILL.md"`
	if got := result[protocol.GetSkillResult](w, "skills/get", get).Skill; len(got.Resources.Files) != 2 {
		t.Fatalf("got %v, want two files", got)
	}
	all["a/more"] = &fstest.MapFile{Data: []byte("another text")}
	files.unreadable = "a/more"
	w.wantFault(jsonrpc.CodeInvalidParams, request("skills/get", get))
	files.unreadable = ""
	if got := result[protocol.GetSkillResult](w, "skills/get", get).Skill; len(got.Resources.Files) != 2 {
		t.Errorf("got %v, want two files again", got)
	}
}

// An openedFS counts how often a file is opened that is no directory. One may be unreadable.
type openedFS struct {
	fstest.MapFS
	opened     atomic.Int64
	unreadable string
}

func (o *openedFS) Open(name string) (fs.File, error) {
	if o.MapFS[name] != nil {
		o.opened.Add(1)
	}
	if name == o.unreadable {
		return nil, fs.ErrPermission
	}
	return o.MapFS.Open(name)
}

// Add returns an error for a skill that breaks a rule of the format.
//
// Guarantees: G-0042.3
func TestBrokenSkillsAreNotAdded(t *testing.T) {
	many := fstest.MapFS{"a/SKILL.md": &fstest.MapFile{Data: []byte(skillText("a"))}}
	for i := range 512 {
		many[fmt.Sprintf("a/%d", i)] = &fstest.MapFile{}
	}
	for want, files := range map[string]fstest.MapFS{
		"begin":                  {"a/SKILL.md": {Data: []byte("# a")}},
		"no description":         {"a/SKILL.md": {Data: []byte("---\nname: a\n---\n")}},
		"not that of the direct": {"a/SKILL.md": {Data: []byte(skillText("b"))}},
		"lower-case":             {"a--b/SKILL.md": {Data: []byte(skillText("a--b"))}},
		"more than 512 files":    many,
		"or 16777216 bytes":      {"a/SKILL.md": {Data: []byte(skillText("a"))}, "a/b": {Data: make([]byte, 16<<20)}},
	} {
		s := newServer(server.Options{})
		if err := skills.New(s).Add(files); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `skill "a`) {
			t.Errorf("%s: got %v, want an error, %v in it and %q in it", want, err, want, `skill "a`)
		}
		w := dial(t, s)
		if got := w.ask(request("server/discover", ``)); strings.Contains(string(got.Result["capabilities"]), "skills") {
			t.Errorf("got %s, want no %q in it", got.Result, "skills")
		}
		w.wantFault(jsonrpc.CodeMethodNotFound, request("skills/list", ``))
	}
}

// A countingFS counts how often a file is opened.
// A skill of two calls of Add is that of the first one, in every list and for whoever reads it: its digests fit its files.
//
// Guarantees: G-0042.1
func TestASkillThatIsAddedTwiceIsTheFirst(t *testing.T) {
	s := newServer(server.Options{})
	both := skills.New(s)
	for _, more := range []string{"", "more\n"} {
		if err := both.Add(fstest.MapFS{"refunds/SKILL.md": {Data: []byte(skillText("refunds") + more)}}); err != nil {
			t.Fatal(err)
		}
	}
	const uri = "skill://refunds/SKILL.md"
	w := dial(t, s)
	read := *result[protocol.ReadResourceResult](w, "resources/read", `"uri":"`+uri+`"`).Contents[0].Text
	want := protocol.SkillFile{URI: uri, Digest: fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(skillText("refunds")))), Size: int64(len(skillText("refunds")))}
	if read != skillText("refunds") {
		t.Errorf("got %q, want the first one", read)
	}
	listed := result[protocol.ListSkillsResult](w, "skills/list", ``).Skills
	if len(listed) != 1 {
		t.Fatalf("got %d skills, want one", len(listed))
	}
	for _, one := range []protocol.Skill{*listed[0], result[protocol.GetSkillResult](w, "skills/get", `"uri":"`+uri+`"`).Skill} {
		if files := one.Resources.Files; len(files) != 1 || files[0] != want {
			t.Errorf("got the files %+v, want %+v", files, want)
		}
	}
	for _, all := range [][]*protocol.Resource{
		result[protocol.ReadDirectoryResult](w, "resources/directory/read", `"uri":"skill://refunds"`).Resources,
		result[protocol.ListResourcesResult](w, "resources/list", ``).Resources,
	} {
		if len(all) != 1 || all[0].Size == nil || *all[0].Size != want.Size {
			t.Errorf("got the resources %+v, want one of %d bytes", all, want.Size)
		}
	}
}

type countingFS struct {
	fs.FS
	opened atomic.Int64
}

func (c *countingFS) Open(name string) (fs.File, error) {
	c.opened.Add(1)
	return c.FS.Open(name)
}

// A request for a long path opens few directories.
func TestALongPathOfADirectoryCostsLittle(t *testing.T) {
	deepest := "a" + strings.Repeat("/a", 63)
	files := &countingFS{FS: fstest.MapFS{
		"a/SKILL.md":           {Data: []byte(skillText("a"))},
		deepest + "/file":      {},
		deepest + "/more/file": {},
	}}
	s := newServer(server.Options{})
	if err := skills.New(s).Add(files); err != nil {
		t.Fatal(err)
	}
	w := dial(t, s)
	read := func(path string) string {
		return request("resources/directory/read", `"uri":"skill://`+path+`"`)
	}
	files.opened.Store(0)
	for _, path := range []string{
		"missing" + strings.Repeat("/a", 60), "a/SKILL.md" + strings.Repeat("/a", 60), "a" + strings.Repeat("/a", 100_000),
		deepest + "/more", strings.Repeat("a", 5<<10),
	} {
		w.wantFault(jsonrpc.CodeInvalidParams, read(path))
	}
	if opened := files.opened.Load(); opened > 5 {
		t.Errorf("got %d opens for 5 missing directories, want at most 5", opened)
	}
	if got := w.ask(read(deepest)); got.Error != nil {
		t.Errorf("got %v, want no error", got.Error)
	}
}
