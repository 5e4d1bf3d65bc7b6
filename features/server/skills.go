package server

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/features/internal/frontmatter"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// These are the limits of a skill. Every host must support that much, and no host need
// support more (SEP-2640).
const (
	mostSkillFiles = 512
	mostSkillBytes = 16 << 20
	mostSkills     = 1_000
)

const (
	skillFile     = "SKILL.md"
	directoryType = "inode/directory"
)

// These limit the path of a directory that clients may read.
const (
	longestPath = 4 << 10 // the maximum length, in bytes
	deepestPath = 64      // the maximum number of elements
)

// skills serves the skills of a server.
type skills struct{ server *Server }

// A skillFolder is what one call of AddSkills added. A skill is a directory with a
// SKILL.md.
type skillFolder struct {
	folder *folder

	mu   sync.Mutex
	seen map[string]seenFile // known files by name
}

// A seenFile is a file with a known digest. The digest is valid until the size or the
// modification time of the file changes.
type seenFile struct {
	size     int64
	modified time.Time
	digest   string
	front    json.RawMessage // the frontmatter, if the file is a SKILL.md
	problem  error           // why it has no valid frontmatter
}

// A skill is a skill that is listed.
type skill struct {
	definition *protocol.Skill
	resource   *resource // its SKILL.md
}

func (s *skill) feature() Feature { return s.resource.feature() }

// AddSkills offers every skill of an fs.FS, which may be an embed.FS or the FS of an
// os.Root. A skill is a directory with a SKILL.md and all files below it (SEP-2640).
// The URI of a file is skill:// followed by its path. Clients of 2026-07-28 list
// skills with the digests of their files, and read directories. Other clients see the
// files as resources. Names that begin with a dot are left out.
//
// The frontmatter of each SKILL.md needs a description, and a name that is the name
// of the directory. A skill has at most 512 files and 16 MiB. If a skill breaks one
// of these rules, AddSkills returns an error and adds no skill. The server looks the
// files up when a client asks for them, so they may change. A skill that breaks a
// rule later is no longer listed.
//
// AddSkills panics for os.DirFS, which follows symbolic links out of its directory:
// use os.OpenRoot instead.
func (s *Server) AddSkills(files fs.FS) error {
	if files == nil || reflect.TypeOf(files).String() == "os.dirFS" {
		panic("server: AddSkills: os.DirFS follows links out of its directory: use the FS of os.OpenRoot")
	}
	added := &folder{base: "skill://", files: files, options: FilesOptions{MaxBytes: mostSkillBytes, MIMEType: skillType}}
	added.skills = &skillFolder{folder: added, seen: make(map[string]seenFile)}
	names, err := added.skills.names()
	if err != nil {
		return fmt.Errorf("server: skills: %w", err)
	}
	var failed []error
	for _, name := range names {
		if _, err := added.skills.skill(name); err != nil {
			failed = append(failed, fmt.Errorf("server: skill %q: %w", name, err))
		}
	}
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	s.resources.addFolder(added)
	return nil
}

// skillType returns the MIME type of a file. It knows Markdown, which the system's
// tables may not.
func skillType(name string) string {
	if path.Ext(name) == ".md" {
		return "text/markdown"
	}
	return mime.TypeByExtension(path.Ext(name))
}

// names returns the directories that are skills.
func (sk *skillFolder) names() (names []string, err error) {
	err = fs.WalkDir(sk.folder.files, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name != "." && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
		case entry.Name() == skillFile && entry.Type().IsRegular() && path.Dir(name) != ".":
			if names = append(names, path.Dir(name)); len(names) > mostSkills {
				return fmt.Errorf("there are more than %d", mostSkills)
			}
		}
		return nil
	})
	return names, err
}

// has reports whether a file belongs to a skill.
func (sk *skillFolder) has(name string) bool {
	for within := path.Dir(name); within != "."; within = path.Dir(within) {
		if info, err := fs.Stat(sk.folder.files, within+"/"+skillFile); err == nil && info.Mode().IsRegular() {
			return true
		}
	}
	return false
}

