package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/auth/authfile"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/ask"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/connect"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/consent"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/doors"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/member"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/internal/suggest"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/mcpjson/sessions"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/spf13/cobra"
)

// An upping is what up was told.
type upping struct {
	path      string
	address   string // of the endpoint
	catalogue string // "": what servers offer is not kept
	insecure  bool   // the address may be reached by other machines
	check     bool   // nothing is started
	page      string // the address of the page, or doors.Off
	probes    string // the address of probes and metrics alone; "": they are at the page only
	noTry     bool   // the page calls no tools
	socket    string // its path; "": it is named by the file
	strict    bool   // a mistake in the entry of a server is one of the file
	watches   bool   // the file is read again when it changes
	level     slog.Level
	watched   watch
	end       func() // ends the gateway
	access    access
	joining   joining
	audit     trailing

	stdio      bool          // this process stands between a host and the gateway
	background bool          // this process is a gateway that another one has started for hosts
	linger     time.Duration // how long such a gateway outlives its last host

	reloading sync.Mutex // a reload reads the file and applies it, and no other comes between
	inputs    inputs
}

// run checks the whole file, and the address, before anything is started.
func (u *upping) run(cmd *cobra.Command, engines member.Engines, trails Trails) error {
	u.watched = watchOf(u.path)
	file, err := u.load(cmd, func() (*mcpjson.File, error) { return mcpjson.Load(u.path) })
	if err != nil {
		return process.Refuse("%w", err)
	}
	if err := u.take(cmd, file); err != nil {
		return process.Refuse("%w", err)
	}
	u.warnOfSecrets(cmd, file)
	if u.check {
		u.joining.node = new(member.Node) // of no cluster
		g := gateway.New(u.options(cmd))
		defer g.Close(context.WithoutCancel(cmd.Context()))
		return u.report(cmd, g, file)
	}
	return u.serveFile(cmd, engines, trails, file)
}

// serveFile joins the cluster, opens the audit trail, and has a gateway serve until the command ends.
func (u *upping) serveFile(cmd *cobra.Command, engines member.Engines, trails Trails, file *mcpjson.File) error {
	leave, err := u.join(cmd, engines)
	if err != nil {
		return unlessEnded(cmd, err)
	}
	say := sayTo(cmd)
	if err := u.audit.open(cmd.Context(), u.joining.node.Name(), trails, say); err != nil {
		return errors.Join(err, leave())
	}
	defer u.audit.close(say)
	o := u.options(cmd)
	u.joining.share(&o, &u.access.options)
	g := gateway.New(o)
	err = u.untilEnd(cmd, func() error { return u.start(cmd, g, file) })
	g.Close(context.WithoutCancel(cmd.Context())) // once more does no harm
	return errors.Join(err, leave())
}

// join joins the cluster that the flags name, with what checks the tokens of clients.
func (u *upping) join(cmd *cobra.Command, with member.Engines) (leave func() error, err error) {
	u.joining.flags.Level = u.level
	if leave, err = u.joining.join(cmd, with); err != nil {
		return nil, err
	}
	if err = u.access.join(u.joining.node); err != nil {
		return nil, errors.Join(err, leave())
	}
	return leave, nil
}

// sayTo returns what tells the person at the terminal, or the log.
func sayTo(cmd *cobra.Command) func(string) {
	return func(text string) { cmd.PrintErrln(render.Message(text)) }
}

// untilEnd does something whose context ends with the command, or when the gateway is told to end, which is no interrupted command.
func (u *upping) untilEnd(cmd *cobra.Command, do func() error) error {
	whole := cmd.Context()
	ctx, end := context.WithCancel(whole)
	defer end()
	u.end = end
	cmd.SetContext(ctx)
	defer cmd.SetContext(whole)
	return do()
}

// start opens everything before the first server is started, so that a gateway that cannot be reached starts none, and ends none in the background
// that hosts use. Another gateway of the file in the background makes this one superfluous.
func (u *upping) start(cmd *cobra.Command, g *gateway.Gateway, file *mcpjson.File) error {
	listener, err := u.listen()
	if err != nil {
		return errors.Join(err, doors.Attended(cmd.Context(), u.path, u.socket)) // which may have the port
	}
	hosts, err := u.listenForHosts(cmd)
	if err != nil || hosts == nil && u.background {
		return errors.Join(err, closeIfOpen(listener))
	}
	if hosts != nil {
		defer hosts.Close()
	}
	opened, err := u.openDoors(cmd, g, listener)
	if err != nil {
		return errors.Join(err, closeIfOpen(listener))
	}
	defer opened.Close()
	err = u.markInside()
	if err == nil {
		err = u.apply(cmd, g, file)
	}
	if err != nil {
		return process.Refuse("%w", errors.Join(err, closeIfOpen(listener)))
	}
	return u.serve(cmd, g, listener, hosts)
}

