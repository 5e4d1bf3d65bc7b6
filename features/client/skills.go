package client

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"

	"github.com/bowline-mcp/bowline/features/internal/frontmatter"
	"github.com/bowline-mcp/bowline/protocol"
)

// ErrSkill matches every *SkillError, with errors.Is.
var ErrSkill = errors.New("client: the file of a skill was not verified")

// A SkillError says that a file of a skill does not match the skill's entry. Do not
// use the skill. Get its entry again, and ask the user for consent again.
type SkillError struct {
	Skill string // the URI of its SKILL.md
	File  string // the URI of the file
	Err   error
}

func (e *SkillError) Error() string {
	return fmt.Sprintf("client: %.200q of the skill %.200q: %v", e.File, e.Skill, e.Err)
}

func (e *SkillError) Unwrap() error { return e.Err }

// Is reports whether target is ErrSkill.
func (e *SkillError) Is(target error) bool { return target == ErrSkill }

var (
	listSkills = row(protocol.MethodListSkills, traits[protocol.ListSkillsParams, protocol.ListSkillsResult]{
		repeatable: true,
		check:      func(r *protocol.ListSkillsResult) error { return present(r.Skills != nil, "skills") },
	})
	getSkill = row(protocol.MethodGetSkill, traits[protocol.GetSkillParams, protocol.GetSkillResult]{
		repeatable: true,
		check:      func(r *protocol.GetSkillResult) error { return present(r.Skill.URI != "", "skill") },
	})
	readDirectory = row(protocol.MethodReadDirectory, traits[protocol.ReadDirectoryParams, protocol.ReadDirectoryResult]{
		repeatable: true,
		check:      func(r *protocol.ReadDirectoryResult) error { return present(r.Resources != nil, "resources") },
	})
	skills = list[protocol.ListSkillsParams, protocol.ListSkillsResult, *protocol.Skill, *protocol.ListSkillsParams]{
		listSkills,
		func(p *protocol.ListSkillsParams) **string { return &p.Cursor },
		func(r *protocol.ListSkillsResult) ([]*protocol.Skill, *string) { return r.Skills, r.NextCursor },
	}
)

// Skills ranges over the skills that the server lists, as Tools does over the tools.
// A server may have more skills than it lists; see GetSkill. Skills does not read
// their files (2026-07-28 and the skills extension).
func (s *Session) Skills(ctx context.Context) iter.Seq2[*protocol.Skill, error] {
	return skills.all(ctx, s, nil)
}

// GetSkill returns the entry of one skill, by the URI of its SKILL.md.
func (s *Session) GetSkill(ctx context.Context, params *protocol.GetSkillParams) (*protocol.GetSkillResult, error) {
	return resultOf(getSkill.call(ctx, s, params))
}

// ReadDirectory lists the entries of a directory of a skill. The server must declare
// directoryRead. Subdirectories have the type inode/directory.
func (s *Session) ReadDirectory(ctx context.Context, params *protocol.ReadDirectoryParams) (*protocol.ReadDirectoryResult, error) {
	if p := s.peer.Load(); p != nil && p.Modern() {
		var settings struct {
			DirectoryRead bool `json:"directoryRead"`
		}
		raw := p.server.Capabilities.Extensions[protocol.ExtensionSkills]
		if protocol.Unmarshal(raw, &settings) != nil || !settings.DirectoryRead {
			return nil, refusedUnsent(protocol.MethodReadDirectory, &CapabilityError{Capability: protocol.ExtensionSkills + ".directoryRead"})
		}
	}
	return resultOf(readDirectory.call(ctx, s, params))
}

// ReadSkill reads one file of a skill and verifies it against the skill's entry: its
// size and digest and, for SKILL.md, its frontmatter. If they do not match, the error
// is a *SkillError. If the entry does not list the file, ReadSkill returns a
// *SkillError without reading it. A dynamic skill does not list its files: only its
// frontmatter can be verified, and each file may have at most 16 MiB.
//
// A verified skill is not a trustworthy skill: the entry and the files come from the
// same server. Ask the user before a model sees a skill.
func (s *Session) ReadSkill(ctx context.Context, skill *protocol.Skill, uri string) ([]byte, error) {
	failed := func(err error) error { return &SkillError{Skill: skill.URI, File: uri, Err: err} }
	var entry *protocol.SkillFile
	if !skill.Resources.Dynamic {
		i := slices.IndexFunc(skill.Resources.Files, func(f protocol.SkillFile) bool { return f.URI == uri })
		if i < 0 {
			return nil, failed(errors.New("the skill does not list it"))
		}
		entry = &skill.Resources.Files[i]
	}
	result, err := s.ReadResource(ctx, &protocol.ReadResourceParams{URI: uri})
	if err != nil {
		return nil, err
	}
	raw, err := oneContent(result, uri)
	if err == nil {
		err = verify(raw, entry)
	}
	if err == nil && uri == skill.URI {
		err = sameFrontmatter(raw, skill)
	}
	if err != nil {
		return nil, failed(err)
	}
	return raw, nil
}

// largestDynamic limits a file whose size is unknown.
const largestDynamic = 16 << 20

func oneContent(result *protocol.ReadResourceResult, uri string) ([]byte, error) {
	switch {
	case len(result.Contents) != 1 || result.Contents[0].URI != uri:
		return nil, errors.New("the server has sent another file, or several")
	case result.Contents[0].Text != nil:
		return []byte(*result.Contents[0].Text), nil
	default:
		return result.Contents[0].Blob, nil
	}
}

func verify(raw []byte, entry *protocol.SkillFile) error {
	switch {
	case entry == nil && len(raw) > largestDynamic:
		return fmt.Errorf("it has %d bytes, and this client takes %d", len(raw), largestDynamic)
	case entry == nil:
		return nil
	case int64(len(raw)) != entry.Size:
		return fmt.Errorf("it has %d bytes, and its entry says %d", len(raw), entry.Size)
	}
	if digest := fmt.Sprintf("sha256:%x", sha256.Sum256(raw)); digest != entry.Digest {
		return fmt.Errorf("its digest is %s, and its entry says %.100q", digest, entry.Digest)
	}
	return nil
}

func sameFrontmatter(raw []byte, skill *protocol.Skill) error {
	front, err := frontmatter.Parse(raw)
	if err != nil {
		return err
	}
	if !frontmatter.Equal(front, skill.Frontmatter) {
		return errors.New("its frontmatter is not that of the entry")
	}
	var named struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	}
	if err := protocol.Unmarshal(front, &named); err != nil {
		return err
	}
	if named.Name == "" || named.Description == "" || path.Base(path.Dir(skill.URI)) != named.Name {
		return errors.New("its frontmatter has no description, or another name than its directory")
	}
	return nil
}
