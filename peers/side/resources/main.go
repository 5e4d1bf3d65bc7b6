// Resources is a server with a file, a template and a directory, which tells those who
// subscribed when the file has changed.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log"
	"mime"
	"os"
	"os/signal"
	"path"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type user struct {
	Name string `json:"name"`
}

var users = map[string]user{"7": {"Ada"}}

func contents(uri, mimeType string, raw []byte) *mcp.ReadResourceResult {
	c := &mcp.ResourceContents{URI: uri, MIMEType: mimeType}
	if utf8.Valid(raw) {
		c.Text = string(raw)
	} else {
		c.Blob = raw
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{c}}
}

func config(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	raw, err := os.ReadFile("app.yaml")
	if err != nil {
		return nil, err
	}
	return contents(r.Params.URI, "application/yaml", raw), nil
}

func readUser(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	u, ok := users[strings.TrimPrefix(r.Params.URI, "users://")]
	if !ok {
		return nil, mcp.ResourceNotFoundError(r.Params.URI)
	}
	raw, err := json.Marshal(u)
	if err != nil {
		return nil, err
	}
	return contents(r.Params.URI, "application/json", raw), nil
}

func addFiles(s *mcp.Server, root *os.Root) error {
	return fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		mimeType := mime.TypeByExtension(path.Ext(name))
		s.AddResource(&mcp.Resource{URI: "file:///docs/" + name, Name: name, MIMEType: mimeType},
			func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
				raw, err := root.ReadFile(name)
				if errors.Is(err, fs.ErrNotExist) {
					return nil, mcp.ResourceNotFoundError(r.Params.URI)
				}
				if err != nil {
					return nil, err
				}
				return contents(r.Params.URI, mimeType, raw), nil
			})
		return nil
	})
}

func main() {
	ctx := context.Background()
	s := mcp.NewServer(&mcp.Implementation{Name: "files", Version: "1.0"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	s.AddResource(&mcp.Resource{URI: "config://app", Name: "config", MIMEType: "application/yaml"}, config)
	s.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "users://{id}", Name: "user"}, readUser)
	docs, err := os.OpenRoot("docs")
	if err != nil {
		log.Fatal(err)
	}
	if err := addFiles(s, docs); err != nil {
		log.Fatal(err)
	}
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGHUP)
	go func() {
		for range changed {
			if err := s.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: "config://app"}); err != nil {
				log.Print(err)
			}
		}
	}()
	if err := s.Run(ctx, &mcp.StdioTransport{}); err != nil {
		log.Fatal(err)
	}
}