// listen listens for clients over HTTP. A gateway in the background has none: it must not open a port that nobody has asked for.
func (u *upping) listen() (net.Listener, error) {
	if u.background {
		return nil, nil
	}
	listener, err := u.access.listen(u.address, u.insecure)
	if err == nil {
		u.address = listener.Addr().String() // with the port that was free
	}
	return listener, err
}

func closeIfOpen(listener net.Listener) error {
	if listener == nil {
		return nil
	}
	return listener.Close()
}

// openDoors opens the ways to look at the gateway and to act on it. What they say goes where the log goes.
func (u *upping) openDoors(cmd *cobra.Command, g *gateway.Gateway, listener net.Listener) (*doors.Doors, error) {
	endpoint := "" // only hosts reach it
	if listener != nil {
		endpoint = u.access.urlOf(listener)
	}
	file, err := filepath.Abs(u.path)
	if err != nil {
		return nil, err
	}
	shown := u.joining.shown(&operated{g, endpoint, file, func() error { return u.reload(cmd, g) }, u.end, &u.audit, &u.access})
	return doors.Open(shown, doors.Options{
		File: u.path, Socket: u.socket, Page: u.page, Probes: u.probes, NoTry: u.noTry, Insecure: u.insecure,
		Say: sayTo(cmd), Audit: u.audit.write(),
	})
}

// warnOfSecrets says once if a file has secrets in clear text and other users of this machine may open it. Whoever shares it with a group on purpose goes on: it is no
// mistake. On Windows a mode says nothing of other users.
func (u *upping) warnOfSecrets(cmd *cobra.Command, file *mcpjson.File) {
	info, err := os.Stat(u.path)
	if err != nil || runtime.GOOS == "windows" || !info.Mode().IsRegular() || info.Mode().Perm()&0o077 == 0 {
		return
	}
	if secrets := consent.InClear(file); len(secrets) > 0 {
		cmd.PrintErrln(render.Message(render.Flat(fmt.Sprintf("%s has secrets in clear text, and other users of this machine may open it (mode %#o): run chmod 600 %s, or write ${env:NAME} in their place: %s",
			u.path, info.Mode().Perm(), render.InQuotes(u.path), suggest.List(secrets)))))
	}
}

