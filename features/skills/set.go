package skills

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/features/internal/folder"
	"github.com/bowline-mcp/bowline/features/internal/frontmatter"
	"github.com/bowline-mcp/bowline/protocol"
)

// A set is what one call of Add was given.
type set struct {
	folder *folder.Folder

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

// A skill is a skill that keeps the rules.
type skill struct {
	definition *protocol.Skill
	file       *protocol.Resource // its SKILL.md
}

// newSet returns the set of a file system. Its folder describes the same files as the one of the server does.
func newSet(files fs.FS) *set {
	s := &set{seen: make(map[string]seenFile)}
	s.folder = &folder.Folder{Base: base, Files: files, MaxBytes: mostBytes, MIMEType: typeOf, Only: s.has, Describe: s.describe}
	return s
}

// typeOf returns the MIME type of a file. It knows Markdown, which the system's
// tables may not.
func typeOf(name string) string {
	if path.Ext(name) == ".md" {
		return "text/markdown"
	}
	return mime.TypeByExtension(path.Ext(name))
}

// names returns the directories that are skills.
func (s *set) names() (names []string, err error) {
	err = fs.WalkDir(s.folder.Files, ".", func(name string, entry fs.DirEntry, err error) error {
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
func (s *set) has(name string) bool {
	for within := path.Dir(name); within != "."; within = path.Dir(within) {
		if info, err := fs.Stat(s.folder.Files, within+"/"+skillFile); err == nil && info.Mode().IsRegular() {
			return true
		}
	}
	return false
}

// describe sets the name and description of a SKILL.md's resource from its frontmatter.
func (s *set) describe(name string, r *protocol.Resource) {
	r.Name = path.Base(name)
	if path.Base(name) != skillFile {
		return
	}
	seen, err := s.look(name)
	var front struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	}
	if err == nil && protocol.Unmarshal(seen.front, &front) == nil && front.Name != "" {
		r.Name, r.Description = front.Name, front.Description
	}
}

// look returns the digest of a file and, for a SKILL.md, its frontmatter. It reads a file again
// only if its size or time has changed, and without the mutex, so that a slow file keeps nobody
// waiting. Two may read the same file, and find the same.
func (s *set) look(name string) (seenFile, error) {
	info, err := fs.Stat(s.folder.Files, name)
	if err != nil {
		return seenFile{}, err
	}
	s.mu.Lock()
	before, known := s.seen[name]
	s.mu.Unlock()
	if known && before.size == info.Size() && before.modified.Equal(info.ModTime()) {
		return before, nil
	}
	raw, err := s.read(name)
	if err != nil {
		return seenFile{}, err
	}
	now := seenFile{size: int64(len(raw)), modified: info.ModTime(), digest: fmt.Sprintf("sha256:%x", sha256.Sum256(raw))}
	if path.Base(name) == skillFile {
		now.front, now.problem = frontmatter.Parse(raw)
	}
	s.remember(name, now)
	return now, nil
}

// read reads a file that is small enough for a skill. It does not trust the size that the file
// system tells: the file may grow.
func (s *set) read(name string) ([]byte, error) {
	file, err := s.folder.Files.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, mostBytes+1))
	if err == nil && len(raw) > mostBytes {
		err = fmt.Errorf("%s is larger than %d bytes", name, mostBytes)
	}
	return raw, err
}

func (s *set) remember(name string, now seenFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.seen) >= folder.MaxFiles {
		clear(s.seen) // removes files that no longer exist
	}
	s.seen[name] = now
}

// skill returns the skill in a directory. The rules of its SKILL.md come first: a directory that
// breaks them is not walked.
func (s *set) skill(directory string) (*skill, error) {
	seen, err := s.look(directory + "/" + skillFile)
	if err := errors.Join(err, seen.problem); err != nil {
		return nil, err
	}
	if err := checkFrontmatter(directory, seen.front); err != nil {
		return nil, err
	}
	own := s.folder.Resource(directory+"/"+skillFile, seen.size)
	described := &protocol.Skill{URI: own.URI, Frontmatter: seen.front}
	described.Resources.Files, err = s.files(directory)
	return &skill{described, own}, err
}

// files returns the files of a skill with their digests. A skill with too many is refused as a
// whole: a client that got a part of it could not tell.
func (s *set) files(directory string) (files []protocol.SkillFile, err error) {
	var bytes int64
	err = fs.WalkDir(s.folder.Files, directory, func(name string, entry fs.DirEntry, err error) error {
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
		seen, err := s.look(name)
		if err != nil {
			return err
		}
		if bytes += seen.size; len(files) == mostFiles || bytes > mostBytes {
			return fmt.Errorf("it has more than %d files, or %d bytes", mostFiles, mostBytes)
		}
		files = append(files, protocol.SkillFile{URI: s.folder.URI(name), Digest: seen.digest, Size: seen.size})
		return nil
	})
	return files, err
}

// checkFrontmatter checks the rules of agentskills.io/specification.
func checkFrontmatter(directory string, raw json.RawMessage) error {
	var front struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	}
	if err := protocol.Unmarshal(raw, &front); err != nil {
		return fmt.Errorf("frontmatter: %w", err)
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

// nameOf returns the path of a URI, if the URI is the one of that path, and the path is not too long.
func (s *set) nameOf(uri string) (name string, ok bool) {
	if rest := strings.TrimPrefix(uri, base); len(rest) > longestPath || strings.Count(rest, "/") >= deepestPath {
		return "", false
	}
	return s.folder.Name(uri)
}

// directory returns the entries of a URI's directory, if it belongs to a skill.
func (s *set) directory(uri string) (entries []*protocol.Resource, found bool) {
	name, ok := s.nameOf(uri)
	if !ok || folder.Hidden(name) {
		return nil, false
	}
	// The directory must exist. This is checked before the directories above it are
	// searched for a SKILL.md.
	if info, err := fs.Stat(s.folder.Files, name); err != nil || !info.IsDir() {
		return nil, false
	}
	if !s.has(name + "/" + skillFile) { // neither it nor a directory above it is a skill
		return nil, false
	}
	all, err := fs.ReadDir(s.folder.Files, name)
	if err != nil {
		return nil, false
	}
	for _, entry := range all[:min(len(all), folder.MaxFiles)] {
		if r := s.entry(name, entry); r != nil {
			entries = append(entries, r)
		}
	}
	return entries, true
}

// entry describes an entry of a directory, or returns nil for one that is not served: a hidden one,
// a link, and one that was removed meanwhile.
func (s *set) entry(directory string, entry fs.DirEntry) *protocol.Resource {
	info, err := entry.Info()
	switch {
	case err != nil || strings.HasPrefix(entry.Name(), "."):
		return nil
	case entry.IsDir():
		r := s.folder.Resource(directory+"/"+entry.Name(), 0)
		r.MIMEType, r.Size = directoryType, nil
		return r
	case entry.Type().IsRegular():
		return s.folder.Resource(directory+"/"+entry.Name(), info.Size())
	default:
		return nil
	}
}
