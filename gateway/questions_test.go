package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/protocol"
)

// asker is a server with tools that ask: the user twice, for a page to be opened, the model, and for the roots.
func asker() (s *server.Server, runs func() int) {
	var mu sync.Mutex
	n := 0
	s = server.New(protocol.Implementation{Name: "asker", Version: "1"}, server.Options{})
	add := func(name string, ask func(context.Context) (string, error)) {
		server.AddTool(s, protocol.Tool{Name: name}, func(ctx context.Context, _ struct{}) (string, error) {
			mu.Lock()
			n++
			mu.Unlock()
			return ask(ctx)
		}, server.Asks(server.Waits, protocol.ClientCapabilities{}))
	}
	type form struct {
		Text string `json:"text"`
	}
	add("form", func(ctx context.Context) (string, error) {
		first, err := server.Elicit[form](ctx, "first")
		if err != nil {
			return "", err
		}
		second, err := server.Elicit[form](ctx, "second")
		return first.Text + " " + second.Text, err
	})
	add("sample", askForSample)
	add("roots", askForRoots)
	return s, func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

// askForSample is a tool that asks for a sample, and returns its text.
func askForSample(ctx context.Context) (string, error) {
	result, err := server.Sample(ctx, &protocol.CreateMessageParams{MaxTokens: 9, Messages: []protocol.SamplingMessage{
		{Role: protocol.RoleUser, Content: protocol.SamplingContents{protocol.Text("hi")}},
	}})
	if err != nil {
		return "", err
	}
	return result.Content.Text(), nil
}

// askForRoots is a tool that asks for the roots, and returns the only one.
func askForRoots(ctx context.Context) (string, error) {
	roots, err := server.Roots(ctx)
	if err != nil || len(roots) != 1 {
		return "", err
	}
	return roots[0].URI, nil
}

// user answers the questions of servers: to each what it is called.
func user(called string) client.Options {
	return client.Options{
		Elicit: func(_ context.Context, _ *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			return client.Accept(map[string]string{"text": called + ":" + p.Message})
		},
		Sample: func(context.Context, *client.Session, *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
			return &protocol.CreateMessageResult{Role: protocol.RoleAssistant, Model: "m", Content: protocol.SamplingContents{protocol.Text(called)}}, nil
		},
		Roots: func(context.Context, *client.Session) ([]protocol.Root, error) {
			return []protocol.Root{{URI: "file:///" + called}}, nil
		},
	}
}

// questionEras are pairs of revisions in which a server can ask.
func questionEras(t *testing.T, test func(t *testing.T, front, back string)) {
	for _, front := range []string{protocol.Version20250618, protocol.LatestLegacy, protocol.Latest} {
		for _, back := range []string{protocol.Version20250618, protocol.LatestLegacy, protocol.Latest} {
			t.Run(front+" to "+back, func(t *testing.T) { test(t, front, back) })
		}
	}
}

// In each pair of eras the client of a call answers what the server asks, and the server runs the call once.
//
// Guarantees: G-0088.5
func TestQuestionsInEachPairOfEras(t *testing.T) {
	questionEras(t, func(t *testing.T, front, back string) {
		s, runs := asker()
		session := newFleet(t, back, map[string]*server.Server{"a": s}).client(front, user("me"))
		for tool, want := range map[string]string{"form": "me:first me:second", "sample": "me", "roots": "file:///me"} {
			before := runs()
			got, err := client.Call[string](timeout(t), session, "a__"+tool, nil)
			if err != nil || got != want || runs() != before+1 {
				t.Errorf("%s: %q, %v, and the tool ran %d times; want %q", tool, got, err, runs()-before, want)
			}
		}
	})
}

// Progress of the answer reaches the server that has asked for it, if its question can have any; see the revisions of G-0031.20. The client is asked for progress by the token of
// the gateway, and never by that of the server.
//
// Guarantees: G-0031.20, G-0088.6
func TestProgressOfAQuestionThroughAGateway(t *testing.T) {
	questionEras(t, func(t *testing.T, front, back string) {
		var told []float64
		s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
		server.AddTool(s, protocol.Tool{Name: "plain"}, func(ctx context.Context, _ struct{}) (string, error) { return askForSample(ctx) },
			server.Asks(server.Waits, protocol.ClientCapabilities{}))
		server.AddTool(s, protocol.Tool{Name: "progress"}, func(ctx context.Context, _ struct{}) (string, error) {
			return askForSample(server.OnProgress(ctx, func(p *protocol.ProgressParams) { told = append(told, p.Progress) }))
		}, server.Asks(server.Waits, protocol.ClientCapabilities{}))
		o := user("me")
		sample := o.Sample
		var wanted []bool
		o.Sample = func(ctx context.Context, s *client.Session, p *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
			_, wants := p.Meta[protocol.MetaProgressToken]
			wanted = append(wanted, wants)
			client.Progress(ctx, 1, 2, "")
			client.Progress(ctx, 2, 2, "")
			return sample(ctx, s, p)
		}
		session := newFleet(t, back, map[string]*server.Server{"a": s}).client(front, o)
		for _, tool := range []string{"plain", "progress"} {
			if got, err := client.Call[string](timeout(t), session, "a__"+tool, nil); err != nil || got != "me" {
				t.Fatalf("%s: got %q, %v, want me", tool, got, err)
			}
		}
		passes := front != protocol.Latest && back != protocol.Latest
		if (len(told) > 0 && told[len(told)-1] == 2) != passes || len(wanted) != 2 || wanted[0] || wanted[1] != passes {
			t.Errorf("the server was told %v, and the client asked for progress %v; progress passes here: %t", told, wanted, passes)
		}
	})
}

// A server that keeps its roots, as those of files do, has the roots of the only client, and those of the file while there are several clients or none. It is
// told whenever that changes.
//
// Guarantees: G-0088.21
func TestRootsOfASharedServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		kept := ""
		keep := func(_ context.Context, s *server.Session) {
			go func() { // a server may not wait for its client while it reads
				roots, err := s.Roots(t.Context())
				if err != nil || len(roots) != 1 {
					t.Errorf("%v, %v", roots, err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				kept = roots[0].URI
			}()
		}
		s := server.New(protocol.Implementation{Name: "files", Version: "1"}, server.Options{OnRootsChanged: keep})
		server.AddTool(s, protocol.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) { return askForRoots(ctx) }, server.Asks(server.Waits, protocol.ClientCapabilities{}))
		f := newFleetWith(t, protocol.LatestLegacy, map[string]*server.Server{"a": s}, gateway.Options{Roots: []protocol.Root{{URI: "file:///file"}}})
		synctest.Wait()
		for session := range s.Sessions() {
			keep(t.Context(), session) // as a server does when its session begins
		}
		has := func(want string) {
			t.Helper()
			<-time.NewTimer(2 * time.Second).C
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if kept != want {
				t.Errorf("the server has %s, want %s", kept, want)
			}
		}
		has("file:///file")
		ada := f.client(protocol.LatestLegacy, user("ada"))
		has("file:///ada")
		called := "bob"
		o := user(called)
		o.Roots = func(context.Context, *client.Session) ([]protocol.Root, error) {
			return []protocol.Root{{URI: "file:///" + called}}, nil
		}
		bob := f.client(protocol.LatestLegacy, o)
		has("file:///file")
		if got, err := client.Call[string](t.Context(), ada, "a__ask", nil); err != nil || got != "file:///file" {
			t.Errorf("in a call of one of two clients: %q, %v", got, err)
		}
		ada.Close(context.Background())
		has("file:///bob")
		eve := f.client(protocol.LatestLegacy, client.Options{}) // she has none
		has("file:///file")
		eve.Close(context.Background())
		has("file:///bob")
		if got, err := client.Call[string](t.Context(), bob, "a__ask", nil); err != nil || got != "file:///bob" {
			t.Errorf("in a call of the only client: %q, %v", got, err)
		}
		called = "robert"
		if err := bob.Notify(t.Context(), protocol.NotificationRootsListChanged, nil); err != nil {
			t.Error(err)
		}
		has("file:///robert")
		bob.Close(context.Background())
		has("file:///file")
	})
}

