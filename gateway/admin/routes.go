package admin

import (
	"cmp"
	"context"
	"errors"
	"net/http"
)

// Local returns the handler for a socket that only the user can open; see [Listen].
func (d *Door) Local() http.Handler { return d.entrance(guard{local: true}).routes() }

// Web returns the handler for a TCP address.
func (d *Door) Web(w Web) http.Handler {
	if w.Token != "" {
		d.codes.at(w.URL)
	}
	return d.entrance(guard{web: w}).routes()
}

// Probes returns the handler for a TCP address that has only /livez, /readyz and /metrics, for everybody who reaches it, and knows no token.
func (d *Door) Probes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", livez)
	mux.HandleFunc("GET /readyz", d.readyz)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { sendMetrics(w, d.gateway.Report().public()) })
	return mux
}

// entrance makes a way in for one listener.
func (d *Door) entrance(g guard) *entrance {
	return &entrance{Door: d, guard: g, seats: make(chan struct{}, MaxViewers), guests: make(chan struct{}, MaxViewers), tries: make(chan struct{}, maxTries)}
}

// routes names everything that can be asked for. A path that is asked for with another method is 405 by the mux, so
// nothing that acts can be reached by a GET.
func (e *entrance) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", livez)
	mux.HandleFunc("GET /readyz", e.readyz)
	mux.Handle("GET /metrics", e.reads(e.metrics))
	mux.Handle("GET /v1/report", e.reads(e.report))
	mux.Handle("GET /v1/events", e.reads(e.streamReports))
	mux.Handle("GET /v1/stderr/{server}", e.shows(e.streamStderr))
	mux.Handle("GET /v1/audit", e.shows(e.listRecords))
	mux.Handle("POST /v1/servers/{server}/{action}", e.acts(e.act))
	mux.Handle("POST /v1/servers/{server}/move", e.acts(e.move))
	mux.Handle("GET /v1/pins", e.shows(e.pins))
	mux.Handle("POST /v1/pins/{server}", e.acts(e.approve))
	mux.Handle("POST /v1/logout/{server}", e.acts(e.logout))
	mux.Handle("POST /v1/reload", e.acts(e.reload))
	if e.guard.local {
		mux.Handle("POST /v1/end", e.acts(e.end))
	}
	mux.Handle("GET /{$}", e.sees(e.showPage))
	mux.Handle("GET /servers/{server}", e.sees(e.showPage))
	mux.Handle("GET /servers/{server}/tools/{tool}", e.gate(e.showTool, false, askForToken))
	mux.Handle("POST /servers/{server}/tools/{tool}", e.acts(e.tryTool))
	mux.Handle("GET /audit", e.gate(e.showRecords, false, askForToken))
	mux.Handle("GET /audit/events", e.shows(e.streamRecords))
	mux.Handle("GET /page/events", e.reads(e.streamPage))
	mux.HandleFunc("GET /page.css", asset("text/css", pageCSS))
	mux.HandleFunc("GET /page.js", asset("text/javascript", pageJS))
	mux.HandleFunc("GET /page.svg", asset("image/svg+xml", pageIcon))
	mux.HandleFunc("POST /login", e.login)
	mux.HandleFunc("GET "+loginPath+"{code}", e.useCode)
	mux.Handle("POST /v1/code", e.acts(e.newCode))
	return e.checked(mux)
}

// report shows the state to programs.
func (e *entrance) report(w http.ResponseWriter, r *http.Request) {
	answer(w, http.StatusOK, e.seen(r, e.look(r.Context(), true)))
}

// metrics shows the state to Prometheus.
func (e *entrance) metrics(w http.ResponseWriter, r *http.Request) {
	sendMetrics(w, e.seen(r, e.gateway.Report()))
}

func sendMetrics(w http.ResponseWriter, of Report) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	w.Write([]byte(metricsOf(of)))
}

func livez(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "ok") }

// readyz looks at no server unless it is asked for one: else one outage would restart the whole fleet.
func (d *Door) readyz(w http.ResponseWriter, r *http.Request) {
	report := d.gateway.Report()
	name := r.URL.Query().Get("server")
	server, found := report.Server(name)
	switch {
	case name != "" && !found:
		say(w, http.StatusNotFound, ErrNoServer.Error())
	case name != "" && server.State != Ready && !server.OnDemand:
		say(w, http.StatusServiceUnavailable, string(server.State))
	case !report.Ready:
		say(w, http.StatusServiceUnavailable, "not ready")
	default:
		say(w, http.StatusOK, "ok")
	}
}

// act waits for the action, so that its answer says how it has ended, but not for longer than a person would.
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

// move has the node of the cluster that is named as node run a server. It may be another node than the one whose door this is.
func (e *entrance) move(w http.ResponseWriter, r *http.Request) {
	of, is := e.gateway.(Clustered)
	if !is {
		fail(w, r, http.StatusNotFound, errors.New("this gateway is no node of a cluster: there is nowhere to move a server to"))
		return
	}
	if err := r.ParseForm(); err != nil || len(r.Form["node"]) != 1 {
		fail(w, r, http.StatusBadRequest, cmp.Or(err, errors.New("name one node")))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), moveTime)
	defer cancel()
	done(w, r, of.Move(ctx, r.PathValue("server"), r.Form.Get("node")))
}

// pins shows which tools have changed, and how.
func (e *entrance) pins(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, e.gateway.Pins())
}

// approve approves the tools that are named as tool, or all that have changed. A form names one.
func (e *entrance) approve(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		fail(w, r, http.StatusBadRequest, err)
		return
	}
	done(w, r, e.gateway.Approve(r.Context(), r.PathValue("server"), r.Form["tool"]...))
}

// logout ends the login of the user that is named as user. Who has no login at the gateway has the name "", so it must be there.
func (e *entrance) logout(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil || len(r.Form["user"]) != 1 {
		fail(w, r, http.StatusBadRequest, cmp.Or(err, errors.New("name one user")))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), actTime)
	defer cancel()
	done(w, r, e.gateway.Logout(ctx, r.PathValue("server"), r.Form.Get("user")))
}

// reload answers when the file was applied or refused, and does not wait until servers have started.
func (e *entrance) reload(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), actTime)
	defer cancel()
	done(w, r, e.gateway.Reload(ctx))
}

// end answers before the gateway ends, which waits for those who are being answered.
func (e *entrance) end(w http.ResponseWriter, r *http.Request) {
	e.gateway.End()
	done(w, r, nil)
}
