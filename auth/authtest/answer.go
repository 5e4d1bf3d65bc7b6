package authtest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
)

// An Answer is the response to a request. A Lie rewrites it.
type Answer struct {
	Request *Request
	Status  int
	Header  http.Header

	// Object is the body, as JSON. Body replaces it if it is not nil.
	Object map[string]any
	Body   []byte

	// Redirect is the redirect address of an authorization; Query is added to it.
	Redirect string
	Query    url.Values

	// Write replaces the whole response, if it is not nil.
	Write func(w http.ResponseWriter, r *http.Request)
}

// A Lie rewrites an honest answer.
type Lie func(*Answer)

// Lie makes l rewrite every answer of an endpoint from now on. A nil Lie ends that.
func (s *Server) Lie(e Endpoint, l Lie) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lies[e] = l
}

func succeed(object map[string]any) *Answer {
	return &Answer{Status: http.StatusOK, Header: http.Header{"Cache-Control": {"no-store"}}, Object: object}
}

// refuse is an error of OAuth.
func refuse(status int, code, description string) *Answer {
	a := succeed(map[string]any{"error": code, "error_description": description})
	a.Status = status
	return a
}

func (a *Answer) write(w http.ResponseWriter, r *http.Request) {
	if a.Write != nil {
		a.Write(w, r)
		return
	}
	for name, values := range a.Header {
		w.Header()[name] = values
	}
	if a.Redirect != "" {
		a.redirect(w)
		return
	}
	body := a.Body
	if body == nil {
		var err error
		if body, err = json.Marshal(a.Object); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if w.Header().Get("Content-Type") == "" {
			w.Header().Set("Content-Type", "application/json")
		}
	}
	w.WriteHeader(a.Status)
	w.Write(body)
}

// redirect sends the browser on.
func (a *Answer) redirect(w http.ResponseWriter) {
	target, err := url.Parse(a.Redirect)
	if err != nil {
		http.Error(w, "the redirect URI is no URL", http.StatusInternalServerError)
		return
	}
	query := target.Query()
	for name, values := range a.Query {
		query[name] = values
	}
	target.RawQuery = query.Encode()
	w.Header().Set("Location", target.String())
	w.WriteHeader(http.StatusFound)
}

// A Request is a request that a Server has received.
type Request struct {
	Host     string // the scheme and host of the server
	Endpoint Endpoint
	Method   string
	URL      *url.URL
	Header   http.Header
	Body     []byte     // at most its first 1 MiB
	Form     url.Values // the parameters of the query, or of a body that is a form
}

// A Sink records requests. It is safe for concurrent use; its zero value is empty.
type Sink struct {
	mu       sync.Mutex
	requests []*Request
}

// Requests returns the recorded requests to the given endpoints, or to all if none is
// given, oldest first.
func (k *Sink) Requests(of ...Endpoint) []*Request {
	k.mu.Lock()
	defer k.mu.Unlock()
	var found []*Request
	for _, r := range k.requests {
		wanted := len(of) == 0
		for _, e := range of {
			wanted = wanted || r.Endpoint == e
		}
		if wanted {
			found = append(found, r)
		}
	}
	return found
}

// Holding returns the requests that contained a text in the URL, the headers or the body.
func (k *Sink) Holding(secret string) []*Request {
	var found []*Request
	for _, r := range k.Requests() {
		if r.holds(secret) {
			found = append(found, r)
		}
	}
	return found
}

func (r *Request) holds(secret string) bool {
	texts := []string{r.URL.String(), string(r.Body)}
	for _, values := range r.Header {
		texts = append(texts, values...)
	}
	for _, values := range r.Form {
		texts = append(texts, values...)
	}
	if _, password, ok := r.basic(); ok {
		texts = append(texts, password)
	}
	for _, text := range texts {
		if strings.Contains(text, secret) {
			return true
		}
	}
	return false
}

// basic returns client id and secret of the Authorization header, as RFC 6749 §2.3.1
// encodes them.
func (r *Request) basic() (id, secret string, ok bool) {
	plain := &http.Request{Header: r.Header}
	id, secret, ok = plain.BasicAuth()
	if !ok {
		return "", "", false
	}
	id, err := url.QueryUnescape(id)
	if err != nil {
		return "", "", false
	}
	secret, err = url.QueryUnescape(secret)
	return id, secret, err == nil
}

// Record returns a handler that records the requests to another server of the test, and
// passes them on to next.
func (k *Sink) Record(host string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recorded := k.add(host, elsewhere, r)
		r.Body = io.NopCloser(strings.NewReader(string(recorded.Body)))
		next.ServeHTTP(w, r)
	})
}

// largestBody is how much of a request is recorded.
const largestBody = 1 << 20

func (k *Sink) add(host string, e Endpoint, r *http.Request) *Request {
	body, _ := io.ReadAll(io.LimitReader(r.Body, largestBody)) // a request that is cut off is recorded as it came
	recorded := &Request{Host: host, Endpoint: e, Method: r.Method, URL: r.URL, Header: r.Header.Clone(), Body: body, Form: r.URL.Query()}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		recorded.Form, _ = url.ParseQuery(string(body)) // what cannot be read is missing
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.requests = append(k.requests, recorded)
	return recorded
}
