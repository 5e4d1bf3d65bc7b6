// Package logins serves the pages at which users of a gateway log in at the servers behind it.
//
//	pages := logins.New("https://tools.example.com/login")
//	link, err := pages.Open(logins.Login{User: user, Server: "issues", Run: run})
//	err = link.Wait(ctx)
//
// A user who wants to see and end the logins that he has gets another link, which leads to a page of these:
//
//	own, err := pages.Own(logins.Owner{User: user, At: at, End: end})
//
// Whoever has a link can begin one login with it, in the name of one user. So everything that arrives here is taken for hostile: nothing of a request
// is shown or logged, and a link that never was looks like one that was used. ADR-0102 gives the reasons. The package knows nothing of OAuth:
// Run does, and gets the addresses at which the browser of a user begins and arrives.
//
// # Goroutines
//
// A login has a goroutine from when somebody begins it until it has ended, on which Run is called. Close ends these, and waits for them. Pages are safe for concurrent use.
package logins

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/nodename"
)

var (
	// ErrExpired is the error of a login whose link nobody has used in time, or which nobody has finished.
	ErrExpired = errors.New("nobody has logged in within ten minutes")

	// errLeft is the error of a login whose browser has not waited for where to go.
	errLeft = errors.New("the browser has left before the login began")
)

// These are mistakes of Run.
var (
	errNoState = errors.New("the address to open has no state, by which the browser would be known again")
	errTwice   = errors.New("one login visits one place")
)

// A Login is what a link is for.
type Login struct {
	User   string // whose it is; "": of all who have not logged in at the gateway
	Server string // as in the file
	Place  string // where the server is, for the page
	Wants  string // what makes it another login than one before; "": nothing

	// Run logs in. It calls visit, once, with a function that gets the address to which the browser is sent back, and returns the one that
	// it is to open. Visit returns the one at which the browser has arrived, or an error.
	Run func(ctx context.Context, visit Visit) error
}

// A Visit sends the browser of a user to another site, and waits until it comes back.
type Visit func(ctx context.Context, start func(ctx context.Context, redirect string) (*url.URL, error)) (*url.URL, error)

// A Link is a login that is open.
type Link struct {
	URL string // the page to open, which works once
	ID  string // names the login, and lets nobody in

	login   Login
	ends    time.Time // when it cannot be begun any more
	expires *time.Timer
	done    chan struct{}
	err     error // how it ended; set when done is closed

	// Once somebody has begun it.
	browser    digest // of the cookie: no other browser may go on
	cancel     context.CancelFunc
	address    chan *url.URL // to open; has room for one
	redirected chan *url.URL // has room for one
}

