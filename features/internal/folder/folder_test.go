package folder

import (
	"io/fs"
	"testing"
	"testing/fstest"
	"time"
)

// A folder remembers at most 100,000 names of its directories.
func TestRememberedNamesAreBounded(t *testing.T) {
	entries := func(n int) []fs.DirEntry {
		all := make([]fs.DirEntry, n)
		for i := range all {
			all[i] = fs.FileInfoToDirEntry(renamed(i))
		}
		return all
	}
	for _, test := range []struct{ before, adds, names int }{
		{0, 3, 4}, {mostNames - 4, 3, mostNames}, {mostNames - 4, 4, mostNames - 3}, {mostNames - 1, 0, mostNames}, {mostNames, 3, 4},
	} {
		var d directories
		d.begin("before", time.Now())
		d.names = test.before
		d.keep(d.begin("here", time.Now()), entries(test.adds))
		if d.names != test.names || len(d.known["here"].kinds) != test.adds && test.names != mostNames-3 {
			t.Errorf("%d names and %d more: got %d, want %d", test.before, test.adds, d.names, test.names)
		}
		if d.begin("here", time.Now()); test.before == 0 && d.names != 1 { // its own
			t.Errorf("a changed directory leaves %d names, want 1", d.names)
		}
	}
}

type renamed int

func (r renamed) Name() string     { return string(rune('a' + int(r))) }
func (renamed) Size() int64        { return 0 }
func (renamed) Mode() fs.FileMode  { return 0 }
func (renamed) ModTime() time.Time { return time.Time{} }
func (renamed) IsDir() bool        { return false }
func (renamed) Sys() any           { return nil }

// A name may be another spelling of a file that exists if the system finds it in the other case of its letters, or by a rule of Windows.
func TestNamesThatMayBeOthers(t *testing.T) {
	files := fstest.MapFS{}
	for _, name := range []string{"a", "A", "z", "Z", "m", "M", "aB", "Ab"} {
		files["sub/"+name] = &fstest.MapFile{}
	}
	for name, want := range map[string]bool{
		"a": true, "A": true, "z": true, "Z": true, "m": true, "aB": true, "ab": false, "AB": false, "b": false, "B": false,
		"1": false, "@": false, "[": false, "`": false, "{": false, "_": false, "a.": true, "b.": true, "b ": true, "b.b": false, "b~1": true, "b:c": true, "ä": true, "\u212a": true,
	} {
		if got := mayBeOther(files, "sub", name); got != want {
			t.Errorf("%q: got %t, want %t", name, got, want)
		}
	}
}

// A file is within a root if its path begins with all of that of the root, however both are escaped. A root that can be understood in two ways has nothing.
//
// Guarantees: G-0106.7
func TestWithin(t *testing.T) {
	for _, test := range []struct {
		uri, root string
		want      bool
	}{
		{"file:///home/ada/a", "file:///home/ada", true},
		{"file:///home/ada/a", "file:///home/ada/", true},
		{"file:///home/ada/a", "file:///home/ada/a", true},
		{"file:///home/ada/a", "file://localhost/home/ada", true},
		{"file:///home/ada/a%20b", "file:///home/ada/a b", true},
		{"file:///home/%61da/a", "file:///home/ada", true},
		{"file:///home/ada/a", "file:///home/bob/../ada", true},
		{"file:///home/ada/a", "file:///", true},
		{"file:///C:/work/a", "file:///c%3A/work", true},
		{"file:///C:/a", "file:///c:", true},
		{"file://Nas/work/a", "file://nas/work", true},

		{"file:///home/ada2/a", "file:///home/ada", false},
		{"file:///home/ada", "file:///home/ada/a", false},
		{"file:///home/ada/../bob", "file:///home/ada", false},
		{"file:///home/ada/%2e%2e/bob", "file:///home/ada", false},
		{"file:///home/Ada/a", "file:///home/ada", false},
		{"file://nas/work/a", "file:///work", false},
		{"file:///D:/work/a", "file:///c:/work", false},
		{"file:///c#/a", "file:///c#", false},
		{"file:///c/a", "file:///c#", false},
		{"file:///c/a", "file:///c?", false},
		{"file:///c/a", "file:///c?d", false},
		{"file:///a", "file:", false},
		{"file:///a", "file://", false},
		{"file:///a", "file:a", false},
		{"file:///a", "/", false},
		{"file:///a", "", false},
		{"file:///a", "https:///", false},
		{"https:///a", "https:///", false},
		{"file:///a", "file:///%zz", false},
	} {
		if got := Within(test.uri, test.root); got != test.want {
			t.Errorf("%s within %q: got %t, want %t", test.uri, test.root, got, test.want)
		}
	}
}