// A client that has not said that it can be asked is not asked, and the call ends.
//
// Guarantees: G-0088.5, G-0091.23
func TestQuestionsNobodyCanAnswer(t *testing.T) {
	questionEras(t, func(t *testing.T, front, back string) {
		s, _ := asker()
		f := newFleet(t, back, map[string]*server.Server{"a": s})
		accept := func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			return &protocol.ElicitResult{Action: protocol.ElicitAccept}, nil
		}
		for i, o := range []client.Options{{}, {Elicit: accept}} { // who can be asked nothing, or something else
			session := f.client(front, o)
			result, err := session.CallTool(timeout(t), &protocol.CallToolParams{Name: "a__sample"})
			if err == nil && !result.IsError {
				t.Errorf("got %s", result.Content.Text())
			}
			if refused := f.Report().Refused; !protocol.IsModern(back) && !maps.Equal(refused, map[string]int64{admin.RefusedUnable: int64(i) + 1}) {
				t.Errorf("the report counts %v, want %d", refused, i+1)
			}
		}
	})
}

// A legacy server whose question is refused is told so as an invalid request.
//
// Guarantees: G-0088.5
func TestTheErrorOfARefusedQuestion(t *testing.T) {
	for _, front := range []string{protocol.LatestLegacy, protocol.Latest} {
		s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
		told := make(chan error, 1)
		server.AddTool(s, protocol.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
			text, err := askForSample(ctx)
			told <- err
			return text, err
		}, server.Asks(server.Waits, protocol.ClientCapabilities{}))
		session := newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s}).client(front, client.Options{})
		if result, err := session.CallTool(timeout(t), &protocol.CallToolParams{Name: "a__ask"}); err != nil || !result.IsError {
			t.Fatalf("%s: got %v, %v", front, result, err)
		}
		if err, want := <-told, "the client of this call cannot be asked (-32600)"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the server was told %v, want %q", front, err, want)
		}
	}
}