// report prints the mistakes of a file, and what of it means nothing here.
func (u *upping) report(cmd *cobra.Command, g *gateway.Gateway, file *mcpjson.File) error {
	wrong := g.Check(file)
	var notices []string
	for _, name := range file.Names() {
		if s, err := file.Server(name); err == nil {
			notices = append(notices, s.Notices...) // those about the top are the same for each server
		}
	}
	for i, notice := range notices {
		if slices.Index(notices, notice) == i {
			cmd.PrintErrln(render.Message(notice))
		}
	}
	if wrong != nil {
		return process.Refuse("%w", wrong)
	}
	servers := "1 server"
	if count := len(file.Names()); count != 1 {
		servers = fmt.Sprintf("%d servers", count)
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: no mistakes, %s\n", render.Flat(u.path), servers)
	return err
}

// take takes the addresses and the catalogue of the file, unless flags set them. A reload does not change them.
func (u *upping) take(cmd *cobra.Command, file *mcpjson.File) error {
	top, err := file.Gateway()
	if err != nil {
		return file.Check() // which has all mistakes
	}
	if !cmd.Flags().Changed("http") {
		u.address = cmp.Or(top.HTTP, u.address)
	}
	if !cmd.Flags().Changed("admin") {
		if u.background {
			u.page = doors.Off
		}
		u.page = cmp.Or(top.AdminHTTP, u.page)
	}
	u.catalogue, u.socket = cmp.Or(u.catalogue, top.Catalogue), top.AdminSocket
	return errors.Join(u.audit.take(top.Audit), u.access.take(top, sayTo(cmd)))
}

// serve serves clients until the context of the command ends, or the gateway lingers no longer. It ends with those that are served: first the
// clients, since their calls need the servers, then the servers.
func (u *upping) serve(cmd *cobra.Command, g *gateway.Gateway, listener net.Listener, hosts *doors.Hosts) error {
	ctx, end := context.WithCancel(cmd.Context())
	defer end()
	stopReloading := u.reloadWhenTold(cmd, g)
	if hosts != nil {
		u.serveHosts(ctx, cmd, g, hosts, end)
	}
	var err error
	if listener != nil {
		err = u.serveHTTP(ctx, cmd, g, listener)
	} else {
		<-ctx.Done()
	}
	stopReloading()
	if ctx.Err() == nil {
		return fmt.Errorf("serve %s: %w", u.address, err)
	}
	finishing, cancel := context.WithTimeout(context.WithoutCancel(ctx), process.FinishGrace)
	defer cancel()
	_ = g.Close(finishing) // what had to be given up is no failure of the gateway
	return nil
}

func (u *upping) serveHTTP(ctx context.Context, cmd *cobra.Command, g *gateway.Gateway, listener net.Listener) error {
	o := u.access.guarded()
	o.ShutdownGrace = process.FinishGrace / 4 * 5
	if o.Sessions == nil { // otherwise other nodes go on with them
		if kept := u.keepSessions(cmd); kept != nil {
			defer kept.Close() // what it could not write is in the log
			o.Sessions = kept
		}
	}
	endpoint := streamable.NewHandler(g.Server(), o)
	u.access.endpoint.Store(endpoint)
	mux := http.NewServeMux()
	addEndpoints(mux, g, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { endpoint.ServeHTTP(w, u.access.withToken(r)) }))
	if at := u.access.loginsAt(listener); at != "" {
		mux.Handle(loginsPath, u.access.guardPages(g.LoginPages(at), u.audit.write()))
	}
	if err := u.joining.node.Serve(mux); err != nil {
		return err
	}
	cmd.PrintErrf("bowline: serving %s\n", u.access.urlOf(listener))
	return u.access.serve(ctx, endpoint, mux, listener, process.LogAt(cmd, u.level))
}

// addEndpoints adds that of everything, that for search, and one for each group that the file has at the time.
func addEndpoints(mux *http.ServeMux, g *gateway.Gateway, endpoint http.Handler) {
	mux.Handle(endpointPath, endpoint)
	mux.HandleFunc(searchPath, func(w http.ResponseWriter, r *http.Request) {
		endpoint.ServeHTTP(w, r.WithContext(gateway.WithSearch(r.Context())))
	})
	mux.HandleFunc(endpointPath+"/{group}", func(w http.ResponseWriter, r *http.Request) {
		group := r.PathValue("group")
		if !g.HasGroup(group) {
			http.NotFound(w, r)
			return
		}
		endpoint.ServeHTTP(w, r.WithContext(gateway.WithGroup(r.Context(), group)))
	})
}

// keepSessions opens the folder in which the sessions of clients outlive this process. Without it they are served, too, and have to begin
// again after a restart: some programs never do.
func (u *upping) keepSessions(cmd *cobra.Command) *streamable.FileSessions {
	dir, err := doors.SessionsOf(u.path)
	if err == nil {
		var kept *streamable.FileSessions
		if kept, err = streamable.OpenFileSessions(dir, streamable.FileSessionsOptions{Log: slog.New(process.LogAt(cmd, u.level))}); err == nil {
			return kept
		}
	}
	cmd.PrintErrln(render.Message("sessions end with this gateway: " + err.Error()))
	return nil
}

// load reads the file. It asks for the inputs that its servers need. Who names a file on the command line trusts it, so nobody is
// asked whether its commands may run. A reload reads it again, and asks for the inputs that are new.
func (u *upping) load(cmd *cobra.Command, read func() (*mcpjson.File, error)) (*mcpjson.File, error) {
	file, err := process.Await(cmd.Context(), read)
	if errors.Is(err, syscall.EISDIR) {
		return nil, fmt.Errorf("%w: name a file%s", err, anyFileIn(u.path))
	} else if err != nil {
		return nil, err
	}
	user := ask.New(cmd.InOrStdin(), cmd.ErrOrStderr())
	file.Ask = u.inputs.ask(func(in mcpjson.Input) (string, error) { return user.Input(cmd.Context(), in) })
	return file, nil
}

