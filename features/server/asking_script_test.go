package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/peertest"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A script is the arguments of tools that ask. Each letter of its steps is a question: c for a
// confirmation, f for a form, u for a page, s for a message of a model, r for roots, and p for
// a pair of forms. The letter w is work for five seconds.
type script struct {
	N     int           `json:"n"` // tells calls apart
	Steps string        `json:"steps"`
	More  time.Duration `json:"more,omitzero"` // that its work lasts
}

const workTime = 5 * time.Second

// A scripted is a server with one tool for each way to ask, and what their handlers did.
type scripted struct {
	*server.Server
	mu   sync.Mutex
	runs map[int]int     // how often the handler of a call ran
	ends map[int][]error // how it returned, if it Waits
}

// everything is the capabilities of a client that answers all questions.
const everything = `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}`

func newScripted(o server.AskingOptions) *scripted {
	s := &scripted{Server: newServer(server.Options{Asking: o}), runs: map[int]int{}, ends: map[int][]error{}}
	for name, how := range map[string]server.Asking{"waits": server.Waits, "reruns": server.Reruns} {
		server.AddTool(s.Server, protocol.Tool{Name: name}, func(ctx context.Context, in script) (string, error) {
			s.ran(in.N)
			text, err := follow(ctx, in)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.ends[in.N] = append(s.ends[in.N], err)
			return text, err
		}, server.Asks(how, protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{}}))
	}
	server.AddTool(s.Server, protocol.Tool{Name: "explicit"}, func(ctx context.Context, in script) (string, error) {
		s.ran(in.N)
		return followExplicitly(ctx, in)
	})
	return s
}

func (s *scripted) ran(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs[n]++
}

// follow asks what the steps say, and returns the answers.
func follow(ctx context.Context, in script) (string, error) {
	var said []string
	for i, step := range in.Steps {
		var text string
		var err error
		switch step {
		case 'c':
			text, err = "yes", server.Confirm(ctx, "Sure?")
		case 'f':
			var filled struct {
				Text string `json:"text"`
			}
			filled, err = server.Elicit[struct {
				Text string `json:"text"`
			}](ctx, "Which?")
			text = filled.Text
		case 'u':
			text, err = "opened", server.ElicitURL(ctx, "Look.", "https://example.com/")
		case 's':
			var message *protocol.CreateMessageResult
			if message, err = server.Sample(ctx, sampled()); err == nil {
				text = message.Content.Text()
			}
		case 'r':
			var roots []protocol.Root
			if roots, err = server.Roots(ctx); err == nil {
				text = roots[0].URI
			}
		case 'p':
			var answers protocol.InputResponses
			answers, err = server.Ask(ctx, stepRequests(step, i))
			text = stepText(step, i, answers)
		default:
			text, err = work(ctx, workTime+in.More)
		}
		if text, err = answered(text, err); err != nil {
			return "", err
		}
		said = append(said, text)
	}
	return strings.Join(said, " "), nil
}

// answered is what a tool says of the answer to a question: that there is none is an answer, too.
func answered(text string, err error) (string, error) {
	switch {
	case errors.Is(err, server.ErrDeclined):
		return "declined", nil
	case errors.Is(err, server.ErrDismissed):
		return "dismissed", nil
	default:
		return text, err
	}
}

// followExplicitly does what follow does, by returning InputRequired.
func followExplicitly(ctx context.Context, in script) (string, error) {
	r, steps, said := server.RequestFrom(ctx), in.Steps, []string{}
	if later, err := r.State(&said); err != nil {
		return "", err
	} else if i := len(said); later && len(r.Answers) == len(stepRequests(rune(steps[i]), i)) {
		said = append(said, stepText(rune(steps[i]), i, r.Answers))
	}
	for i := len(said); i < len(steps); i++ {
		if steps[i] != 'w' {
			return "", &server.InputRequired{Requests: stepRequests(rune(steps[i]), i), State: said}
		}
		text, err := work(ctx, workTime+in.More)
		if err != nil {
			return "", err
		}
		said = append(said, text)
	}
	return strings.Join(said, " "), nil
}

