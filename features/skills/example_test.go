package skills_test

import (
	"context"
	"fmt"
	"testing/fstest"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/features/skills"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A host lists skills, and reads a skill's file when it needs it.
func ExampleSkills_Add() {
	ctx := context.Background()
	s := server.New(protocol.Implementation{Name: "shop", Version: "1.0"}, server.Options{})
	defer s.Close(ctx)
	files := fstest.MapFS{ // or the FS of an os.Root, or an embed.FS
		"refunds/SKILL.md": {Data: []byte("---\nname: refunds\ndescription: Refund an order.\n---\nAsk for its number.\n")},
	}
	if err := skills.New(s).Add(files); err != nil {
		fmt.Println(err)
		return
	}

	c := client.New(protocol.Implementation{Name: "host", Version: "1.0"}, client.Options{})
	defer c.Close(ctx)
	session, err := c.Connect(ctx, inmem.New(s.Accept, inmem.Options{}))
	if err != nil {
		fmt.Println(err)
		return
	}
	for skill, err := range session.Skills(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		text, err := session.ReadSkill(ctx, skill, skill.URI) // ReadSkill checks the digest
		fmt.Println(skill.URI, len(text), "bytes", err)
	}
	// Output: skill://refunds/SKILL.md 72 bytes <nil>
}
