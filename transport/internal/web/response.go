package web

import (
	"net/http"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
)

// These are the media types of MCP over HTTP.
const (
	TypeJSON   = "application/json"
	TypeEvents = "text/event-stream"
)

const (
	// MaxInitialize is the maximum size of an initialize request, in bytes. It is small
	// because a session keeps what its client says about itself there.
	MaxInitialize = 64 << 10

	// WriteSize is how many bytes of queued frames one write sends. A longer frame takes
	// several writes.
	WriteSize = 64 << 10

	// WritePatience is the maximum time for one write.
	WritePatience = 30 * time.Second

	// A body may take BodyPatience, and a second more for each PieceSize bytes that have
	// arrived.
	BodyPatience = 30 * time.Second
	PieceSize    = 64 << 10

	// SmallBody is the size up to which a body never waits for larger ones.
	SmallBody = 64 << 10

	// Comment keeps a quiet event stream open.
	Comment = ":\n\n"
)

// CannotFlush is the text for a mistake in the program: middleware hides http.Flusher.
const CannotFlush = "the ResponseWriter cannot flush, which a stream of events requires"

// CanFlush reports whether events can reach the client before the response is complete.
func CanFlush(w http.ResponseWriter) bool {
	return can[http.Flusher](w) || can[interface{ FlushError() error }](w)
}

// CanHijack reports whether a handler can take over the connection of a response.
func CanHijack(w http.ResponseWriter) bool { return can[http.Hijacker](w) }

// can reports whether a ResponseWriter is a T. Like http.ResponseController, it unwraps the writer.
func can[T any](w http.ResponseWriter) bool {
	for {
		if _, is := w.(T); is {
			return true
		}
		wrapper, wraps := w.(interface{ Unwrap() http.ResponseWriter })
		if !wraps {
			return false
		}
		w = wrapper.Unwrap()
	}
}

// SetEventHeaders sets the headers of an event stream. The values are stored in memory
// of the caller, and belong to the header from then on.
func SetEventHeaders(header http.Header, values *[3]string) {
	*values = [3]string{TypeEvents, "no-cache", "no"}
	header["Content-Type"] = values[0:1:1]
	header["Cache-Control"] = values[1:2:2]
	header["X-Accel-Buffering"] = values[2:3:3]
}

// CheckBody returns what is wrong with the type or the encoding of a POSTed body, for a
// response with status 415, or "" if nothing is.
func CheckBody(header http.Header) (problem string) {
	switch encoding := header.Get("Content-Encoding"); {
	case MediaType(header) != TypeJSON:
		return "Content-Type must be " + TypeJSON
	case encoding != "" && !strings.EqualFold(encoding, "identity"):
		return "Content-Encoding is not supported"
	default:
		return ""
	}
}

// ForcedWait is how long HTTP requests may take to end after they were interrupted,
// before Close reports them as left behind.
const ForcedWait = 5 * time.Second

// EndWithin waits until done is closed. After 70 % of the grace it calls force, which
// interrupts what still runs. It returns false if even that did not help.
func EndWithin(done <-chan struct{}, grace time.Duration, force func()) bool {
	if wait.IsClosed(done) || grace > 0 && wait.Within(done, grace/10*7) {
		return true
	}
	force()
	return wait.Within(done, ForcedWait)
}
