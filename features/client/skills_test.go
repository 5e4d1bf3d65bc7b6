package client_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/features/skills"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

const refunds = "---\nname: refunds\ndescription: Refund an order.\nmetadata: {level: 2}\n---\nRead more.md\n"

// The client lists the skills of a Bowline server, and reads and verifies their files.
//
// Guarantees: G-0042.4
func TestSkillsOfOwnServerAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(server.Options{})
		files := fstest.MapFS{"refunds/SKILL.md": {Data: []byte(refunds)}, "refunds/more.bin": {Data: []byte{0xff, 0}}}
		if err := skills.New(s).Add(files); err != nil {
			t.Fatal(err)
		}
		watch := specification.WatchServer(t)
		served := inmem.New(func(link transport.Link) { s.Accept(watch(link)) }, inmem.Options{})
		session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{}).Connect(t.Context(), specification.WatchClient(t, served))
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close(t.Context())
		for skill, err := range session.Skills(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range skill.Resources.Files {
				raw, err := session.ReadSkill(t.Context(), skill, file.URI)
				if want := files[strings.TrimPrefix(file.URI, "skill://")].Data; err != nil || string(raw) != string(want) {
					t.Errorf("%s: got %q, %v", file.URI, raw, err)
				}
			}
			if got, err := session.GetSkill(t.Context(), &protocol.GetSkillParams{URI: skill.URI}); err != nil || fmt.Sprint(got.Skill) != fmt.Sprint(*skill) {
				t.Errorf("got %v, %v", got, err)
			}
			files["refunds/SKILL.md"] = &fstest.MapFile{Data: []byte(refunds + "and then\n")} // the entry is outdated now
			if raw, err := session.ReadSkill(t.Context(), skill, skill.URI); raw != nil || !errors.Is(err, client.ErrSkill) {
				t.Errorf("got %q, %v, want raw == nil and the error %v", raw, err, client.ErrSkill)
			}
		}
		if got, err := session.ReadDirectory(t.Context(), &protocol.ReadDirectoryParams{URI: "skill://refunds"}); err != nil || len(got.Resources) != 2 {
			t.Errorf("got %v, %v, want 2 elements", got, err)
		}
	})
}