// While several clients have calls in flight on a connection that does not tell them apart, nobody is asked.
//
// Guarantees: G-0088.5, G-0091.23
func TestQuestionsGoToNobodyIfTheyMayBeAnothers(t *testing.T) {
	for _, front := range []string{protocol.LatestLegacy, protocol.Latest} {
		held, asks := make(chan struct{}), make(chan struct{})
		s, _ := asker()
		server.AddTool(s, protocol.Tool{Name: "hold"}, func(ctx context.Context, _ struct{}) (string, error) {
			close(held)
			select {
			case <-asks:
			case <-ctx.Done():
			}
			return "", nil
		})
		f := newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s})
		one, other := f.client(front, user("one")), f.client(front, user("other"))
		var holding sync.WaitGroup
		holding.Go(func() {
			if _, err := client.Call[string](timeout(t), other, "a__hold", nil); err != nil {
				t.Error(err)
			}
		})
		<-held
		for _, tool := range []string{"sample", "form"} {
			result, err := one.CallTool(timeout(t), &protocol.CallToolParams{Name: "a__" + tool})
			if err == nil && (!result.IsError || strings.Contains(result.Content.Text(), "one:") || strings.Contains(result.Content.Text(), "other:")) {
				t.Errorf("%s: somebody has answered: %s", tool, result.Content.Text())
			}
		}
		if refused := f.Report().Refused; !maps.Equal(refused, map[string]int64{admin.RefusedSeveral: 2}) {
			t.Errorf("the report counts %v as refused", refused)
		}
		close(asks)
		holding.Wait()
		if got, err := client.Call[string](timeout(t), one, "a__sample", nil); err != nil || got != "one" {
			t.Errorf("alone: %q, %v", got, err)
		}
	}
}

