package fault_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/fault"
)

// A fan is a link of many streams that a test speaks for. It writes down what
// it is asked to do.
type fan struct {
	asked *told
	to    transport.Receiver
}

func (f *fan) Bind(to transport.Receiver) { f.to = to }

func (f *fan) Send(o transport.Outbound) error {
	f.asked.add("send %s", o.Frame)
	return nil
}

func (f *fan) Grant(s transport.Stream, n int) { f.asked.add("grant %d to %d", n, s) }
func (f *fan) Resume(s transport.Stream)       { f.asked.add("resume %d", s) }
func (f *fan) End(s transport.Stream)          { f.asked.add("end %d", s) }

func (f *fan) Close(time.Duration) error {
	f.to.Lost(transport.Loss{Reason: transport.ErrClosed})
	return nil
}

// streamed is a receiver that writes down what becomes of streams as well.
type streamed struct{ *told }

func (s streamed) Receive(in transport.Inbound) {
	s.add("%s on %d, last %v", in.Frame, in.Stream, in.Last)
}

func (s streamed) StreamOpened(stream transport.Stream, tag transport.Tag) {
	s.add("opened %d for %d", stream, tag)
}

func (s streamed) StreamLost(loss transport.StreamLoss) {
	var injected *fault.InjectedError
	s.add("lost %d, by a fault %v, resumable %v after %v", loss.Stream, errors.As(loss.Reason, &injected), loss.Resumable, loss.Delay)
}

// fanned runs a test on a link of many streams with one fault, in virtual time,
// and wants the receiver, and the wrapped link, to have been told so much.
func fanned(t *testing.T, f fault.Fault, do func(*fan, *fault.Link), got, asked []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		inner := &fan{asked: &told{began: time.Now()}}
		link := fault.Wrap(inner, fault.Plan{Faults: []fault.Fault{f}})
		r := streamed{&told{began: time.Now()}}
		link.Bind(r)
		do(inner, link)
		synctest.Wait()
		want(t, r.told, got...)
		want(t, inner.asked, asked...)
		link.Close(0)
	})
}

// begin has a stream opened, with all the credit it wants.
func (f *fan) begin(link transport.Link, stream transport.Stream, tag transport.Tag) {
	f.to.StreamOpened(stream, tag)
	synctest.Wait()
	link.Grant(stream, 2)
	synctest.Wait()
}

func (f *fan) say(stream transport.Stream, frame string, last bool) {
	f.to.Receive(transport.Inbound{Stream: stream, Frame: []byte(frame), Last: last})
	synctest.Wait()
}

func TestStreamsPass(t *testing.T) {
	fanned(t, fault.Fault{Kind: fault.Drop, Direction: fault.Inbound}, func(f *fan, link *fault.Link) {
		f.begin(link, 1, 7)
		f.begin(link, 2, 8)
		f.say(1, "a", false)
		f.to.StreamLost(transport.StreamLoss{Stream: 1, Reason: transport.ErrPeerClosed, Resumable: true, Delay: time.Second})
		synctest.Wait()
		link.Resume(1)
		synctest.Wait()
		f.say(1, "b", true)
		link.End(2)
		f.say(2, "c", false)
	}, []string{
		"opened 1 for 7", "opened 2 for 8", "a on 1, last false", "lost 1, by a fault false, resumable true after 1s", "b on 1, last true",
	}, []string{"grant 2 to 1", "grant 2 to 2", "resume 1", "end 2"})
}

func TestFailureEndsItsStream(t *testing.T) {
	fanned(t, fault.Fault{Kind: fault.Reorder, Direction: fault.Inbound, At: []int{1}, For: time.Hour}, func(f *fan, link *fault.Link) {
		f.begin(link, 1, 7)
		f.say(1, "a", false)
		f.to.Failed(transport.Failure{Tag: 7})
		synctest.Wait()
		f.say(1, "b", false)
		f.to.Failed(transport.Failure{Tag: 9})
	}, []string{"opened 1 for 7", "a on 1, last false", "failed 7", "failed 9"}, []string{"grant 2 to 1", "grant 1 to 1"}) // so that another frame may overtake
}

func TestFaultsOfStreams(t *testing.T) {
	play := func(f *fan, link *fault.Link) {
		f.begin(link, 1, 7)
		f.begin(link, 2, 8)
		f.say(1, "a", false)
		f.say(1, "b", true)
		f.say(2, "c", true)
	}
	for _, c := range []struct {
		fault      fault.Fault
		got, asked []string // after both streams are open
	}{
		{fault.Fault{Kind: fault.LoseStream, At: []int{1}}, []string{"lost 1, by a fault true, resumable false after 0s", "c on 2, last true"}, []string{"end 1"}},
		{fault.Fault{Kind: fault.LoseStream, At: []int{2}}, []string{"a on 1, last false", "lost 1, by a fault true, resumable false after 0s", "c on 2, last true"}, []string{"end 1"}},
		{fault.Fault{Kind: fault.MuteStream, At: []int{1}}, []string{"c on 2, last true"}, nil},
		{fault.Fault{Kind: fault.CutStream, At: []int{1}, For: time.Second}, []string{"lost 1, by a fault true, resumable true after 1s", "c on 2, last true"}, nil},
		{fault.Fault{Kind: fault.Drop, At: []int{2}}, []string{"a on 1, last false", "lost 1, by a fault false, resumable false after 0s", "c on 2, last true"}, nil},
	} {
		t.Run(fmt.Sprint(c.fault.Kind, c.fault.At), func(t *testing.T) {
			fanned(t, c.fault, play,
				append([]string{"opened 1 for 7", "opened 2 for 8"}, c.got...),
				append([]string{"grant 2 to 1", "grant 2 to 2"}, c.asked...))
		})
	}
}

