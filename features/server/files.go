package server

import (
	"context"
	"io/fs"
	"mime"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/features/internal/folder"
	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server/internal/catalog"
	"github.com/bowline-mcp/bowline/features/server/internal/changes"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// FilesOptions configure AddFiles. The zero value of each field means its default.
type FilesOptions struct {
	MaxBytes int64                    // the maximum size of a file; larger ones are not served; default 8 MiB
	Hidden   bool                     // also serve names that begin with a dot
	MIMEType func(name string) string // nil: by the extension

	// InRoots lets a client read only the files within its roots, which the server asks for: once if the client reports
	// changes, and else for each file. The base is then the URI of the directory itself, such as file:///home/ada/notes.
	// A client that has not declared roots reads nothing. All files are listed nevertheless.
	InRoots bool

	// Only says which files are served, and is asked whenever a client lists or reads them. Nil: all.
	Only func(name string) bool

	// Describe may change what is said of a file in a list, except its URI. Nil: the name is the path.
	Describe func(name string, file *protocol.Resource)
}

// AddFiles offers every file of an fs.FS as a resource. The fs.FS may be an embed.FS
// or the FS of an os.Root. The URI of a resource is base followed by the path of the
// file. The server looks a file up whenever a client reads it. It lists at most 10,000, and
// keeps the list for a second.
//
// AddFiles panics if base is not an absolute URI, or with InRoots that of a file. It also panics for os.DirFS, which
// follows symbolic links out of its directory: use os.OpenRoot instead.
func (s *Server) AddFiles(base string, files fs.FS, o FilesOptions) {
	defer prefix("files", base)
	if parsed, err := url.Parse(base); err != nil || !parsed.IsAbs() {
		panic("the base is not an absolute URI")
	}
	if o.InRoots && !folder.Within(base, base) {
		panic("roots are of files: with InRoots the base begins with file:///, and has neither query nor fragment")
	}
	if folder.Follows(files) {
		panic("os.DirFS follows links out of its directory: use the FS of os.OpenRoot")
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 8 << 20
	}
	if o.MIMEType == nil {
		o.MIMEType = func(name string) string { return mime.TypeByExtension(path.Ext(name)) }
	}
	s.resources.addFolder(&folder.Folder{
		Base: strings.TrimSuffix(base, "/") + "/", Files: files, MaxBytes: o.MaxBytes, Hidden: o.Hidden,
		MIMEType: o.MIMEType, Only: o.Only, Describe: o.Describe, InRoots: o.InRoots,
	})
}

func (rs *resources) addFolder(added *folder.Folder) {
	rs.adding.Lock()
	var folders []*folder.Folder
	if old := rs.folders.Load(); old != nil {
		folders = slices.Clone(*old)
	}
	folders = append(folders, added)
	rs.folders.Store(&folders)
	rs.adding.Unlock()
	// So that resources are offered, although the catalog may have none. Then clients are told, when the files can be
	// found.
	rs.Use()
	rs.server.subscriptions.Tell(changes.Resources())
}

// listLife is how long a list with files is kept, because clients may list pages and lists quickly
// one after the other.
const listLife = time.Second

// A fileList is the latest list of all resources and files. The zero value is ready to use.
type fileList struct {
	mu      sync.Mutex // held while the files are listed, so that one caller at a time lists them
	all     *catalog.Catalog[*resource]
	made    time.Time
	folders *[]*folder.Folder // that are in it
	changes int               // how often the resources had changed
}

// withFiles returns a catalog of both resources and files, which nobody changes.
func (rs *resources) withFiles(folders *[]*folder.Folder) (*catalog.Catalog[*resource], error) {
	l := &rs.listed
	l.mu.Lock()
	defer l.mu.Unlock()
	// Before the resources are read: a change in between makes the next list anew.
	changes := rs.Changes()
	if l.all != nil && l.folders == folders && l.changes == changes && time.Since(l.made) < listLife {
		return l.all, nil
	}
	merged := make(map[string]*resource)
	for _, f := range slices.Backward(*folders) { // the first folder with a file has the last word, as find takes that
		if err := f.Walk(func(name string, file *protocol.Resource) { merged[file.URI] = fileResource(f, name, file) }); err != nil {
			return nil, err
		}
	}
	// After the files, so that a resource of the program has precedence, as it has in find.
	for _, r := range rs.All() {
		merged[r.definition.URI] = r
	}
	l.all, l.made, l.folders, l.changes = catalog.Of(merged), time.Now(), folders, changes
	return l.all, nil
}

// fileResource returns the resource of a file. It is read anew by each client.
func fileResource(f *folder.Folder, name string, file *protocol.Resource) *resource {
	r := &resource{definition: file}
	if f.InRoots {
		r.asking = &askingOption{Reruns, protocol.ClientCapabilities{Roots: new(protocol.RootsCapability)}}
	}
	r.run = func(ctx context.Context, params *protocol.ReadResourceParams) (*protocol.ReadResourceResult, error) {
		if f.InRoots {
			if err := checkRoots(ctx, params.URI); err != nil {
				return nil, err
			}
		}
		raw, err := fs.ReadFile(f.Files, name)
		if err != nil {
			return nil, ErrNotFound // the client need not know the reason
		}
		// The file may have grown since it was found.
		if int64(len(raw)) > f.MaxBytes {
			return nil, refusal.New(jsonrpc.CodeInternalError, "the file is larger than %d bytes", f.MaxBytes)
		}
		return contents(file.MIMEType, bytesOf(params.URI, file.MIMEType, raw)), nil
	}
	return r
}

// checkRoots asks the client for its roots, and refuses a file that is in none of them.
func checkRoots(ctx context.Context, uri string) error {
	roots, err := Roots(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(roots, func(root protocol.Root) bool { return folder.Within(uri, root.URI) }) {
		return refusal.New(jsonrpc.CodeInvalidParams, "the file is in none of the client's roots: %s", refusal.Shorten(uri, refusal.LongestName))
	}
	return nil
}
