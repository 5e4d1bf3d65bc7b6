package server

import (
	"context"
	"embed"
	"errors"
	"io/fs"
	"mime"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// FilesOptions configure AddFiles. The zero value of each field means its default.
type FilesOptions struct {
	MaxBytes int64                    // the maximum size of a file; larger ones are not served; default 8 MiB
	Hidden   bool                     // also serve names that begin with a dot
	MIMEType func(name string) string // nil: by the extension
}

// A folder contains the arguments of AddFiles.
type folder struct {
	base    string // ends with a slash
	files   fs.FS
	options FilesOptions
	skills  *skillFolder // nil: every file is served as it is
	known   directories
}

// mostFiles limits how many files of one folder are listed.
const mostFiles = protocol.MaxPageItems

// AddFiles offers every file of an fs.FS as a resource. The fs.FS may be an embed.FS
// or the FS of an os.Root. The URI of a resource is base followed by the path of the
// file. The server looks a file up whenever a client reads it. It lists at most 10,000, and
// keeps the list for a second.
//
// AddFiles panics if base is not an absolute URI. It also panics for os.DirFS, which
// follows symbolic links out of its directory: use os.OpenRoot instead.
func (s *Server) AddFiles(base string, files fs.FS, o FilesOptions) {
	defer prefix("files", base)
	if parsed, err := url.Parse(base); err != nil || !parsed.IsAbs() {
		panic("the base is not an absolute URI")
	}
	if files == nil || reflect.TypeOf(files).String() == "os.dirFS" {
		panic("os.DirFS follows links out of its directory: use the FS of os.OpenRoot")
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 8 << 20
	}
	if o.MIMEType == nil {
		o.MIMEType = func(name string) string { return mime.TypeByExtension(path.Ext(name)) }
	}
	s.resources.addFolder(&folder{base: strings.TrimSuffix(base, "/") + "/", files: files, options: o})
}

func (rs *resources) addFolder(added *folder) {
	rs.adding.Lock()
	var folders []*folder
	if old := rs.folders.Load(); old != nil {
		folders = slices.Clone(*old)
	}
	folders = append(folders, added)
	rs.folders.Store(&folders)
	rs.adding.Unlock()
	rs.use()
	rs.server.subscriptions.changed(resourcesChanged)
}

// listLife is how long a list with files is kept, because clients may list pages and lists quickly
// one after the other.
const listLife = time.Second

// A fileList is the latest list of all resources and files. The zero value is ready to use.
type fileList struct {
	mu      sync.Mutex // held while the files are listed, so that one caller at a time lists them
	all     *catalog[*resource]
	made    time.Time
	folders *[]*folder // that are in it
	changes int        // how often the resources had changed
}

// withFiles returns a catalog of both resources and files, which nobody changes.
func (rs *resources) withFiles(folders *[]*folder) (*catalog[*resource], error) {
	l := &rs.listed
	l.mu.Lock()
	defer l.mu.Unlock()
	changes := rs.changeCount()
	if l.all != nil && l.folders == folders && l.changes == changes && time.Since(l.made) < listLife {
		return l.all, nil
	}
	merged := &catalog[*resource]{byName: make(map[string]*resource)}
	for _, f := range *folders {
		if err := f.walk(func(r *resource) { merged.byName[r.definition.URI] = r }); err != nil {
			return nil, err
		}
	}
	for _, r := range rs.all() {
		merged.byName[r.definition.URI] = r
	}
	for uri := range merged.byName {
		merged.names = append(merged.names, uri)
	}
	slices.Sort(merged.names)
	l.all, l.made, l.folders, l.changes = merged, time.Now(), folders, changes
	return merged, nil
}

func (f *folder) walk(each func(*resource)) error {
	found := 0
	return fs.WalkDir(f.files, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name != "." && !f.options.Hidden && strings.HasPrefix(path.Base(name), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !entry.Type().IsRegular():
			return nil
		case found == mostFiles:
			return fs.SkipAll
		}
		info, err := entry.Info()
		if err != nil || info.Size() > f.options.MaxBytes || f.skills != nil && !f.skills.has(name) {
			return nil // the file was removed meanwhile, or is not served
		}
		found++
		each(f.resource(name, info.Size()))
		return nil
	})
}

func (f *folder) uriOf(name string) string {
	escaped := strings.Split(name, "/")
	for i := range escaped {
		escaped[i] = url.PathEscape(escaped[i])
	}
	return f.base + strings.Join(escaped, "/")
}

func (f *folder) resource(name string, size int64) *resource {
	r := &resource{definition: &protocol.Resource{
		URI: f.uriOf(name), Name: name, MIMEType: f.options.MIMEType(name), Size: &size,
	}}
	if f.skills != nil {
		f.skills.describe(name, r.definition)
	}
	r.run = func(_ context.Context, params *protocol.ReadResourceParams) (*protocol.ReadResourceResult, error) {
		raw, err := fs.ReadFile(f.files, name)
		if err != nil {
			return nil, ErrNotFound // the client need not know the reason
		}
		if int64(len(raw)) > f.options.MaxBytes {
			return nil, refuse(jsonrpc.CodeInternalError, "the file is larger than %d bytes", f.options.MaxBytes)
		}
		contents := bytesOf(params.URI, r.definition.MIMEType, raw)
		contents.MIMEType = r.definition.MIMEType
		return &protocol.ReadResourceResult{Contents: protocol.ContentsOfResource{contents}}, nil
	}
	return r
}

// find finds the file of a URI. Each file has exactly one URI. So find returns nothing
// for paths with "..", hidden slashes or unusual escapes, for symbolic links, and for
// names that the system treats like another name, for instance in another case. A client
// can only read what is listed.
func (f *folder) find(uri string) (*resource, error) {
	rest, ok := strings.CutPrefix(uri, f.base)
	if !ok {
		return nil, ErrNotFound
	}
	name, err := url.PathUnescape(rest)
	if err != nil || !fs.ValidPath(name) || name == "." || strings.ContainsAny(name, "\\\x00") {
		return nil, ErrNotFound
	}
	for element := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(element, ".") && !f.options.Hidden {
			return nil, ErrNotFound
		}
	}
	info, err := fs.Stat(f.files, name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > f.options.MaxBytes ||
		f.skills != nil && !f.skills.has(name) || !f.listed(name) {
		return nil, ErrNotFound
	}
	r := f.resource(name, info.Size())
	if r.definition.URI != uri {
		return nil, ErrNotFound
	}
	return r, nil
}

// listed reports whether the directories of a path and the file itself are listed under
// exactly these names, and are no links.
func (f *folder) listed(name string) bool {
	if _, embedded := f.files.(embed.FS); embedded {
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
func (f *folder) kindOf(folder, name string) fs.FileMode {
	links, ok := f.files.(fs.ReadLinkFS)
	if !ok || mayBeOther(links, folder, name) {
		return f.known.kindOf(f.files, folder, name)
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
