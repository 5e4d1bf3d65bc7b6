package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"
)

// A Gateway is what the door shows and does. All its methods may be called at the same time.
type Gateway interface {
	// Report returns what is known now, without waiting for anything. The caller does not change it.
	Report() Report

	// Changed returns a channel that is closed when Report may say something else. The door calls it before Report.
	Changed() <-chan struct{}

	// Do does something to a server. It fails with ErrNoServer, or with an error for people.
	Do(ctx context.Context, server string, action Action) error

	// Reload reads the file again. If that fails, nothing has changed.
	Reload(ctx context.Context) error

	// Stderr returns the last lines of a child's standard error; ok is false if there is no such server.
	Stderr(server string) (log Log, ok bool)
}

// A Log is a bounded list of lines, of which the oldest go first. A [Tail] is one.
type Log interface {
	// Read returns the lines after a number, the number of the last line, and a channel that is closed when there
	// is another line. Lines that have gone are left out.
	Read(after uint64) (lines []string, last uint64, changed <-chan struct{})
}

// An Action is what can be done to a server.
type Action string

// The actions. Stop holds until Start or a change of the file; Wake ends the wait for the next attempt.
const (
	Restart Action = "restart"
	Stop    Action = "stop"
	Start   Action = "start"
	Wake    Action = "wake"
)

// ErrNoServer means that the file has no such server.
var ErrNoServer = errors.New("no such server")

const (
	// MaxViewers is how many streams of events may be open at each entrance.
	MaxViewers = 64

	actTime   = 30 * time.Second // for an action
	writeTime = 5 * time.Second  // for a viewer to read
	maxForm   = 16 << 10         // bytes
)

// A Door shows a gateway and passes actions on to it.
type Door struct {
	gateway Gateway
	closing chan struct{}
	once    sync.Once
}

// New returns a Door to a gateway.
func New(g Gateway) *Door { return &Door{gateway: g, closing: make(chan struct{})} }

// Close ends all streams, so that a http.Server can shut down. Streams that begin later end at once.
func (d *Door) Close() { d.once.Do(func() { close(d.closing) }) }

// Local returns the handler for a socket that only the user can open; see [Listen].
func (d *Door) Local() http.Handler { return d.entrance(guard{local: true}).routes() }

// Web returns the handler for a TCP address.
func (d *Door) Web(w Web) http.Handler { return d.entrance(guard{web: w}).routes() }

// An entrance is a way into a Door. It has its own seats for viewers, so that nobody who comes in by one can keep out
// those who come in by another.
type entrance struct {
	*Door
	guard
	seats chan struct{}
}

func (d *Door) entrance(g guard) *entrance { return &entrance{d, g, make(chan struct{}, MaxViewers)} }

func (e *entrance) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", e.readyz)
	mux.Handle("GET /v1/report", e.reads(e.report))
	mux.Handle("GET /v1/events", e.reads(e.streamReports))
	mux.Handle("GET /v1/stderr/{server}", e.shows(e.streamStderr))
	mux.Handle("POST /v1/servers/{server}/{action}", e.acts(e.act))
	mux.Handle("POST /v1/reload", e.acts(e.reload))
	return e.checked(mux)
}

func (e *entrance) report(w http.ResponseWriter, r *http.Request) {
	answer(w, http.StatusOK, e.seen(r, e.gateway.Report()))
}

// readyz looks at no server unless it is asked for one: else one outage would restart the whole fleet.
func (e *entrance) readyz(w http.ResponseWriter, r *http.Request) {
	report := e.gateway.Report()
	name := r.URL.Query().Get("server")
	server, found := report.Server(name)
	switch {
	case name != "" && !found:
		say(w, http.StatusNotFound, ErrNoServer.Error())
	case name != "" && server.State != Ready:
		say(w, http.StatusServiceUnavailable, string(server.State))
	case !report.Ready:
		say(w, http.StatusServiceUnavailable, "not ready")
	default:
		say(w, http.StatusOK, "ok")
	}
}

func (e *entrance) act(w http.ResponseWriter, r *http.Request) {
	action := Action(r.PathValue("action"))
	switch action {
	case Restart, Stop, Start, Wake:
	default:
		fail(w, r, http.StatusNotFound, errors.New("no such action: there are restart, stop, start and wake"))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), actTime)
	defer cancel()
	done(w, r, e.gateway.Do(ctx, r.PathValue("server"), action))
}

func (e *entrance) reload(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), actTime)
	defer cancel()
	done(w, r, e.gateway.Reload(ctx))
}

// done answers a request that acts: a program with an empty response, and a form with the page.
func done(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, ErrNoServer):
		fail(w, r, http.StatusNotFound, err)
	case err != nil:
		fail(w, r, http.StatusConflict, err)
	case isForm(r):
		http.Redirect(w, r, "/", http.StatusSeeOther)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// fail answers with an error: as JSON, or as text if a person has sent a form.
func fail(w http.ResponseWriter, r *http.Request, status int, err error) {
	if isForm(r) {
		say(w, status, err.Error())
		return
	}
	answer(w, status, struct {
		Error string `json:"error"`
	}{err.Error()})
}

func answer(w http.ResponseWriter, status int, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		say(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(text, '\n'))
}

func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	w.Write([]byte(text + "\n"))
}
