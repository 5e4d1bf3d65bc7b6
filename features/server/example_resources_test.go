package server_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing/fstest"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
)

// The files of a directory as resources. An os.Root prevents links from leading out of
// the directory. An embed.FS works as well.
func ExampleServer_AddFiles() {
	dir, err := os.MkdirTemp("", "docs")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "intro.md"), []byte("# Welcome"), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer root.Close()

	s := server.New(protocol.Implementation{Name: "docs", Version: "1.0"}, server.Options{})
	s.AddFiles("file:///docs/", root.FS(), server.FilesOptions{})

	use(s, client.Options{}, func(ctx context.Context, session *client.Session) error {
		for file, err := range session.Resources(ctx) {
			if err != nil {
				return err
			}
			contents, err := session.ReadResource(ctx, &protocol.ReadResourceParams{URI: file.URI})
			if err != nil {
				return err
			}
			fmt.Println(file.URI, contents.Text())
		}
		return nil
	})
	// Output: file:///docs/intro.md # Welcome
}

// A client reads only the files within its roots. The base is the URI of the directory itself.
func ExampleFilesOptions() {
	files := fstest.MapFS{"shop/prices.txt": {Data: []byte("a shirt: 20")}, "bakery/prices.txt": {Data: []byte("a loaf: 4")}}
	s := server.New(protocol.Implementation{Name: "files", Version: "1.0"}, server.Options{})
	s.AddFiles("file:///home/ada", files, server.FilesOptions{InRoots: true})

	o := client.Options{Roots: func(context.Context, *client.Session) ([]protocol.Root, error) {
		return []protocol.Root{{URI: "file:///home/ada/shop"}}, nil
	}}
	use(s, o, func(ctx context.Context, session *client.Session) error {
		for _, name := range []string{"shop", "bakery"} {
			contents, err := session.ReadResource(ctx, &protocol.ReadResourceParams{URI: "file:///home/ada/" + name + "/prices.txt"})
			if err != nil {
				fmt.Println(err)
				continue
			}
			fmt.Println(contents.Text())
		}
		return nil
	})
	// Output:
	// a shirt: 20
	// resources/read: jsonrpc: error -32602: the file is in none of the client's roots: file:///home/ada/bakery/prices.txt
}

// A resource that changes, and a client that reads it again after each change.
func ExampleServer_ResourceUpdated() {
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{
		OnSubscribe: func(context.Context, string) error { return nil }, // every client may subscribe
	})
	colours := make(chan string, 2)
	colours <- "blue"
	server.AddResource(s, protocol.Resource{URI: "config://app", Name: "config"},
		func(context.Context) (string, error) { return "colour: " + <-colours, nil })

	use(s, client.Options{}, func(ctx context.Context, session *client.Session) error {
		for config, err := range session.Watch(ctx, "config://app") {
			if err != nil {
				return err
			}
			fmt.Println(config.Text())
			if config.Text() == "colour: green" {
				break
			}
			colours <- "green"
			s.ResourceUpdated("config://app")
		}
		return nil
	})
	// Output:
	// colour: blue
	// colour: green
}

// One function for all resources whose URI matches a template. Clients get the values
// of the enum as completions.
func ExampleAddTemplate() {
	s := server.New(protocol.Implementation{Name: "example", Version: "1.0"}, server.Options{})
	server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "logs://{service}/{day}", Name: "log", MIMEType: "text/plain"},
		func(_ context.Context, in struct {
			Service string `json:"service" enum:"mail,web"`
			Day     int    `json:"day" minimum:"1" maximum:"31"`
		}) (string, error) {
			return fmt.Sprintf("%s was quiet on day %d", in.Service, in.Day), nil
		})

	use(s, client.Options{}, func(ctx context.Context, session *client.Session) error {
		for _, uri := range []string{"logs://web/7", "logs://web/40"} {
			contents, err := session.ReadResource(ctx, &protocol.ReadResourceParams{URI: uri})
			if err != nil {
				fmt.Println(err)
				continue
			}
			fmt.Println(contents.Text())
		}
		proposed, err := session.Complete(ctx, &protocol.CompleteParams{
			Ref:      protocol.CompleteReference{Type: protocol.ReferenceResource, URI: "logs://{service}/{day}"},
			Argument: protocol.CompleteArgument{Name: "service", Value: "m"},
		})
		if err != nil {
			return err
		}
		fmt.Println(proposed.Completion.Values)
		return nil
	})
	// Output:
	// web was quiet on day 7
	// resources/read: jsonrpc: error -32602: invalid URI: /day is more than 31
	// [mail]
}