// describe sets the name and description of a SKILL.md's resource from its frontmatter.
func (sk *skillFolder) describe(name string, r *protocol.Resource) {
	r.Name = path.Base(name)
	if path.Base(name) != skillFile {
		return
	}
	seen, err := sk.look(name)
	var front struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	}
	if err == nil && protocol.Unmarshal(seen.front, &front) == nil && front.Name != "" {
		r.Name, r.Description = front.Name, front.Description
	}
}

// look returns the digest of a file and, for a SKILL.md, its frontmatter.
func (sk *skillFolder) look(name string) (seenFile, error) {
	info, err := fs.Stat(sk.folder.files, name)
	if err != nil {
		return seenFile{}, err
	}
	sk.mu.Lock()
	before, known := sk.seen[name]
	sk.mu.Unlock()
	if known && before.size == info.Size() && before.modified.Equal(info.ModTime()) {
		return before, nil
	}
	file, err := sk.folder.files.Open(name)
	if err != nil {
		return seenFile{}, err
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, mostSkillBytes+1))
	if err != nil {
		return seenFile{}, err
	}
	if len(raw) > mostSkillBytes {
		return seenFile{}, fmt.Errorf("%s is larger than %d bytes", name, mostSkillBytes)
	}
	now := seenFile{size: int64(len(raw)), modified: info.ModTime(), digest: fmt.Sprintf("sha256:%x", sha256.Sum256(raw))}
	if path.Base(name) == skillFile {
		now.front, now.problem = frontmatter.Parse(raw)
	}
	sk.mu.Lock()
	defer sk.mu.Unlock()
	if len(sk.seen) >= mostFiles {
		clear(sk.seen) // removes files that no longer exist
	}
	sk.seen[name] = now
	return now, nil
}

// skill returns the skill in a directory.
func (sk *skillFolder) skill(directory string) (*skill, error) {
	seen, err := sk.look(directory + "/" + skillFile)
	if err := errors.Join(err, seen.problem); err != nil {
		return nil, err
	}
	if err := checkFrontmatter(directory, seen.front); err != nil {
		return nil, err
	}
	own := sk.folder.resource(directory+"/"+skillFile, seen.size)
	described := &protocol.Skill{URI: own.definition.URI, Frontmatter: seen.front}
	var bytes int64
	err = fs.WalkDir(sk.folder.files, directory, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !entry.Type().IsRegular():
			return nil
		}
		seen, err := sk.look(name)
		if err != nil {
			return err
		}
		bytes += seen.size
		if len(described.Resources.Files) == mostSkillFiles || bytes > mostSkillBytes {
			return fmt.Errorf("it has more than %d files, or %d bytes", mostSkillFiles, mostSkillBytes)
		}
		described.Resources.Files = append(described.Resources.Files, protocol.SkillFile{
			URI: sk.folder.resource(name, seen.size).definition.URI, Digest: seen.digest, Size: seen.size,
		})
		return nil
	})
	return &skill{described, own}, err
}

// checkFrontmatter checks the rules of agentskills.io/specification.
func checkFrontmatter(directory string, raw json.RawMessage) error {
	var front struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	}
	if err := protocol.Unmarshal(raw, &front); err != nil {
		return fmt.Errorf("frontmatter: %s", explain(err))
	}
	name := front.Name
	switch {
	case front.Description == "":
		return errors.New("frontmatter: there is no description")
	case name == "" || len(name) > 64 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "",
		strings.HasPrefix(name, "-"), strings.HasSuffix(name, "-"), strings.Contains(name, "--"):
		return fmt.Errorf("frontmatter: the name %.100q is not of 1 to 64 lower-case letters, digits and single hyphens", name)
	case name != path.Base(directory):
		return fmt.Errorf("frontmatter: the name %q is not that of the directory", name)
	default:
		return nil
	}
}

// folders returns what AddSkills was given.
func (ss *skills) folders() (all []*skillFolder) {
	if folders := ss.server.resources.folders.Load(); folders != nil {
		for _, f := range *folders {
			if f.skills != nil {
				all = append(all, f.skills)
			}
		}
	}
	return all
}

// offered reports whether the methods of skills are offered.
func (ss *skills) offered(c *call) bool { return c.modern && len(ss.folders()) > 0 }

