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

// A streamLink is a link of many streams whose messages the test sends. It records the calls
// that it gets.
type streamLink struct {
	asked *recording
	to    transport.Receiver
}

func (f *streamLink) Bind(to transport.Receiver) { f.to = to }

func (f *streamLink) Send(o transport.Outbound) error {
	f.asked.add("send %s", o.Frame)
	return nil
}

func (f *streamLink) Grant(s transport.Stream, n int) { f.asked.add("grant %d to %d", n, s) }
func (f *streamLink) Resume(s transport.Stream)       { f.asked.add("resume %d", s) }
func (f *streamLink) End(s transport.Stream)          { f.asked.add("end %d", s) }

func (f *streamLink) Close(time.Duration) error {
	f.to.Lost(transport.Loss{Reason: transport.ErrClosed})
	return nil
}

// streamRecording is a recording that also records the calls about streams.
type streamRecording struct{ *recording }

func (s streamRecording) Receive(in transport.Inbound) {
	s.add("%s on %d, last %v", in.Frame, in.Stream, in.Last)
}

func (s streamRecording) StreamOpened(stream transport.Stream, tag transport.Tag) {
	s.add("opened %d for %d", stream, tag)
}

func (s streamRecording) StreamLost(loss transport.StreamLoss) {
	var injected *fault.InjectedError
	s.add("lost %d, by a fault %v, resumable %v after %v", loss.Stream, errors.As(loss.Reason, &injected), loss.Resumable, loss.Delay)
}

// withStreamFault runs a test on a link of many streams with one fault, on the clock of a
// bubble, and compares the calls that the receiver and the wrapped link got.
func withStreamFault(t *testing.T, f fault.Fault, do func(*streamLink, *fault.Link), got, asked []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		inner := &streamLink{asked: &recording{began: time.Now()}}
		link := fault.Wrap(inner, fault.Plan{Faults: []fault.Fault{f}})
		r := streamRecording{&recording{began: time.Now()}}
		link.Bind(r)
		do(inner, link)
		synctest.Wait()
		want(t, r.recording, got...)
		want(t, inner.asked, asked...)
		link.Close(0)
	})
}

// begin opens a stream with enough credit.
func (f *streamLink) begin(link transport.Link, stream transport.Stream, tag transport.Tag) {
	f.to.StreamOpened(stream, tag)
	synctest.Wait()
	link.Grant(stream, 2)
	synctest.Wait()
}

func (f *streamLink) say(stream transport.Stream, frame string, last bool) {
	f.to.Receive(transport.Inbound{Stream: stream, Frame: []byte(frame), Last: last})
	synctest.Wait()
}

