package client_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// featureServer has one feature of each kind, and a tool that asks a question.
func featureServer() *server.Server {
	s := server.New(serverInfo, server.Options{OnSubscribe: func(context.Context, string) error { return nil }})
	server.AddResource(s, protocol.Resource{URI: "config://app", Name: "config"}, func(context.Context) (string, error) { return "a=1", nil })
	server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "users://{id}", Name: "user"},
		func(_ context.Context, in struct {
			ID string `json:"id"`
		}) (string, error) {
			if in.ID == "0" {
				return "", server.ErrNotFound
			}
			return "user " + in.ID, nil
		})
	server.AddPrompt(s, protocol.Prompt{Name: "review"}, func(_ context.Context, in struct {
		Style string `json:"style" enum:"short,thorough"`
	}) (string, error) {
		return "a " + in.Style + " review", nil
	})
	server.AddTool(s, protocol.Tool{Name: "touch"}, func(context.Context, struct{}) (string, error) {
		s.ResourceUpdated("config://app")
		return "", nil
	})
	server.AddTool(s, protocol.Tool{Name: "order"}, func(ctx context.Context, _ struct{}) ([]string, error) {
		choice, err := server.Elicit[struct {
			Size string `json:"size" enum:"small,large" default:"small"`
		}](ctx, "Which size?")
		if err != nil {
			return nil, err
		}
		roots, err := server.Roots(ctx)
		if err != nil || len(roots) != 1 {
			return nil, err
		}
		return []string{choice.Size, roots[0].URI}, nil
	}, server.Asks(server.Reruns, protocol.ClientCapabilities{Elicitation: new(protocol.ElicitationCapability), Roots: new(protocol.RootsCapability)}))
	return s
}

// Every feature works with a Bowline server, as a child process and over HTTP, in every
// revision that has the feature.
func TestFeaturesOfOwnServer(t *testing.T) {
	options := client.Options{
		Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			return client.Accept(nil)
		},
		Roots: func(context.Context, *client.Session) ([]protocol.Root, error) {
			return []protocol.Root{{URI: "file:///home"}}, nil
		},
	}
	for _, version := range protocol.Versions() {
		o := options
		o.ProtocolVersion = version
		t.Run(version+" over stdio", func(t *testing.T) {
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			to := &stdio.Command{Path: self, Env: append(os.Environ(), roleVariable+"=features")}
			session, err := client.New(clientInfo, o).Connect(timeoutContext(t), specification.WatchClient(t, to))
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close(context.Background())
			useFeatures(t, session)
		})
		if version == protocol.Version20241105 {
			continue // over HTTP this revision has another transport
		}
		t.Run(version+" over HTTP", func(t *testing.T) { useFeatures(t, newSite(t, featureServer()).open(o)) })
	}
}

func useFeatures(t *testing.T, s *client.Session) {
	t.Helper()
	ctx, version := timeoutContext(t), s.Server().ProtocolVersion
	var listed []string
	for resource, err := range s.Resources(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, resource.URI)
	}
	for template, err := range s.ResourceTemplates(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, template.URITemplate)
	}
	for prompt, err := range s.Prompts(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, prompt.Name)
	}
	if !slices.Equal(listed, []string{"config://app", "users://{id}", "review"}) {
		t.Errorf("listed %q, want %v", listed, []string{"config://app", "users://{id}", "review"})
	}
	if user, err := s.ReadResource(ctx, &protocol.ReadResourceParams{URI: "users://7"}); err != nil || user.Text() != "user 7" {
		t.Errorf("read %+v, %v, want %q", user, err, "user 7")
	}
	if _, err := s.ReadResource(ctx, &protocol.ReadResourceParams{URI: "users://0"}); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("read of an unknown resource: %v, want %v", err, client.ErrNotFound)
	}
	prompt, err := s.GetPrompt(ctx, &protocol.GetPromptParams{Name: "review", Arguments: map[string]string{"style": "short"}})
	if err != nil || len(prompt.Messages) != 1 {
		t.Errorf("prompt %+v, %v, want 1 element", prompt, err)
	}
	complete, err := s.Complete(ctx, &protocol.CompleteParams{
		Ref:      protocol.CompleteReference{Type: protocol.ReferencePrompt, Name: "review"},
		Argument: protocol.CompleteArgument{Name: "style", Value: "th"},
	})
	if err != nil || !slices.Equal(complete.Completion.Values, []string{"thorough"}) {
		t.Errorf("completed %+v, %v, want %v", complete, err, []string{"thorough"})
	}
	reads := 0
	watching, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var touching sync.WaitGroup
	for contents, err := range s.Watch(watching, "config://app") {
		if err != nil || contents.Text() != "a=1" {
			t.Errorf("watched %+v, %v", contents, err)
			break
		}
		if reads++; reads == 2 {
			break
		}
		touching.Go(func() { // repeatedly, because the stream of a legacy session may open after Connect has returned
			for watching.Err() == nil {
				_, _ = client.Call[string](watching, s, "touch", nil)
			}
		})
	}
	cancel()
	touching.Wait()
	if version < protocol.Version20250618 {
		return // this revision has no elicitation
	}
	if order, err := client.Call[[]string](ctx, s, "order", nil); err != nil || !slices.Equal(order, []string{"small", "file:///home"}) {
		t.Errorf("ordered %q, %v, want %v", order, err, []string{"small", "file:///home"})
	}
}
