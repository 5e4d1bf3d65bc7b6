// Resources is a server with a file, a template and a directory, which tells those who
// subscribed when the file has changed.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

type user struct {
	Name string `json:"name"`
}

var users = map[string]user{"7": {"Ada"}}

func main() {
	s := server.New(protocol.Implementation{Name: "files", Version: "1.0"}, server.Options{
		OnSubscribe: func(context.Context, string) error { return nil },
	})
	server.AddResource(s, protocol.Resource{URI: "config://app", Name: "config", MIMEType: "application/yaml"},
		func(context.Context) ([]byte, error) { return os.ReadFile("app.yaml") })
	server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "users://{id}", Name: "user"},
		func(_ context.Context, in struct {
			ID string `json:"id"`
		}) (user, error) {
			if u, ok := users[in.ID]; ok {
				return u, nil
			}
			return user{}, server.ErrNotFound
		})
	docs, err := os.OpenRoot("docs")
	if err != nil {
		log.Fatal(err)
	}
	s.AddFiles("file:///docs/", docs.FS(), server.FilesOptions{})
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGHUP)
	go func() {
		for range changed {
			s.ResourceUpdated("config://app")
		}
	}()
	if err := s.Run(context.Background(), &stdio.Server{}); err != nil {
		log.Fatal(err)
	}
}