// options are those of a gateway that has this program's logins, and logs to standard error. Nobody can log in for all users while it runs: a
// server that needs such a login says so in its state, until "bowline login" has got one.
func (u *upping) options(cmd *cobra.Command) gateway.Options {
	o := gateway.Options{Info: protocol.Implementation{Name: "bowline", Version: process.Version()}, Catalogue: u.catalogue, Share: u.access.share()}
	log := slog.New(process.LogAt(cmd, u.level))
	u.audit.add(&o)
	o.IsOwn = func(at string) bool {
		return !u.background && (isServed(at, u.address) || at == u.access.public)
	}
	o.Client.Conn.Log, o.Server.Conn.Log = log, log
	o.Client.Conn.Hooks = requestHooks(log, u.level)
	o.Server.Conn.Hooks = o.Client.Conn.Hooks
	o.Server.Conn.DrainGrace = process.FinishGrace / 5 * 4
	logins := authfile.Options{Defaults: auth.Options{ClientName: "bowline", Log: log}}
	if store, err := connect.OpenLogins(cmd.ErrOrStderr()); err == nil {
		logins.Defaults.Store = store
	}
	o.Login = func(s *mcpjson.Server) (sessions.Login, error) { return authfile.Logins(logins)(s) }
	o.UserLogins = &gateway.UserLogins{
		Person: personAt(u.joining.node.Name()),
		For:    authfile.Options{Defaults: auth.Options{ClientName: "bowline", Log: log, Store: u.joining.logins(cmd, u.path)}}.For,
		Reach:  u.joining.node.Reach,
	}
	return o
}

// apply starts, stops and restarts servers, and says which. It fails if nothing is changed, because of the whole file. A server that cannot
// be started is no failure of the command: the others are served, and it may come with the next file.
func (u *upping) apply(cmd *cobra.Command, g *gateway.Gateway, file *mcpjson.File) error {
	if u.strict {
		if err := g.Check(file); err != nil {
			return err
		}
	}
	changes, err := g.Apply(cmd.Context(), file)
	if wrong := (*gateway.ConfigError)(nil); errors.As(err, &wrong) {
		return err
	}
	for _, of := range []struct {
		what  string
		names []string
	}{{"starting", changes.Started}, {"restarting", changes.Restarted}, {"stopped", changes.Stopped}} {
		if len(of.names) > 0 {
			cmd.PrintErrln(render.Message(of.what + " " + render.Flat(strings.Join(of.names, ", "))))
		}
	}
	if err != nil {
		cmd.PrintErrln(render.Message(err.Error()))
	}
	return nil
}

// reload reads the file again and applies it, and prints how that went.
func (u *upping) reload(cmd *cobra.Command, g *gateway.Gateway) error {
	u.reloading.Lock()
	defer u.reloading.Unlock()
	file, err := u.load(cmd, u.watched.read)
	if err == nil {
		err = u.apply(cmd, g, file)
	}
	if err != nil {
		g.NotApplied(err)
		cmd.PrintErrln(render.Message("nothing is changed: " + err.Error()))
		return err
	}
	cmd.PrintErrln(render.Message("the file was read again"))
	return nil
}

// reloadUntil applies the file again at each signal, and when it has changed, until ending is closed.
func (u *upping) reloadUntil(cmd *cobra.Command, g *gateway.Gateway, hangup <-chan os.Signal, ending <-chan struct{}) {
	var looks <-chan time.Time
	if u.watches {
		ticker := time.NewTicker(watchInterval)
		defer ticker.Stop()
		looks = ticker.C
	}
	for {
		select {
		case <-ending:
			return
		case <-hangup:
		case <-looks:
			if !u.watched.look() {
				continue
			}
		}
		_ = u.reload(cmd, g) // which has printed what is wrong
	}
}

// reloadWhenTold applies the file again at each SIGHUP, and with --watch when it has changed, on a goroutine of its own, until the function that
// it returns is called, which waits for that.
func (u *upping) reloadWhenTold(cmd *cobra.Command, g *gateway.Gateway) (stop func()) {
	hangup := make(chan os.Signal, 1) // one that waits stands for all that come meanwhile
	signal.Notify(hangup, syscall.SIGHUP)
	ending, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		u.reloadUntil(cmd, g, hangup, ending)
	}()
	return func() {
		signal.Stop(hangup)
		close(ending)
		<-over
	}
}