// Wait waits until the login has ended, and returns why it failed, or the cause of ctx.
func (l *Link) Wait(ctx context.Context) error {
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Pages are the logins that are open, and the http.Handler of their pages. End them with Close.
type Pages struct {
	// Refused hears of each request that was refused: of a link that is not there, of another site, of another browser. User is whose page it was; "": nobody's, or that of
	// all who have not logged in. It is called by many goroutines, and set before the first request. Nil: nobody hears of them.
	Refused func(r *http.Request, user, why string)

	at      string // their URL, without a slash at the end
	node    string // which serves them, of several with this URL; "": the only one
	reach   func(node string) http.Handler
	origin  string
	ctx     context.Context // of what runs
	stop    context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	open   map[*Link]bool
	unused map[digest]*Link // by the secret of the URL
	states map[digest]*Link // by the state with which the browser comes back
	closed bool

	own owned
}

// New returns the pages of a gateway. At is where browsers reach them, without a slash at the end. If several nodes serve pages there, node is the name of this one, and reach returns
// what forwards a request to another one, or nil.
func New(at, node string, reach func(node string) http.Handler) *Pages {
	p := &Pages{at: at, node: node, reach: reach, open: make(map[*Link]bool), unused: make(map[digest]*Link), states: make(map[digest]*Link)}
	if u, err := url.Parse(at); err == nil {
		p.origin = u.Scheme + "://" + u.Host
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

// Open returns a link for a login. While nobody has used it, who wants the same login gets the same link, unless its end is near. The error is ErrFull or ErrClosed.
func (p *Pages) Open(login Login) (*Link, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	same, ofUser := p.find(login)
	if same != nil {
		return same, nil
	}
	if ofUser >= mostOfUser || len(p.open) >= mostOfAll {
		return nil, ErrFull
	}
	secret := nodename.Join(p.node, newSecret())
	l := &Link{URL: p.at + "/" + secret, ID: rand.Text(), login: login, ends: time.Now().Add(Life), done: make(chan struct{})}
	l.expires = time.AfterFunc(Life, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if l.cancel == nil { // else the time of what runs counts
			p.remove(l, ErrExpired)
		}
	})
	p.open[l], p.unused[digestOf(secret)] = true, l
	return l, nil
}

// find returns the link that who wants a login shares with others, or else how many its user has. The caller holds mu.
func (p *Pages) find(login Login) (same *Link, ofUser int) {
	now := time.Now()
	for l := range p.open {
		if l.login.User != login.User {
			continue
		}
		if ofUser++; l.login.Server == login.Server && l.login.Wants == login.Wants && l.cancel == nil && l.ends.Sub(now) > Life/2 {
			return l, ofUser
		}
	}
	return nil, ofUser
}

// Own returns the link to the logins of a user, for ten minutes. He has one: while nobody has used it, he gets the same one, unless its end is near, and otherwise a new one ends that before. The error is
// ErrFull or ErrClosed.
func (p *Pages) Own(o Owner) (*OwnLink, error) { return p.own.open(p.at, p.node, o) }

// look returns what a link is for that nobody has used.
func (p *Pages) look(secret string) (login Login, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.unused[digestOf(secret)]
	if l == nil {
		return login, false
	}
	return l.login, true
}

// begin uses a link, for one browser. Nil: there is none.
func (p *Pages) begin(secret, cookie string) *Link {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.unused[digestOf(secret)]
	if l == nil {
		return nil
	}
	delete(p.unused, digestOf(secret))
	l.browser, l.address, l.redirected = digestOf(cookie), make(chan *url.URL, 1), make(chan *url.URL, 1)
	var ctx context.Context
	ctx, l.cancel = context.WithTimeoutCause(p.ctx, Life, ErrExpired)
	p.running.Go(func() {
		defer l.cancel()
		err := l.login.Run(ctx, p.visit(l))
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		p.end(l, err)
	})
	return l
}

// end ends a login, unless it has ended.
func (p *Pages) end(l *Link, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(l, err)
}

// visit returns the Visit of a login.
func (p *Pages) visit(l *Link) Visit {
	return func(ctx context.Context, start func(context.Context, string) (*url.URL, error)) (*url.URL, error) {
		address, err := start(ctx, p.at+"/"+callback)
		if err != nil {
			return nil, err
		}
		text := address.Query().Get("state")
		if text == "" {
			return nil, errNoState
		}
		defer p.expect(l, digestOf(text))()
		select {
		case l.address <- address:
		default:
			return nil, errTwice
		}
		select {
		case at := <-l.redirected:
			return at, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// expect lets a state name a login when the browser comes back, until it is forgotten. Nobody knows the state but the browser and who has sent it away.
func (p *Pages) expect(l *Link, state digest) (forget func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.states[state] = l
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.states, state)
	}
}

// comeBack hands the address at which a browser has arrived to its login. Another browser changes nothing, so that who has got hold of a state cannot
// even end the login. Nil: there is none that waits for this.
func (p *Pages) comeBack(state, cookie string, at *url.URL) *Link {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.states[digestOf(state)]
	if given := digestOf(cookie); l == nil || subtle.ConstantTimeCompare(l.browser[:], given[:]) != 1 {
		return nil
	}
	delete(p.states, digestOf(state))
	l.redirected <- at
	return l
}

// remove ends a login. If it has succeeded, the others of this user at this server that want the same have, too. The caller holds mu.
func (p *Pages) remove(l *Link, err error) {
	if !p.open[l] {
		return
	}
	delete(p.open, l)
	l.expires.Stop()
	for secret, of := range p.unused {
		if of == l {
			delete(p.unused, secret)
		}
	}
	if l.cancel != nil {
		l.cancel()
	}
	l.err = err
	close(l.done)
	for other := range p.open {
		if err == nil && other.login.User == l.login.User && other.login.Server == l.login.Server && other.login.Wants == l.login.Wants {
			p.remove(other, nil)
		}
	}
}

// Close ends all logins, and waits for what runs.
func (p *Pages) Close() {
	p.mu.Lock()
	p.closed = true
	for l := range p.open {
		p.remove(l, ErrClosed)
	}
	p.mu.Unlock()
	p.own.close()
	p.stop()
	p.running.Wait()
}
