package protocol

import (
	"encoding/json"
	"errors"

	"github.com/go-json-experiment/json/jsontext"
)

// A Skill is a directory of instructions for a model, in the skills extension of
// 2026-07-28 (io.modelcontextprotocol/skills). Treat it as untrusted input.
// Unknown members are kept.
type Skill struct {
	URI         string          `json:"uri"`         // of its SKILL.md
	Frontmatter json.RawMessage `json:"frontmatter"` // an object: that of SKILL.md, unchanged
	Resources   SkillResources  `json:"resources"`

	Others map[string]json.RawMessage `json:",unknown"`
}

// SkillResources lists the files of a skill, or says that the skill is dynamic
// and its files cannot be listed.
type SkillResources struct {
	Dynamic bool
	Files   []SkillFile // every file, SKILL.md included; at most MaxItems when decoded
}

// A SkillFile is one file of a skill.
type SkillFile struct {
	URI    string `json:"uri"`
	Digest string `json:"digest"` // "sha256:" and 64 lower-case hexadecimal digits
	Size   int64  `json:"size"`   // bytes
}

// MarshalJSONTo encodes an array of files, or "dynamic".
func (r SkillResources) MarshalJSONTo(to *jsontext.Encoder) error {
	if r.Dynamic {
		return to.WriteToken(jsontext.String("dynamic"))
	}
	return marshalTo(to, r.Files)
}

// UnmarshalJSON refuses everything but an array and "dynamic".
func (r *SkillResources) UnmarshalJSON(raw []byte) error {
	*r = SkillResources{}
	var word string
	switch {
	case jsontext.Value(raw).Kind() == '[':
		files := bound{most: MaxItems, what: "files of a skill"}
		if err := files.check(raw); err != nil {
			return err
		}
		return Unmarshal(raw, &r.Files)
	case Unmarshal(raw, &word) == nil && word == "dynamic":
		r.Dynamic = true
		return nil
	default:
		return errors.New(`protocol: resources of a skill: neither an array nor "dynamic"`)
	}
}

// ListSkillsParams asks for one page of skills.
type ListSkillsParams struct {
	RequestParams
	Cursor *string `json:"cursor,omitzero"` // nil for the first page; an empty string is a cursor
}

// ListSkillsResult is one page of skills. A server may have skills that it does
// not list.
type ListSkillsResult struct {
	CacheableResult
	// Skills are at most MaxItems when they are decoded, and none of them is nil.
	// Absent ones are nil.
	Skills     []*Skill `json:"skills" most:"MaxItems skills on a page"`
	NextCursor *string  `json:"nextCursor,omitzero"` // nil on the last page
}

// GetSkillParams asks for one skill, by the URI of its SKILL.md.
type GetSkillParams struct {
	RequestParams
	URI string `json:"uri"`
}

// GetSkillResult is one skill.
type GetSkillResult struct {
	CacheableResult
	Skill Skill `json:"skill"`
}

// ReadDirectoryParams asks for one page of the direct entries of a directory, which is a
// resource with the MIME type inode/directory.
type ReadDirectoryParams struct {
	RequestParams
	URI    string  `json:"uri"`
	Cursor *string `json:"cursor,omitzero"` // nil for the first page; an empty string is a cursor
}

// ReadDirectoryResult is one page of a directory.
type ReadDirectoryResult struct {
	CacheableResult
	// Resources are at most MaxItems when they are decoded, and none of them is nil.
	// Absent ones are nil.
	Resources  []*Resource `json:"resources" most:"MaxItems resources on a page"`
	NextCursor *string     `json:"nextCursor,omitzero"` // nil on the last page
}