// A file that does not match the entry of its skill is refused.
//
// Guarantees: G-0042.4
func TestSkillsThatDifferFromTheirEntryAreRefused(t *testing.T) {
	const uri = "skill://refunds/SKILL.md"
	digest := func(text string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text))) }
	entry := func(text string) *protocol.Skill {
		return &protocol.Skill{
			URI: uri, Frontmatter: []byte(`{"metadata":{"level":2.0},"description":"Refund an order.","name":"refunds"}`),
			Resources: protocol.SkillResources{Files: []protocol.SkillFile{{URI: uri, Digest: digest(text), Size: int64(len(text))}}},
		}
	}
	dynamic := entry("")
	dynamic.Resources = protocol.SkillResources{Dynamic: true}
	moved := entry(refunds)
	moved.URI, moved.Resources.Files[0].URI = "skill://other/SKILL.md", "skill://other/SKILL.md"
	upper := entry(refunds)
	upper.Resources.Files[0].Digest = strings.ToUpper(upper.Resources.Files[0].Digest)
	evil := strings.Replace(refunds, "Refund", "Steal!", 1)
	const undescribed, unnamed = "---\nname: refunds\n---\nRead more.md\n", "---\ndescription: Refund an order.\n---\nRead more.md\n"
	noDescription, noName := entry(undescribed), entry(unnamed)
	noDescription.Frontmatter, noName.Frontmatter = []byte(`{"name":"refunds"}`), []byte(`{"description":"Refund an order."}`)
	for name, step := range map[string]struct {
		skill      *protocol.Skill
		file, sent string
		want       string // text of the error; empty if there is none
		reads      int
	}{
		"unchanged":                {entry(refunds), uri, refunds, "", 1},
		"dynamic":                  {dynamic, uri, refunds, "", 1},
		"other bytes":              {entry(refunds), uri, evil, "digest", 1},
		"longer":                   {entry(refunds), uri, refunds + "x", "bytes", 1},
		"shorter":                  {entry(refunds), uri, refunds[1:], "bytes", 1},
		"other frontmatter":        {entry(evil), uri, evil, "frontmatter", 1},
		"dynamic, other bytes":     {dynamic, uri, evil, "frontmatter", 1},
		"no frontmatter":           {entry("text"), uri, "text", "frontmatter", 1},
		"not listed":               {entry(refunds), "skill://refunds/more.md", refunds, "does not list", 0},
		"of another directory":     {moved, moved.URI, refunds, "another name", 1},
		"no description":           {noDescription, uri, undescribed, "no description", 1},
		"no name":                  {noName, uri, unnamed, "no description", 1},
		"a digest in upper case":   {upper, uri, refunds, "digest", 1},
		"another file is answered": {entry(refunds), uri, "", "another file", 1},
		"it is answered twice":     {entry(refunds), uri, refunds, "or several", 1},
		"no file is answered":      {entry(refunds), uri, refunds, "has sent another", 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			content := fmt.Sprintf(`{"uri":%q,"text":%q}`, step.file, step.sent)
			switch step.want {
			case "another file":
				content = `{"uri":"skill://refunds/other.md","text":"x"}`
			case "or several":
				content += "," + content
			case "has sent another":
				content = ""
			}
			s := modernServer(map[string]string{
				protocol.MethodReadResource: `{"resultType":"complete","ttlMs":0,"cacheScope":"private","contents":[` + content + `]}`,
				protocol.MethodDiscover:     strings.Replace(discovered, `"capabilities":{`, `"capabilities":{"resources":{},`, 1),
			})
			session, err := connect(t, s, client.Options{}, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := session.ReadSkill(t.Context(), step.skill, step.file)
			var failed *client.SkillError
			about := fmt.Sprintf("client: %q of the skill %q: ", step.file, step.skill.URI)
			switch {
			case step.want == "" && (err != nil || string(raw) != step.sent):
				t.Errorf("%s: got %q, %v", name, raw, err)
			case step.want != "" && (raw != nil || !errors.As(err, &failed) || failed.File != step.file || failed.Skill != step.skill.URI ||
				!strings.HasPrefix(err.Error(), about) || !strings.Contains(err.Error(), step.want)):
				t.Errorf("%s: got %q, %v", name, raw, err)
			}
			if n := len(s.received(protocol.MethodReadResource)); n != step.reads {
				t.Errorf("%s: got %d reads, want %v", name, n, step.reads)
			}
		})
	}
}

// A skill whose file cannot be read is not a skill that differs from its entry.
func TestAFileOfASkillThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := modernServer(map[string]string{protocol.MethodDiscover: strings.Replace(discovered, `"capabilities":{`, `"capabilities":{"resources":{},`, 1)})
		s.on(protocol.MethodReadResource, func(f frame, _ func(frame) []string) []string {
			return []string{f.fault(jsonrpc.CodeInvalidParams, `{"uri":"skill://a/SKILL.md"}`)}
		})
		session, err := connect(t, s, client.Options{}, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		dynamic := &protocol.Skill{URI: "skill://a/SKILL.md", Resources: protocol.SkillResources{Dynamic: true}}
		if raw, err := session.ReadSkill(t.Context(), dynamic, dynamic.URI); raw != nil || !errors.Is(err, client.ErrNotFound) || errors.Is(err, client.ErrSkill) {
			t.Errorf("got %q, %v, want %v alone", raw, err, client.ErrNotFound)
		}
	})
}

// If the server has no skills, Skills and ReadDirectory fail with ErrUnsupported.
func TestServersWithoutSkills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := modernServer(nil)
		session, err := connect(t, s, client.Options{}, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range session.Skills(t.Context()) {
			if !errors.Is(err, client.ErrUnsupported) {
				t.Errorf("got %v, want %v", err, client.ErrUnsupported)
			}
		}
		_, err = session.ReadDirectory(t.Context(), &protocol.ReadDirectoryParams{URI: "skill://a"})
		if want := (&client.CapabilityError{Capability: "io.modelcontextprotocol/skills.directoryRead"}); !errors.Is(err, client.ErrUnsupported) ||
			!strings.Contains(err.Error(), want.Error()) {
			t.Errorf("got %v, want %v", err, want)
		}
	})
}
