// Agent lets a model call the tools of several servers. Without MODEL_URL its model is a script, so that it runs
// without one.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// A toolbox maps what the model calls to the tools of the servers.
type toolbox struct {
	functions []Function
	tools     map[string]tool // by the name of the function
}

type tool struct {
	session *client.Session
	name    string
}

// collect lists the tools of every server, also those of a server that was there and is
// restarting. Two servers may have a tool of the same name, so the name of a function begins
// with that of its server.
func collect(ctx context.Context, c *client.Client) *toolbox {
	box := &toolbox{tools: make(map[string]tool)}
	for session := range c.Sessions() {
		lists := session.With(client.CallOptions{MaxStale: time.Hour})
		for t, err := range lists.Tools(ctx) {
			if err != nil {
				log.Printf("without the tools of %s: %v", session.Name(), err)
				break
			}
			name := box.unique(session.Name() + "__" + t.Name)
			box.tools[name] = tool{session, t.Name}
			box.functions = append(box.functions, Function{name, t.Description, t.InputSchema})
		}
	}
	return box
}

// unique returns a name that models accept, and that no other function has.
func (b *toolbox) unique(name string) string {
	const most = 64
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, name)
	free := name[:min(len(name), most)]
	for n := 2; b.tools[free].session != nil; n++ {
		suffix := fmt.Sprint("_", n)
		free = name[:min(len(name), most-len(suffix))] + suffix
	}
	return free
}

// perform does what the model wants, and always has an output: the model must learn what
// became of each of its calls.
func (b *toolbox) perform(ctx context.Context, use Use) Output {
	t, found := b.tools[use.Name]
	if !found {
		return failure(use, "there is no function "+use.Name)
	}
	show := func(p *protocol.ProgressParams) { log.Print(use.Name, ": ", p.Message) }
	session := t.session.With(client.CallOptions{WaitForReady: true, OnProgress: show})
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // also limits the wait for a server that is away
	defer cancel()
	result, err := session.CallTool(ctx, &protocol.CallToolParams{Name: t.name, Arguments: use.Arguments})
	var answered *jsonrpc.Error
	switch {
	case err == nil: // also if the tool failed: then the text says why
		return Output{use.ID, result.IsError, parts(result.Content)}
	case errors.Is(err, client.ErrInvalid), errors.Is(err, client.ErrUnsupported):
		return failure(use, "this call is wrong, so change it before you call again: "+err.Error())
	case client.NotExecuted(err):
		log.Print(use.Name, ": ", err)
		return failure(use, "the tool was not run, so it is safe to call it again later")
	case errors.As(err, &answered):
		return failure(use, fmt.Sprintf("error %d: %s (the tool may have run, unless this error says that it did not)", answered.Code, answered.Message))
	default:
		log.Print(use.Name, ": ", err)
		return failure(use, "there was no answer: the tool may have run, so find out before you call it again")
	}
}

func failure(use Use, text string) Output { return Output{use.ID, true, []Part{{Text: text}}} }

// parts turns the content of a result into what a model reads.
func parts(content protocol.Contents) (all []Part) {
	for _, block := range content {
		switch block := block.(type) {
		case *protocol.TextContent:
			all = append(all, Part{Text: block.Text})
		case *protocol.ImageContent:
			all = append(all, Part{MIMEType: block.MIMEType, Data: block.Data})
		case *protocol.AudioContent:
			all = append(all, Part{MIMEType: block.MIMEType, Data: block.Data})
		case *protocol.EmbeddedResource:
			all = append(all, resourcePart(&block.Resource))
		case *protocol.ResourceLink:
			all = append(all, Part{Text: block.Name + ": " + block.URI})
		default:
			all = append(all, Part{Text: "(something that this program does not know)"})
		}
	}
	return all
}

func resourcePart(r *protocol.ResourceContents) Part {
	if r.Text != nil {
		return Part{Text: *r.Text}
	}
	return Part{MIMEType: cmp.Or(r.MIMEType, "application/octet-stream"), Data: r.Blob}
}

// converse lets the model call tools until it answers with a text. The lists are read again
// before each turn: servers come and go, and change their tools.
func converse(ctx context.Context, c *client.Client, model Model) (string, error) {
	const turns = 20 // a model may go round in circles
	var outputs []Output
	for range turns {
		box := collect(ctx, c)
		uses, text, err := model.Next(ctx, box.functions, outputs)
		if err != nil || len(uses) == 0 {
			return text, err
		}
		outputs = nil
		for _, use := range uses {
			outputs = append(outputs, box.perform(ctx, use))
		}
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
	}
	return "", fmt.Errorf("the model has not answered after %d turns", turns)
}

// chooseModel returns the model that the environment names, with the question of the command line, or a script. The script
// needs no model server.
func chooseModel() Model {
	url := os.Getenv("MODEL_URL")
	if url == "" {
		return &script{}
	}
	model := &chat{URL: url, Key: os.Getenv("MODEL_KEY"), Name: os.Getenv("MODEL")}
	model.ask(strings.Join(os.Args[1:], " "))
	return model
}

func run(ctx context.Context) (err error) {
	c := client.New(protocol.Implementation{Name: "agent", Version: "1.0"}, client.Options{})
	defer func() { err = errors.Join(err, c.Close(context.WithoutCancel(ctx))) }()
	for name, t := range map[string]transport.Transport{
		"weather": &stdio.Command{Path: "weather"},
		"tools":   &stdio.Command{Path: "bowline", Args: []string{"serve", "--stdio"}},
		"search":  &stdio.Command{Path: "no-such-program"},
	} {
		if _, err := c.Start(ctx, name, t); err != nil {
			return err
		}
	}
	starting, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := c.AwaitReady(starting); err != nil {
		log.Print(err) // the others can be used
	}
	text, err := converse(ctx, c, chooseModel())
	fmt.Println(text)
	return err
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