// On pipes nothing says which call of a client a question belongs to. It is asked in one of them, and that one may end first.
//
// Guarantees: G-0088.5
func TestAQuestionOutlivesOtherCallsOfItsClient(t *testing.T) {
	for _, front := range []string{protocol.LatestLegacy, protocol.Latest} {
		const others = 8
		began, over := make(chan struct{}, others), make(chan struct{})
		s, runs := asker()
		server.AddTool(s, protocol.Tool{Name: "hold"}, func(context.Context, struct{}) (string, error) {
			began <- struct{}{}
			<-over
			return "held", nil
		})
		f := newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s})
		f.identity = "ada"
		o, asked, answer := user("me"), make(chan struct{}, 2*others), make(chan struct{})
		sample := o.Sample
		o.Sample = func(ctx context.Context, s *client.Session, p *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
			asked <- struct{}{}
			select {
			case <-answer:
				return sample(ctx, s, p)
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		session := f.client(front, o)
		var calls, asking sync.WaitGroup
		for range others {
			calls.Go(func() {
				if got, err := client.Call[string](timeout(t), session, "a__hold", nil); err != nil || got != "held" {
					t.Errorf("%s: another call: %q, %v", front, got, err)
				}
			})
			<-began
		}
		asking.Go(func() {
			if got, err := client.Call[string](timeout(t), session, "a__sample", nil); err != nil || got != "me" || runs() != 1 {
				t.Errorf("%s: %q, %v after %d runs", front, got, err, runs())
			}
		})
		<-asked
		close(over)
		if front != protocol.Latest { // there, the call that was asked in has its result only when its client has answered
			calls.Wait()
		}
		close(answer)
		asking.Wait()
		calls.Wait()
	}
}

// Calls of one client that ask at the same time do not wait for each other, although nothing says on pipes which question is of which call.
//
// Guarantees: G-0088.5
func TestQuestionsOfSeveralCallsDoNotWait(t *testing.T) {
	for _, front := range []string{protocol.LatestLegacy, protocol.Latest} {
		synctest.Test(t, func(t *testing.T) {
			const many = 8
			s, _ := asker()
			f := newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s})
			f.identity = "ada"
			o, asked, answer := user("me"), 0, make(chan struct{})
			sample := o.Sample
			var mu sync.Mutex
			o.Sample = func(ctx context.Context, s *client.Session, p *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
				mu.Lock()
				asked++
				mu.Unlock()
				<-answer
				return sample(ctx, s, p)
			}
			session := f.client(front, o)
			var calls sync.WaitGroup
			for range many {
				calls.Go(func() {
					if got, err := client.Call[string](context.WithoutCancel(t.Context()), session, "a__sample", nil); err != nil || got != "me" {
						t.Errorf("%s: %q, %v", front, got, err)
					}
				})
			}
			synctest.Wait()
			mu.Lock()
			if asked != many {
				t.Errorf("%s: %d of %d calls have asked", front, asked, many)
			}
			mu.Unlock()
			close(answer)
			calls.Wait()
		})
	}
}

// A modern client without a login that does not come back keeps nobody from being asked for long: once it has had its time, the first question that it is in the way of
// ends its own, and so its call. It is left in peace while nobody else needs to be asked, or nobody could be asked without it. If it comes back, it has the outcome of its call.
//
// Guarantees: G-0088.5
func TestAClientThatHasLeftIsInTheWayForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, runs := asker()
		over, held := make(chan struct{}), make(chan error)
		server.AddTool(s, protocol.Tool{Name: "hold"}, func(context.Context, struct{}) (string, error) { <-over; return "", nil })
		f := newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s})
		synctest.Wait()
		back := make(chan struct{})
		o := user("gone")
		o.Elicit = func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			<-back
			return client.Accept(map[string]string{"text": "late"})
		}
		gone, one := f.client(protocol.Latest, o), f.client(protocol.Latest, user("one"))
		outcome := make(chan string)
		go func() {
			result, err := gone.CallTool(context.WithoutCancel(t.Context()), &protocol.CallToolParams{Name: "a__form"})
			if err != nil {
				outcome <- err.Error()
				return
			}
			outcome <- result.Content.Text()
		}()
		synctest.Wait()
		sample := func(when, want string) {
			t.Helper()
			got, err := client.Call[string](context.WithoutCancel(t.Context()), one, "a__sample", nil)
			if synctest.Wait(); got != want || (err == nil) != (want != "") {
				t.Errorf("%s: %q, %v; want %q", when, got, err, want)
			}
		}
		sample("at once", "")
		<-time.NewTimer(59 * time.Second).C
		sample("before its time is over", "")
		<-time.NewTimer(2 * time.Second).C
		if len(f.Report().Questions) != 1 {
			t.Error("nobody needs to be asked, and the client has no question any more")
		}
		other := f.client(protocol.Latest, user("other"))
		go func() {
			_, err := client.Call[string](context.WithoutCancel(t.Context()), other, "a__hold", nil)
			held <- err
		}()
		synctest.Wait()
		sample("while another one is in the way, too", "")
		if len(f.Report().Questions) != 1 {
			t.Error("the client has no question any more, although nobody could be asked without it")
		}
		close(over)
		if err := <-held; err != nil {
			t.Error(err)
		}
		sample("it may be of the same call", "")
		sample("after that", "one")
		close(back)
		if text := <-outcome; !strings.Contains(text, "has not answered for 1m0s") || runs() != 6 {
			t.Errorf("the client that came back has %q; %d calls ran", text, runs())
		}
	})
}

