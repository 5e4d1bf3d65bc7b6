// Manual is an MCP server of skills, and a host that reads one.
package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os/signal"
	"syscall"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/features/skills"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// embedded has the directory skills, with a directory in it for each skill.
//
//go:embed skills
var embedded embed.FS

// newServer offers every directory that contains a SKILL.md.
func newServer() (*server.Server, error) {
	s := server.New(protocol.Implementation{Name: "manual", Version: "1.0"}, server.Options{})
	files, err := fs.Sub(embedded, "skills")
	if err != nil {
		return nil, err
	}
	return s, skills.New(s).Add(files) // fails if a SKILL.md is not valid
}

// read lists the skills, and prints the files of those that approve accepts.
func read(ctx context.Context, session *client.Session, approve func(*protocol.Skill) bool) error {
	for skill, err := range session.Skills(ctx) {
		if err != nil {
			return err
		}
		if !approve(skill) {
			continue
		}
		for _, file := range skill.Resources.Files {
			raw, err := session.ReadSkill(ctx, skill, file.URI)
			if errors.Is(err, client.ErrSkill) {
				return fmt.Errorf("not what was approved: %w", err)
			}
			if err != nil {
				return err
			}
			fmt.Printf("%s: %d bytes\n", file.URI, len(raw))
		}
	}
	return nil
}

func main() {
	of := flag.String("of", "", "be a host of the server at this `path`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *of); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, of string) error {
	if of == "" {
		s, err := newServer()
		if err != nil {
			return err
		}
		return s.Run(ctx, &stdio.Server{})
	}
	c := client.New(protocol.Implementation{Name: "manual", Version: "1.0"}, client.Options{})
	defer c.Close(context.WithoutCancel(ctx))
	session, err := c.Connect(ctx, &stdio.Command{Path: of})
	if err != nil {
		return err
	}
	return read(ctx, session, func(skill *protocol.Skill) bool {
		fmt.Println("asked the user about", skill.URI) // show the name and the description
		return true
	})
}
