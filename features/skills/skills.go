// Package skills lets a server offer skills, as the skills extension of 2026-07-28 has them
// (io.modelcontextprotocol/skills, SEP-2640). A skill is a directory of instructions for a model.
//
//	err := skills.New(s).Add(files)
//
// It owns what the extension adds to resources: which directories are skills, their frontmatter and the
// digests of their files. It stands on what package server offers to every program: the files are resources
// of Server.AddFiles, and the methods are added by AddMethod and announced by AddExtension. So it may not do
// for a client what a program could not do.
//
// There are no goroutines of its own. Methods of the extension run on the goroutines of their requests, and
// read files there; requests that need one file may read it at the same time.
package skills

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/features/internal/folder"
	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// These are the limits of a skill. Every host must support that much, and no host need
// support more (SEP-2640).
const (
	mostFiles  = 512
	mostBytes  = 16 << 20
	mostSkills = 1_000
)

const (
	base          = "skill://"
	skillFile     = "SKILL.md"
	directoryType = "inode/directory"
)

// These limit what clients may send as a URI: it is split, and each directory above a path is looked up.
const (
	longestPath = 4 << 10 // the maximum length, in bytes
	deepestPath = 64      // the maximum number of elements
)

// Skills are the skills of one server.
type Skills struct {
	server *server.Server

	adding sync.Mutex             // held while added changes
	added  atomic.Pointer[[]*set] // copied when it changes
}

// New returns the skills of a server, which has none at first. Make one for each server: the methods of
// another one would replace those of the first.
func New(s *server.Server) *Skills { return &Skills{server: s} }

// Add offers every skill of an fs.FS, which may be an embed.FS or the FS of an
// os.Root. A skill is a directory with a SKILL.md and all files below it (SEP-2640).
// The URI of a file is skill:// followed by its path. Clients of 2026-07-28 list
// skills with the digests of their files, and read directories. Other clients see the
// files as resources. Names that begin with a dot are left out.
//
// The frontmatter of each SKILL.md needs a description, and a name that is the name
// of the directory. A skill has at most 512 files and 16 MiB. If a skill breaks one
// of these rules, Add returns an error and adds no skill. The server looks the
// files up when a client asks for them, so they may change. A skill that breaks a
// rule later is no longer listed.
//
// Add panics for os.DirFS, which follows symbolic links out of its directory:
// use os.OpenRoot instead.
func (ss *Skills) Add(files fs.FS) error {
	if folder.Follows(files) {
		panic("skills: os.DirFS follows links out of its directory: use the FS of os.OpenRoot")
	}
	added := newSet(files)
	names, err := added.names()
	if err != nil {
		return fmt.Errorf("skills: %w", err)
	}
	var failed []error
	for _, name := range names {
		if _, err := added.skill(name); err != nil {
			failed = append(failed, fmt.Errorf("skills: skill %q: %w", name, err))
		}
	}
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	ss.offer(added)
	return nil
}

// offer adds a set. Its files are resources before a client can learn of its skills, so that what is listed
// can be read.
func (ss *Skills) offer(added *set) {
	ss.adding.Lock()
	defer ss.adding.Unlock()
	ss.server.AddFiles(base, added.folder.Files, server.FilesOptions{
		MaxBytes: mostBytes, MIMEType: typeOf, Only: added.has, Describe: added.describe,
	})
	sets := append(slices.Clip(ss.sets()), added)
	ss.added.Store(&sets)
	if len(sets) > 1 {
		return
	}
	server.AddMethod(ss.server, protocol.MethodListSkills, ss.list)
	server.AddMethod(ss.server, protocol.MethodGetSkill, ss.get)
	server.AddMethod(ss.server, protocol.MethodReadDirectory, ss.readDirectory)
	ss.server.AddExtension(protocol.ExtensionSkills, json.RawMessage(`{"directoryRead":true}`))
}

// sets returns what Add was given. It is shared.
func (ss *Skills) sets() []*set {
	if all := ss.added.Load(); all != nil {
		return *all
	}
	return nil
}

// list serves skills/list.
func (ss *Skills) list(ctx context.Context, params protocol.ListSkillsParams) (r protocol.ListSkillsResult, err error) {
	all := make(map[string]*protocol.Skill)
	files := make(map[string]*protocol.Resource)      // the SKILL.md of each, by which the program hides a skill
	for _, from := range slices.Backward(ss.sets()) { // the first set with a skill has the last word, as skills/get and resources/read take that
		names, err := from.names()
		if err != nil {
			return r, err
		}
		for _, name := range names {
			one, err := from.skill(name)
			if err != nil {
				continue // it has broken a rule since it was added
			}
			all[one.definition.URI], files[one.definition.URI] = one.definition, one.file
		}
	}
	feature := func(one *protocol.Skill) server.Feature { return featureOf(files[one.URI]) }
	page, err := server.ListPage(ctx, ss.server, params.Cursor, all, feature)
	if err != nil {
		return r, err
	}
	return protocol.ListSkillsResult{CacheableResult: page.CacheableResult, Skills: page.Entries, NextCursor: page.Next}, nil
}

func featureOf(file *protocol.Resource) server.Feature {
	return server.Feature{Kind: server.KindResource, Name: file.URI, Definition: file}
}

// get serves skills/get.
func (ss *Skills) get(ctx context.Context, params protocol.GetSkillParams) (r protocol.GetSkillResult, err error) {
	if err := refusal.Missing(protocol.MethodGetSkill, "uri", params.URI); err != nil {
		return r, err
	}
	for _, from := range ss.sets() {
		name, file, ok := from.folder.Find(params.URI)
		if !ok || path.Base(name) != skillFile || !ss.server.Visible(ctx, featureOf(file)) {
			continue
		}
		one, err := from.skill(path.Dir(name))
		if err != nil {
			continue
		}
		return protocol.GetSkillResult{CacheableResult: ss.server.Cacheable(ctx), Skill: *one.definition}, nil
	}
	return r, unknown("skill", params.URI)
}

// readDirectory lists the entries of a directory in a skill.
func (ss *Skills) readDirectory(ctx context.Context, params protocol.ReadDirectoryParams) (r protocol.ReadDirectoryResult, err error) {
	if err := refusal.Missing(protocol.MethodReadDirectory, "uri", params.URI); err != nil {
		return r, err
	}
	all := make(map[string]*protocol.Resource)
	found := false
	for _, from := range slices.Backward(ss.sets()) { // as in list
		entries, ok := from.directory(params.URI)
		found = found || ok
		for _, entry := range entries {
			all[entry.URI] = entry
		}
	}
	if !found {
		return r, unknown("directory", params.URI)
	}
	page, err := server.ListPage(ctx, ss.server, params.Cursor, all, featureOf)
	if err != nil {
		return r, err
	}
	return protocol.ReadDirectoryResult{CacheableResult: page.CacheableResult, Resources: page.Entries, NextCursor: page.Next}, nil
}

func unknown(what, uri string) error {
	return refusal.New(jsonrpc.CodeInvalidParams, "there is no %s %q", what, refusal.Shorten(uri, refusal.LongestName))
}
