package doors

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/gateway/audit"
)

// Options say where the doors of a gateway are.
type Options struct {
	File     string       // that the gateway serves
	Socket   string       // its path; "": it is named by the file
	Page     string       // the address of the page; Off: there is none
	Probes   string       // the address of probes and metrics alone, which other machines may reach; "": they are at the page only
	NoTry    bool         // the page calls no tools
	Insecure bool         // the page may be reached by other machines
	Say      func(string) // is told where the page is, and what does not work

	Audit func(context.Context, audit.Record) // hears of what the page refuses; nil: nobody does
}

// Off in place of an address means no page.
const Off = "off"

// Doors are the open doors of a gateway. End them with Close.
type Doors struct {
	door    *admin.Door
	servers []*http.Server
	running sync.WaitGroup
}

// Open opens the doors of a gateway. A port or a socket that another program has is no failure, since clients are served without them; an
// address that is wrong, or that other machines reach, is one.
func Open(g admin.Gateway, o Options) (*Doors, error) {
	d := &Doors{door: admin.New(g)}
	if err := d.openPage(o); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	if err := d.openProbes(o); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	if err := d.openSocket(o); err != nil {
		o.Say("bowline ps does not find this gateway: " + err.Error())
	}
	return d, nil
}

func (d *Doors) openSocket(o Options) error {
	path, err := chosenSocket(o.File, o.Socket)
	if err != nil {
		return err
	}
	listener, err := admin.Listen(path)
	if err != nil {
		return err
	}
	d.serve(listener, d.door.Local())
	return nil
}

func (d *Doors) openPage(o Options) error {
	if o.Page == Off {
		return nil
	}
	listener, isHere, err := process.ListenHere("--admin", o.Page, o.Insecure, "what goes there is not encrypted")
	if wrong := (*process.Failure)(nil); errors.As(err, &wrong) {
		return err
	} else if err != nil {
		o.Say("the page is not served: " + err.Error())
		return nil
	}
	token, path, err := readToken()
	how := "to act there, use bowline page, or enter the token in " + path
	if err != nil {
		how = "nobody can act there: " + err.Error()
	}
	host, _, _ := net.SplitHostPort(o.Page) // it is one: something listens there
	address := urlOf(listener)
	d.serve(listener, d.door.Web(admin.Web{Token: token, Open: isHere, Hosts: []string{host}, URL: address, NoTry: o.NoTry, Audit: o.Audit}))
	o.Say("the page is " + address + "; " + how)
	return nil
}

// openProbes fails if it cannot listen: whoever asks would take a gateway that works for one that does not, and restart it again and again.
func (d *Doors) openProbes(o Options) error {
	if o.Probes == "" {
		return nil
	}
	listener, err := process.Listen("--probes", o.Probes)
	if err != nil {
		return err
	}
	d.serve(listener, d.door.Probes())
	o.Say("probes and metrics are at " + urlOf(listener))
	return nil
}

// urlOf returns the URL of the page for a browser of this machine. To listen at all addresses is to listen there as well.
func urlOf(listener net.Listener) string {
	host, port, _ := net.SplitHostPort(listener.Addr().String()) // it always has a port
	if net.ParseIP(host).IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port) + "/"
}

func (d *Doors) serve(listener net.Listener, handler http.Handler) {
	s := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	d.servers = append(d.servers, s)
	d.running.Go(func() { _ = s.Serve(listener) }) // the gateway works without a door
}

// Close ends the doors. Actions that are under way have a second to be answered.
func (d *Doors) Close() error {
	d.door.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var problems []error
	for _, s := range d.servers {
		if s.Shutdown(ctx) != nil {
			problems = append(problems, s.Close())
		}
	}
	d.running.Wait()
	return errors.Join(problems...)
}