// The user of a parked call who does not come back ends it at the server.
//
// Guarantees: G-0088.5, G-0088.6
func TestCancelledCallEndsAtTheServer(t *testing.T) {
	eras(t, func(t *testing.T, front, back string) {
		began, ended := make(chan struct{}), make(chan struct{})
		s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
		server.AddTool(s, protocol.Tool{Name: "hold"}, func(ctx context.Context, _ struct{}) (string, error) {
			close(began)
			<-ctx.Done()
			close(ended)
			return "", nil
		})
		session := newFleet(t, back, map[string]*server.Server{"a": s}).client(front, client.Options{})
		ctx, cancel := context.WithCancel(timeout(t))
		defer cancel()
		go func() {
			<-began
			cancel()
		}()
		if _, err := client.Call[string](ctx, session, "a__hold", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		select {
		case <-ended:
		case <-timeout(t).Done():
			t.Error("the server still runs the call")
		}
	})
}

// A modern server asks only what the client of the call can answer, and gets answers that a client sends with its first request.
//
// Guarantees: G-0088.5
func TestModernServersKnowTheClient(t *testing.T) {
	s := server.New(protocol.Implementation{Name: "a", Version: "1"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "caps"}, func(ctx context.Context, _ struct{}) (string, error) {
		now := server.RequestFrom(ctx)
		if answer, ok := now.Answers["early"].(*protocol.ListRootsResult); ok {
			return answer.Roots[0].URI, nil
		}
		can := now.Client.Capabilities
		return fmt.Sprintf("form %v, sampling %v, roots %v", can.Elicitation.CanForm(), can.Sampling != nil, can.Roots != nil), nil
	})
	f := newFleet(t, protocol.Latest, map[string]*server.Server{"a": s})
	for want, o := range map[string]client.Options{
		"form true, sampling true, roots true":    user("me"),
		"form false, sampling false, roots true":  {Roots: user("me").Roots},
		"form false, sampling false, roots false": {},
	} {
		if got, err := client.Call[string](timeout(t), f.client(protocol.Latest, o), "a__caps", nil); err != nil || got != want {
			t.Errorf("the server sees %q, %v; want %q", got, err, want)
		}
	}
	session := f.client(protocol.Latest, user("me"))
	early := protocol.InputParams{InputResponses: protocol.InputResponses{"early": &protocol.ListRootsResult{Roots: []protocol.Root{{URI: "file:///early"}}}}}
	result, err := session.CallTool(timeout(t), &protocol.CallToolParams{Name: "a__caps", InputParams: early})
	if err != nil || result.Content.Text() != "file:///early" {
		t.Errorf("got %v, %v", result, err)
	}
}

// A question that its server takes back is taken back from the client, although the call goes on.
//
// Guarantees: G-0088.5
func TestAQuestionThatIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := named("a")
		server.AddTool(s, protocol.Tool{Name: "hasty"}, func(ctx context.Context, _ struct{}) (string, error) {
			hasty, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			err := server.Confirm(hasty, "now?")
			pass(time.Minute)
			return fmt.Sprint(err != nil), nil
		}, server.Asks(server.Waits, protocol.ClientCapabilities{}))
		f := newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s})
		o, began, after := user("me"), time.Time{}, make(chan time.Duration, 1)
		o.Elicit = func(ctx context.Context, _ *client.Session, _ *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			<-ctx.Done()
			after <- time.Since(began)
			return nil, context.Cause(ctx)
		}
		o.Calls.Timeout = -1
		session := f.client(protocol.LatestLegacy, o)
		synctest.Wait()
		began = time.Now()
		if got, err := client.Call[string](t.Context(), session, "a__hasty", nil); got != "true" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if took := <-after; took != time.Second {
			t.Errorf("the user was asked for %v", took)
		}
	})
}