func TestStreamThatWasCutGoesOnWhenItIsResumed(t *testing.T) {
	for _, stream := range []transport.Stream{transport.Main, 1} {
		var opened, granted []string
		if stream != transport.Main {
			opened = []string{"opened 1 for 7"}
		}
		granted = []string{fmt.Sprintf("grant 2 to %d", stream)}
		fanned(t, fault.Fault{Kind: fault.CutStream, At: []int{1}}, func(f *fan, link *fault.Link) {
			if stream != transport.Main {
				f.begin(link, stream, 7)
			} else {
				link.Grant(stream, 2)
				synctest.Wait()
			}
			f.say(stream, "a", false)
			f.say(stream, "b", false)
			pass(time.Second)
			link.Resume(stream)
		}, append(opened,
			fmt.Sprintf("lost %d, by a fault true, resumable true after 100ms", stream),
			fmt.Sprintf("a on %d, last false at 1s", stream), fmt.Sprintf("b on %d, last false at 1s", stream),
		), granted)
	}
}

// What has come together with the frame that loses its stream is lost too.
func TestNothingIsToldOfAStreamThatWasLost(t *testing.T) {
	fanned(t, fault.Fault{Kind: fault.LoseStream, At: []int{1}}, func(f *fan, link *fault.Link) {
		f.begin(link, 1, 7)
		for _, frame := range []string{"a", "b"} {
			f.to.Receive(transport.Inbound{Stream: 1, Frame: []byte(frame)})
		}
	}, []string{"opened 1 for 7", "lost 1, by a fault true, resumable false after 0s"}, []string{"grant 2 to 1", "end 1"})
}

func TestMainIsNotLost(t *testing.T) {
	fanned(t, fault.Fault{Kind: fault.LoseStream, At: []int{1}}, func(f *fan, link *fault.Link) {
		link.Grant(transport.Main, 1)
		synctest.Wait()
		f.say(transport.Main, "a", false)
	}, []string{"a on 0, last false"}, []string{"grant 1 to 0"})
}

// The end of a stream does not get lost with its last frame.
func TestDroppedAnswerEndsItsStream(t *testing.T) {
	fanned(t, fault.Fault{Kind: fault.Drop, Direction: fault.Outbound, At: []int{1}}, func(f *fan, link *fault.Link) {
		f.begin(link, 1, 0)
		link.Send(transport.Outbound{Stream: 1, Last: true, Frame: []byte("a")})
		synctest.Wait()
		f.say(1, "b", false)
	}, []string{"opened 1 for 0"}, []string{"grant 2 to 1", "end 1"})
}

func TestChanceSparesTheFirstFrames(t *testing.T) {
	both(t, fault.Fault{Kind: fault.Drop, Probability: 1, After: 2}, func(w *wire, send func(...string), seen *told) {
		send("1", "2", "3")
		want(w.t, seen, "1", "2")
	})
}

// decoded is a receiver that keeps what links say of frames beside their bytes.
type decoded struct {
	*told
	messages []*jsonrpc.Message
}

func (d *decoded) Receive(in transport.Inbound) { d.messages = append(d.messages, in.Message) }

// A frame that a fault changes or copies does not travel with the message that
// the link had decoded from the original: the receiver would use that.
func TestChangedFramesAreDecodedAgain(t *testing.T) {
	for kind, want := range map[fault.Kind][]bool{
		fault.Drop: {true}, fault.Corrupt: {false, true}, fault.Truncate: {false, true}, fault.Duplicate: {false, true, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			inner := &fan{asked: &told{began: time.Now()}}
			link := fault.Wrap(inner, fault.Plan{Faults: []fault.Fault{{Kind: kind, Direction: fault.Inbound, At: []int{1}}}})
			r := &decoded{told: &told{began: time.Now()}}
			link.Bind(r)
			link.Grant(transport.Main, 4)
			for range 2 {
				inner.to.Receive(transport.Inbound{Frame: []byte(`{}`), Message: new(jsonrpc.Message)})
				synctest.Wait()
			}
			var got []bool
			for _, m := range r.messages {
				got = append(got, m != nil)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: messages came with frames: %v, want %v", kind, got, want)
			}
			link.Close(0)
		})
	}
}

// routed is a link that keeps the routes of what it is sent.
type routed struct {
	fan
	routes []transport.Route
}

func (r *routed) Send(o transport.Outbound) error {
	r.routes = append(r.routes, o.Route)
	return nil
}

// What a fault adds has a route, too: no link looks into a frame.
func TestAddedFramesHaveRoutes(t *testing.T) {
	call := transport.Route{Kind: jsonrpc.KindRequest, Method: "a"}
	for kind, want := range map[fault.Kind]transport.Route{
		fault.Duplicate: call, fault.Flood: {Kind: jsonrpc.KindNotification, Method: "fault/flood"},
	} {
		synctest.Test(t, func(t *testing.T) {
			inner := &routed{fan: fan{asked: &told{began: time.Now()}}}
			link := fault.Wrap(inner, fault.Plan{Faults: []fault.Fault{{Kind: kind, Direction: fault.Outbound, At: []int{1}, Frames: 1}}})
			link.Bind(&decoded{told: &told{began: time.Now()}})
			if err := link.Send(transport.Outbound{Frame: []byte(`{}`), Route: call}); err != nil {
				t.Fatal(err)
			}
			if got := inner.routes; len(got) != 2 || got[0] != call || got[1] != want {
				t.Errorf("%s: sent with routes %+v, want %+v last", kind, got, want)
			}
			link.Close(0)
		})
	}
}
