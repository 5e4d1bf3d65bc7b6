// Package folder gives the files of an fs.FS URIs, for the features that serve files: resources and
// skills.
//
// It owns the rule that one file has exactly one URI, and it alone decides whether a URI that a client
// sends names a file. So a client reaches nothing that is not listed: not by "..", not by a link, not by
// another spelling of a name. A Folder knows nothing of sessions and requests.
//
// There are no goroutines. Each method runs on that of its caller, usually of the request that needs the
// file, and waits for the file system. While a directory is listed, others that need the same listing wait.
package folder

import (
	"embed"
	"errors"
	"io/fs"
	"net/url"
	"path"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/bowline-mcp/bowline/protocol"
)

// MaxFiles limits how many files of one folder are listed.
const MaxFiles = protocol.MaxItems

// A Folder contains the files of an fs.FS. Its fields must not change once it is used.
type Folder struct {
	Base     string // ends with a slash
	Files    fs.FS
	MaxBytes int64 // larger files are not served
	Hidden   bool  // also serve names that begin with a dot
	MIMEType func(name string) string
	Only     func(name string) bool                     // nil: all files are served
	Describe func(name string, file *protocol.Resource) // nil: a file has its path as its name
	InRoots  bool                                       // for whoever serves the files: a client reads only what is within its roots

	known directories
}

// Follows reports whether links of a file system lead out of its directory. Nothing of such a file system
// may be served: nil counts as one.
func Follows(files fs.FS) bool { return files == nil || reflect.TypeOf(files).String() == "os.dirFS" }

// Walk calls each with the files that are served, at most MaxFiles.
func (f *Folder) Walk(each func(name string, file *protocol.Resource)) error {
	found := 0
	return fs.WalkDir(f.Files, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name != "." && !f.Hidden && strings.HasPrefix(path.Base(name), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !entry.Type().IsRegular():
			return nil
		case found == MaxFiles:
			return fs.SkipAll
		}
		info, err := entry.Info()
		if err != nil || !f.serves(name, info) {
			return nil // the file was removed meanwhile, or is not served
		}
		found++
		each(name, f.Resource(name, info.Size()))
		return nil
	})
}

// serves reports whether a file is served. Whether its name is hidden is checked before.
func (f *Folder) serves(name string, info fs.FileInfo) bool {
	return info.Mode().IsRegular() && info.Size() <= f.MaxBytes && (f.Only == nil || f.Only(name))
}

// URI returns the one URI of a file.
func (f *Folder) URI(name string) string {
	escaped := strings.Split(name, "/")
	for i := range escaped {
		escaped[i] = url.PathEscape(escaped[i])
	}
	return f.Base + strings.Join(escaped, "/")
}

// Name returns the path that a URI stands for, if the URI is the one that URI returns for it. The
// file need not exist.
func (f *Folder) Name(uri string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(uri, f.Base)
	if !ok {
		return "", false
	}
	name, err := url.PathUnescape(rest)
	// Some systems read a backslash as a separator, and end a name at a NUL.
	if err != nil || !fs.ValidPath(name) || strings.ContainsAny(name, "\\\x00") {
		return "", false
	}
	return name, f.URI(name) == uri
}

// Within reports whether a file URI names what a root names, or something below that. It compares texts, with escapes resolved: where links
// lead is not looked at, since none is served. Nothing is within a root that is no URI of a file, or that has a query or a fragment, which
// may be the rest of a name.
func Within(uri, root string) bool {
	host, name, ok := place(uri)
	rootHost, directory, isFile := place(root)
	if !ok || !isFile || host != rootHost {
		return false
	}
	return name == directory || strings.HasPrefix(name, strings.TrimSuffix(directory, "/")+"/")
}

// place returns the host and the path of a file URI.
func place(uri string) (host, name string, ok bool) {
	parsed, err := url.Parse(uri)
	if err != nil || parsed.Scheme != "file" || !strings.HasPrefix(parsed.Path, "/") || parsed.RawQuery != "" || parsed.ForceQuery || strings.Contains(uri, "#") {
		return "", "", false
	}
	if host = strings.ToLower(parsed.Host); host == "localhost" {
		host = ""
	}
	name = path.Clean(parsed.Path)
	// The drive of Windows, which some clients write in small letters.
	if len(name) >= len("/c:") && name[2] == ':' && (len(name) == len("/c:") || name[3] == '/') {
		name = strings.ToUpper(name[:2]) + name[2:]
	}
	return host, name, true
}

// Resource describes a file as a resource.
func (f *Folder) Resource(name string, size int64) *protocol.Resource {
	file := &protocol.Resource{URI: f.URI(name), Name: name, MIMEType: f.MIMEType(name), Size: &size}
	if f.Describe != nil {
		f.Describe(name, file)
	}
	return file
}

// Find finds the file of a URI. It finds nothing for paths with "..", hidden slashes or unusual escapes,
// for symbolic links, and for names that the system treats like another name, for instance in another
// case. A client can only read what is listed.
func (f *Folder) Find(uri string) (name string, file *protocol.Resource, ok bool) {
	name, ok = f.Name(uri)
	if !ok || name == "." || !f.Hidden && Hidden(name) {
		return "", nil, false
	}
	info, err := fs.Stat(f.Files, name)
	if err != nil || !f.serves(name, info) || !f.listed(name) {
		return "", nil, false
	}
	file = f.Resource(name, info.Size())
	return name, file, file.URI == uri // unless Describe has changed the URI
}

// Hidden reports whether an element of a path begins with a dot.
func Hidden(name string) bool { return strings.HasPrefix(name, ".") || strings.Contains(name, "/.") }

// listed reports whether the directories of a path and the file itself are listed under
// exactly these names, and are no links.
func (f *Folder) listed(name string) bool {
	if _, embedded := f.Files.(embed.FS); embedded {
		return true // there are no links, and each file has one name
	}
	folder := "."
	for element := range strings.SplitSeq(name, "/") {
		kind := f.kindOf(folder, element)
		folder = path.Join(folder, element)
		if !kind.IsDir() && !kind.IsRegular() {
			return false
		}
	}
	return true
}

// kindOf returns the type of the directory entry with a name, or ModeIrregular if there
// is none. It lists the directory, which may be large, only if there is no other way.
func (f *Folder) kindOf(folder, name string) fs.FileMode {
	links, ok := f.Files.(fs.ReadLinkFS)
	if !ok || mayBeOther(links, folder, name) {
		return f.known.kindOf(f.Files, folder, name)
	}
	info, err := links.Lstat(path.Join(folder, name))
	if err != nil {
		return fs.ModeIrregular
	}
	return info.Mode().Type()
}

// mayBeOther reports whether the system may have found a name although the directory
// lists another spelling: in another case, or by the additional rules of Windows.
func mayBeOther(files fs.ReadLinkFS, folder, name string) bool {
	if strings.ContainsAny(name, ":~") || strings.TrimRight(name, ". ") != name {
		return true
	}
	flipped := []byte(name)
	for i, c := range flipped {
		switch {
		case c >= utf8.RuneSelf: // one letter may have more spellings than its cases
			return true
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z':
			flipped[i] = c ^ 0x20
		}
	}
	if string(flipped) == name {
		return false
	}
	_, err := files.Lstat(path.Join(folder, string(flipped)))
	return !errors.Is(err, fs.ErrNotExist)
}