// Without a fault, streams pass unchanged.
func TestStreamsPass(t *testing.T) {
	withStreamFault(t, fault.Fault{Kind: fault.Drop, Direction: fault.Inbound}, func(f *streamLink, link *fault.Link) {
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

// A failure of a request ends its stream.
func TestFailureEndsItsStream(t *testing.T) {
	withStreamFault(t, fault.Fault{Kind: fault.Reorder, Direction: fault.Inbound, At: []int{1}, For: time.Hour}, func(f *streamLink, link *fault.Link) {
		f.begin(link, 1, 7)
		f.say(1, "a", false)
		f.to.Failed(transport.Failure{Tag: 7})
		synctest.Wait()
		f.say(1, "b", false)
		f.to.Failed(transport.Failure{Tag: 9})
	}, []string{"opened 1 for 7", "a on 1, last false", "failed 7", "failed 9"}, []string{"grant 2 to 1", "grant 1 to 1"}) // another frame may come first
}

// Each fault of streams has its effect on its stream only.
func TestFaultsOfStreams(t *testing.T) {
	play := func(f *streamLink, link *fault.Link) {
		f.begin(link, 1, 7)
		f.begin(link, 2, 8)
		f.say(1, "a", false)
		f.say(1, "b", true)
		f.say(2, "c", true)
	}
	for _, c := range []struct {
		fault      fault.Fault
		got, asked []string // calls after both streams were opened
	}{
		{fault.Fault{Kind: fault.LoseStream, At: []int{1}}, []string{"lost 1, by a fault true, resumable false after 0s", "c on 2, last true"}, []string{"end 1"}},
		{fault.Fault{Kind: fault.LoseStream, At: []int{2}}, []string{"a on 1, last false", "lost 1, by a fault true, resumable false after 0s", "c on 2, last true"}, []string{"end 1"}},
		{fault.Fault{Kind: fault.MuteStream, At: []int{1}}, []string{"c on 2, last true"}, nil},
		{fault.Fault{Kind: fault.CutStream, At: []int{1}, For: time.Second}, []string{"lost 1, by a fault true, resumable true after 1s", "c on 2, last true"}, nil},
		{fault.Fault{Kind: fault.Drop, At: []int{2}}, []string{"a on 1, last false", "lost 1, by a fault false, resumable false after 0s", "c on 2, last true"}, nil},
	} {
		t.Run(fmt.Sprint(c.fault.Kind, c.fault.At), func(t *testing.T) {
			withStreamFault(t, c.fault, play,
				append([]string{"opened 1 for 7", "opened 2 for 8"}, c.got...),
				append([]string{"grant 2 to 1", "grant 2 to 2"}, c.asked...))
		})
	}
}

// A stream that was cut continues when it is resumed.
func TestStreamThatWasCutGoesOnWhenItIsResumed(t *testing.T) {
	for _, stream := range []transport.Stream{transport.Main, 1} {
		var opened, granted []string
		if stream != transport.Main {
			opened = []string{"opened 1 for 7"}
		}
		granted = []string{fmt.Sprintf("grant 2 to %d", stream)}
		withStreamFault(t, fault.Fault{Kind: fault.CutStream, At: []int{1}}, func(f *streamLink, link *fault.Link) {
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

// Frames that came together with the frame at which a stream is lost are lost, too.
func TestFramesOfALostStreamAreDropped(t *testing.T) {
	withStreamFault(t, fault.Fault{Kind: fault.LoseStream, At: []int{1}}, func(f *streamLink, link *fault.Link) {
		f.begin(link, 1, 7)
		for _, frame := range []string{"a", "b"} {
			f.to.Receive(transport.Inbound{Stream: 1, Frame: []byte(frame)})
		}
	}, []string{"opened 1 for 7", "lost 1, by a fault true, resumable false after 0s"}, []string{"grant 2 to 1", "end 1"})
}

func TestMainIsNotLost(t *testing.T) {
	withStreamFault(t, fault.Fault{Kind: fault.LoseStream, At: []int{1}}, func(f *streamLink, link *fault.Link) {
		link.Grant(transport.Main, 1)
		synctest.Wait()
		f.say(transport.Main, "a", false)
	}, []string{"a on 0, last false"}, []string{"grant 1 to 0"})
}

// Held frames of a stream that this side has ended are forgotten: others get credit again.
func TestHeldFramesOfAnEndedStreamAreForgotten(t *testing.T) {
	const most = 256 // that are held
	granted := append([]string{"grant 2 to 1"}, slices.Repeat([]string{"grant 1 to 1"}, most-1)...)
	withStreamFault(t, fault.Fault{Kind: fault.Delay, Direction: fault.Inbound, Probability: 1, Frames: 10 * most, For: time.Hour}, func(f *streamLink, link *fault.Link) {
		f.begin(link, 1, 7)
		for range most {
			f.say(1, "a", false)
		}
		link.End(1)
		f.begin(link, 2, 8)
	}, []string{"opened 1 for 7", "opened 2 for 8"}, append(granted, "end 1", "grant 2 to 2"))
}

// A relievedLink has room again when it is closed.
type relievedLink struct{ streamLink }

func (r *relievedLink) Close(grace time.Duration) error {
	r.to.Writable()
	return r.streamLink.Close(grace)
}

// A link that a fault has ended is not writable any more.
func TestADeadLinkIsNotWritable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &relievedLink{streamLink{asked: &recording{began: time.Now()}}}
		link := fault.Wrap(inner, fault.Plan{Faults: []fault.Fault{{Kind: fault.Die, Direction: fault.Inbound, At: []int{1}}}})
		got := &recording{began: time.Now()}
		link.Bind(got)
		inner.to.Receive(transport.Inbound{Frame: []byte("x")})
		synctest.Wait()
		want(t, got, "lost: fault: link 1, inbound frame 1: die, unsent []")
		link.Close(0)
	})
}

// If the last frame of a stream is dropped, the stream still ends.
func TestDroppedAnswerEndsItsStream(t *testing.T) {
	withStreamFault(t, fault.Fault{Kind: fault.Drop, Direction: fault.Outbound, At: []int{1}}, func(f *streamLink, link *fault.Link) {
		f.begin(link, 1, 0)
		link.Send(transport.Outbound{Stream: 1, Last: true, Frame: []byte("a")})
		synctest.Wait()
		f.say(1, "b", false)
	}, []string{"opened 1 for 0"}, []string{"grant 2 to 1", "end 1"})
}

// Faults by chance leave out the first frames.
func TestChanceSparesTheFirstFrames(t *testing.T) {
	inBothDirections(t, fault.Fault{Kind: fault.Drop, Probability: 1, After: 2}, func(w *wire, send func(...string), seen *recording) {
		send("1", "2", "3")
		want(w.t, seen, "1", "2")
	})
}

// messageRecorder is a receiver that records the decoded messages of frames.
type messageRecorder struct {
	*recording
	messages []*jsonrpc.Message
}

func (d *messageRecorder) Receive(in transport.Inbound) { d.messages = append(d.messages, in.Message) }

// A frame that a fault changes or copies has no decoded message, because the receiver
// would use that instead of the bytes.
func TestChangedFramesAreDecodedAgain(t *testing.T) {
	for kind, want := range map[fault.Kind][]bool{
		fault.Drop: {true}, fault.Corrupt: {false, true}, fault.Truncate: {false, true}, fault.Duplicate: {false, true, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			inner := &streamLink{asked: &recording{began: time.Now()}}
			link := fault.Wrap(inner, fault.Plan{Faults: []fault.Fault{{Kind: kind, Direction: fault.Inbound, At: []int{1}}}})
			r := &messageRecorder{recording: &recording{began: time.Now()}}
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
				t.Errorf("%s: got decoded messages: %v, want %v", kind, got, want)
			}
			link.Close(0)
		})
	}
}

// routeRecorder is a link that records the routes of the frames that it sends.
type routeRecorder struct {
	streamLink
	routes []transport.Route
}

func (r *routeRecorder) Send(o transport.Outbound) error {
	r.routes = append(r.routes, o.Route)
	return nil
}

// Frames that a fault adds have a route, because links do not decode frames.
func TestAddedFramesHaveRoutes(t *testing.T) {
	call := transport.Route{Kind: jsonrpc.KindRequest, Method: "a"}
	for kind, want := range map[fault.Kind]transport.Route{
		fault.Duplicate: call, fault.Flood: {Kind: jsonrpc.KindNotification, Method: "fault/flood"},
	} {
		synctest.Test(t, func(t *testing.T) {
			inner := &routeRecorder{streamLink: streamLink{asked: &recording{began: time.Now()}}}
			link := fault.Wrap(inner, fault.Plan{Faults: []fault.Fault{{Kind: kind, Direction: fault.Outbound, At: []int{1}, Frames: 1}}})
			link.Bind(&messageRecorder{recording: &recording{began: time.Now()}})
			if err := link.Send(transport.Outbound{Frame: []byte(`{}`), Route: call}); err != nil {
				t.Fatal(err)
			}
			if got := inner.routes; len(got) != 2 || got[0] != call || got[1] != want {
				t.Errorf("%s: got the routes %+v, want %+v last", kind, got, want)
			}
			link.Close(0)
		})
	}
}
