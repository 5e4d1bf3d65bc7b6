// Package admin is the door to a gateway for those who run it: is it working, if not why, what happens next.
//
//	door := admin.New(g)                                       // g is a Gateway: what the door shows and does
//	defer door.Close()
//	listener, err := admin.Listen("/run/user/1000/bowline.sock") // mode 0600
//	go local.Serve(listener)                                   // local := http.Server{Handler: door.Local()}
//	page := http.Server{Handler: door.Web(admin.Web{Token: token, Open: true})}
//
// A program on the same machine uses [Dial] and the methods of a [Client].
//
// # Doors
//
// Local serves those who can open the socket, which is the user alone. Web serves a TCP address: what acts, or shows what a
// server has written, needs the token; the rest too, unless the address is a loopback one and Open is set. Neither can add
// a server or change a command: only the file on disk can.
//
//	GET  /livez                              the process answers
//	GET  /readyz[?server=NAME]               new calls are welcome; with a server: it is ready, or starts on demand
//	GET  /metrics                            the numbers of a Report, for Prometheus
//	GET  /v1/report                          a Report
//	GET  /v1/events                          server-sent events: a Report at once, and after each change
//	GET  /v1/stderr/{server}[?follow]        server-sent events: the last lines of a child's standard error
//	GET  /, /servers/{server}                the page, live by /page/events; it is whole without its script
//	GET  /servers/{server}/tools/{tool}      a tool, and a form that calls it by a POST
//	GET  /v1/audit[?who=&server=&tool=&outcome=]  the newest records of the audit trail; /audit is their page, live by /audit/events
//	POST /v1/code                            an address of the page that logs one browser in; only at the socket
//	POST /v1/servers/{server}/{action}       restart, stop, start or wake
//	POST /v1/servers/{server}/move           gives an exclusive server to the node of a cluster that the form names as node
//	GET  /v1/pins                            what has changed since the definitions of tools were pinned
//	POST /v1/pins/{server}                   approves the tools that the form names as tool
//	POST /v1/logout/{server}                 ends the login of the user that the form names as user
//	POST /v1/reload                          reads the file again
//	POST /v1/end                             ends the gateway; only at the socket
//
// # Goroutines and bounds
//
// The package starts no goroutine: a stream runs on the goroutine of its request, and ends with it or with Close. At most
// MaxViewers streams are open with the token, and as many without; another one gets 503. A viewer that does not read for 5 s is
// dropped, so it can hold up nobody. All methods may be called from every goroutine. Without viewers nothing is rendered.
//
// See docs/adr/0091-admin-door-and-page.md.
package admin
