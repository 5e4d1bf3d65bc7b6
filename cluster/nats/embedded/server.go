package embedded

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/private"
	natsserver "github.com/nats-io/nats-server/v2/server"
)

// ErrHeld says that another process, or another Server of this one, runs the server of a folder.
var ErrHeld = errors.New("embedded: the server of this folder is running already")

// startWithin is how long a server may take to recover its buckets and to listen.
const startWithin = time.Minute

// failEvery is how often a server that starts is asked whether it has failed.
const failEvery = 100 * time.Millisecond

// A Server is a NATS server in this process.
type Server struct {
	server *natsserver.Server
	lock   *os.File // held while the server runs
	state  state
	isNew  bool         // it had nothing when it started
	close  func() error // once
}

// Start starts the server of a folder. If somebody runs it already, the error matches ErrHeld. The
// caller closes the Server. A server with Seeds is ready for clients before it has found the
// others; its buckets are not.
func Start(o Options) (*Server, error) {
	o, err := o.check()
	if err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	return start(o)
}

func start(o Options) (*Server, error) {
	held, err := lock(o.folder(), o.Folder)
	if err != nil {
		return nil, err
	}
	if held == nil {
		return nil, ErrHeld
	}
	s := &Server{lock: held}
	s.close = sync.OnceValue(s.end)
	if err := s.run(o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// run starts the server and says where it is.
func (s *Server) run(o Options) (err error) {
	folder := o.folder()
	if s.state, err = newState(folder); err != nil {
		return err
	}
	if len(o.Seeds) > 0 {
		s.state.Name = serverName(o.Self)
		if o.taken() {
			return fmt.Errorf("embedded: another server of the cluster is %s: end it, or give this one an entry of its own", o.Self)
		}
	}
	if err := writeState(folder, s.state); err != nil { // without the address of the server before
		return err
	}
	if err := s.begin(o, filepath.Join(folder, dataName)); err != nil {
		return err
	}
	s.state.Address = s.server.Addr().String()
	return writeState(folder, s.state)
}

// begin starts the server with its data, and waits until it is ready.
func (s *Server) begin(o Options, data string) error {
	_, err := os.Stat(data)
	s.isNew = errors.Is(err, os.ErrNotExist)
	if err := os.MkdirAll(data, 0o700); err != nil {
		return fmt.Errorf("embedded: %w", err)
	}
	options, err := o.serverOptions(s.state, data)
	if err != nil {
		return err
	}
	server, err := natsserver.NewServer(options)
	if err != nil {
		return fmt.Errorf("embedded: %w", err)
	}
	log := &logger{log: o.log()}
	server.SetLoggerV2(log, false, false, false)
	s.server = server
	server.Start()
	return awaitReady(server, log)
}

// awaitReady waits until a server is ready, or has said in its log why it will not be.
func awaitReady(server *natsserver.Server, log *logger) error {
	for deadline, ready := time.Now().Add(startWithin), false; !ready; {
		ready = server.ReadyForConnections(failEvery)
		if fatal := log.failure(); fatal != nil {
			return fmt.Errorf("embedded: %w", fatal)
		}
		if !ready && time.Now().After(deadline) {
			return fmt.Errorf("embedded: the server is not ready after %v", startWithin)
		}
	}
	return nil
}

func (o Options) serverOptions(s state, data string) (*natsserver.Options, error) {
	n := &natsserver.Options{
		ServerName: s.Name, Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, Authorization: s.Token,
		NoSigs: true, NoSystemAccount: false, MaxPayload: 1 << 20,
		JetStream: true, StoreDir: data, JetStreamMaxMemory: o.MaxMemory, JetStreamMaxStore: o.MaxFile,
		DisableJetStreamBanner: true,
	}
	if len(o.Seeds) == 0 {
		return n, nil
	}
	return n, o.addServers(n)
}

// addServers adds what is for the servers of Seeds.
func (o Options) addServers(n *natsserver.Options) error {
	host, port, err := splitAddress(o.Listen)
	if err != nil {
		return err
	}
	token, err := o.routeToken()
	if err != nil {
		return err
	}
	config, err := o.routeTLS()
	if err != nil {
		return err
	}
	routes, advertise := o.Seeds, o.Self
	if len(o.Routes) > 0 {
		routes, advertise = o.Routes, deadAddress
	}
	n.Cluster = natsserver.ClusterOpts{
		Name: "bl_" + o.Cluster, Host: host, Port: port, Username: "bowline", Password: token, Advertise: advertise, NoAdvertise: true,
		TLSConfig: config, TLSTimeout: 5, AuthTimeout: 5, PingInterval: 2 * time.Second, MaxPingsOut: 2,
	}
	n.ReconnectErrorReports = natsserver.DEFAULT_CONNECT_ERROR_REPORTS // the first, and then once an hour
	for _, route := range routes {
		if route != o.Self {
			n.Routes = append(n.Routes, &url.URL{Scheme: "nats-route", User: url.UserPassword("bowline", token), Host: route})
		}
	}
	return nil
}

// deadAddress is that of nobody.
const deadAddress = "127.0.0.1:1"

func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil {
		return "", 0, fmt.Errorf("embedded: %w", err)
	}
	return host, port, nil
}

// Close ends the server. It may be called again.
func (s *Server) Close() error { return s.close() }

func (s *Server) end() error {
	if s.server != nil {
		s.server.Shutdown()
		s.server.WaitForShutdown()
	}
	return private.Unlock(s.lock)
}