// list serves skills/list.
func (ss *skills) list(ctx context.Context, c *call, params *protocol.ListSkillsParams) (*protocol.ListSkillsResult, error) {
	all := new(catalog[*skill])
	for _, sk := range ss.folders() {
		names, err := sk.names()
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if one, err := sk.skill(name); err == nil {
				all.set(one.definition.URI, one)
			}
		}
	}
	page, err := listPage(ctx, c, all, params.Cursor, func(one *skill) *protocol.Skill { return one.definition })
	if err != nil {
		return nil, err
	}
	return &protocol.ListSkillsResult{CacheableResult: page.CacheableResult, Skills: page.entries, NextCursor: page.next}, nil
}

// get serves skills/get.
func (ss *skills) get(ctx context.Context, c *call, params *protocol.GetSkillParams) (*protocol.GetSkillResult, error) {
	if err := required(protocol.MethodGetSkill, "uri", params.URI); err != nil {
		return nil, err
	}
	for _, sk := range ss.folders() {
		r, err := sk.folder.find(params.URI)
		if err != nil || !ss.server.visible(ctx, r.feature()) {
			continue
		}
		name, _ := sk.nameOf(params.URI)
		if path.Base(name) != skillFile {
			continue
		}
		one, err := sk.skill(path.Dir(name))
		if err != nil {
			continue
		}
		return &protocol.GetSkillResult{CacheableResult: ss.server.cacheable(c), Skill: *one.definition}, nil
	}
	return nil, refuse(jsonrpc.CodeInvalidParams, "there is no skill %q", shorten(params.URI, longestName))
}

// readDirectory lists the entries of a directory in a skill.
func (ss *skills) readDirectory(ctx context.Context, c *call, params *protocol.ReadDirectoryParams) (*protocol.ReadDirectoryResult, error) {
	if err := required(protocol.MethodReadDirectory, "uri", params.URI); err != nil {
		return nil, err
	}
	all := new(catalog[*resource])
	found := false
	for _, sk := range ss.folders() {
		entries, ok := sk.directory(params.URI)
		found = found || ok
		for _, r := range entries {
			all.set(r.definition.URI, r)
		}
	}
	if !found {
		return nil, refuse(jsonrpc.CodeInvalidParams, "there is no directory %q", shorten(params.URI, longestName))
	}
	page, err := listPage(ctx, c, all, params.Cursor, (*resource).describe)
	if err != nil {
		return nil, err
	}
	return &protocol.ReadDirectoryResult{CacheableResult: page.CacheableResult, Resources: page.entries, NextCursor: page.next}, nil
}

// nameOf returns the path of a URI, if the URI is in the canonical form and the path is
// not too long.
func (sk *skillFolder) nameOf(uri string) (name string, ok bool) {
	rest := strings.TrimPrefix(uri, sk.folder.base)
	if len(rest) > longestPath || strings.Count(rest, "/") >= deepestPath {
		return "", false
	}
	name, _ = url.PathUnescape(rest) // empty if it is malformed
	return name, fs.ValidPath(name) && !strings.ContainsAny(name, "\\\x00") && sk.folder.uriOf(name) == uri
}

// directory returns the entries of a URI's directory, if it belongs to a skill.
func (sk *skillFolder) directory(uri string) (entries []*resource, found bool) {
	name, ok := sk.nameOf(uri)
	if !ok || slices.ContainsFunc(strings.Split(name, "/"), func(element string) bool { return strings.HasPrefix(element, ".") }) {
		return nil, false
	}
	// The directory must exist. This is checked before the directories above it are
	// searched for a SKILL.md.
	if info, err := fs.Stat(sk.folder.files, name); err != nil || !info.IsDir() {
		return nil, false
	}
	if !sk.has(name + "/" + skillFile) { // neither it nor a directory above it is a skill
		return nil, false
	}
	all, err := fs.ReadDir(sk.folder.files, name)
	if err != nil {
		return nil, false
	}
	for _, entry := range all[:min(len(all), mostFiles)] {
		info, err := entry.Info()
		switch {
		case err != nil || strings.HasPrefix(entry.Name(), "."):
		case entry.IsDir():
			r := sk.folder.resource(name+"/"+entry.Name(), 0)
			r.definition.MIMEType, r.definition.Size = directoryType, nil
			entries = append(entries, r)
		case entry.Type().IsRegular():
			entries = append(entries, sk.folder.resource(name+"/"+entry.Name(), info.Size()))
		}
	}
	return entries, true
}