func work(ctx context.Context, d time.Duration) (string, error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return "worked", nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func sampled() *protocol.CreateMessageParams {
	return &protocol.CreateMessageParams{MaxTokens: 1, Messages: []protocol.SamplingMessage{{Role: "user", Content: protocol.SamplingContents{&protocol.TextContent{Text: "Well?"}}}}}
}

// stepRequests returns the questions of step i.
func stepRequests(step rune, i int) protocol.InputRequests {
	form := func(field string) *protocol.ElicitParams { return question(field)[field].(*protocol.ElicitParams) }
	key := fmt.Sprint("k", i)
	switch step {
	case 'c':
		return protocol.InputRequests{key: &protocol.ElicitParams{Message: "Sure?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`)}}
	case 'f':
		return protocol.InputRequests{key: form("text")}
	case 'u':
		return protocol.InputRequests{key: &protocol.ElicitParams{Mode: protocol.ElicitURL, Message: "Look.", URL: "https://example.com/"}}
	case 's':
		return protocol.InputRequests{key: sampled()}
	case 'r':
		return protocol.InputRequests{key: &protocol.ListRootsParams{}}
	default:
		first, second := form("text"), form("text")
		first.Message, second.Message = "a", "b"
		return protocol.InputRequests{key + "a": first, key + "b": second}
	}
}

// stepText returns what the answers to step i say.
func stepText(step rune, i int, answers protocol.InputResponses) string {
	key := fmt.Sprint("k", i)
	switch answer := answers[key].(type) {
	case *protocol.CreateMessageResult:
		return answer.Content.Text()
	case *protocol.ListRootsResult:
		return answer.Roots[0].URI
	case *protocol.ElicitResult:
		switch {
		case answer.Action == protocol.ElicitDecline:
			return "declined"
		case answer.Action == protocol.ElicitCancel:
			return "dismissed"
		case step == 'f':
			return formText(answer)
		}
		return map[rune]string{'c': "yes", 'u': "opened"}[step]
	default:
		return formText(answers[key+"a"]) + "+" + formText(answers[key+"b"])
	}
}

func formText(answer protocol.InputResponse) string {
	var filled struct{ Text string }
	if result, ok := answer.(*protocol.ElicitResult); ok {
		_ = json.Unmarshal(result.Content, &filled) // there is none of who has declined
	}
	return filled.Text
}

// stepAnswer returns an answer to a question of a step, and what the handler says of it.
func stepAnswer(step rune, how, text string) (answer, said string) {
	switch {
	case how == "number":
		return `7`, ""
	case how == "misfit" && strings.ContainsRune("fp", step):
		return `{"action":"accept","content":{"text":7}}`, ""
	case how == "misfit" && step == 'r', how == "accept" && step == 's':
		return fmt.Sprintf(`{"role":"assistant","model":"m","content":{"type":"text","text":%q}}`, text), text
	case how == "misfit", step == 'r':
		return fmt.Sprintf(`{"roots":[{"uri":"file:///%s"}]}`, text), "file:///" + text
	case step == 's':
		return stepAnswer(step, "accept", text)
	case how == "decline":
		return `{"action":"decline"}`, map[bool]string{false: "declined"}[step == 'p']
	case how == "cancel":
		return `{"action":"cancel"}`, map[bool]string{false: "dismissed"}[step == 'p']
	case step == 'c':
		return `{"action":"accept","content":{}}`, "yes"
	case step == 'u':
		return `{"action":"accept"}`, "opened"
	default:
		return fmt.Sprintf(`{"action":"accept","content":{"text":%q}}`, text), text
	}
}

// A modelPeer is a client of a server in a bubble. It reads only what has come.
type modelPeer struct {
	link   transport.Link
	frames chan string
	served chan error
}

func (w *modelPeer) Receive(in transport.Inbound)               { w.frames <- string(in.Frame) }
func (*modelPeer) Writable()                                    {}
func (*modelPeer) StreamOpened(transport.Stream, transport.Tag) {}
func (*modelPeer) StreamLost(transport.StreamLoss)              {}
func (*modelPeer) Failed(transport.Failure)                     {}
func (*modelPeer) Ended()                                       {}
func (*modelPeer) Lost(transport.Loss)                          {}

func dialModel(s *scripted, identity string) *modelPeer {
	ours, theirs := inmem.Pipe(inmem.Options{})
	w := &modelPeer{link: ours, frames: make(chan string, 1000), served: make(chan error, 1)}
	go func() {
		w.served <- s.ServeLink(context.Background(), peertest.From(&transport.Origin{Identity: identity}, theirs))
	}()
	ours.Bind(w)
	ours.Grant(transport.Main, cap(w.frames))
	return w
}

func (w *modelPeer) send(frame string) error {
	return w.link.Send(transport.Outbound{Frame: []byte(frame)})
}

// came returns what the server has sent since the last call.
func (w *modelPeer) came() (frames []string) {
	synctest.Wait()
	for len(w.frames) > 0 {
		frames = append(frames, <-w.frames)
	}
	return frames
}

// close cuts the link and waits until the server has noticed.
func (w *modelPeer) close() error {
	w.link.Close(0)
	return <-w.served
}
