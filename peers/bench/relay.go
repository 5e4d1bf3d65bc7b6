package bench

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
)

// floorRelay is the least that stands between an HTTP client and servers that are children: each message is looked through once,
// and passed on as it came. It serves one client, whose calls reach the servers in turns. Both ends are Bowline's, as those of the gateway.
func floorRelay() implementation {
	return implementation{
		http: bowline(echoTool).http,
		serveHTTP: func(listener net.Listener) error {
			r := &relay{waiting: make(map[string]chan []byte)}
			for range hostedHere().servers {
				if err := r.startChild(); err != nil {
					return err
				}
			}
			return http.Serve(listener, r)
		},
	}
}

// A relay has children that are all alike.
type relay struct {
	mu      sync.Mutex
	in      []io.Writer            // of the children
	next    int                    // the child that gets the next call
	waiting map[string]chan []byte // for the answer, by the id of the request
}

// startChild starts a child, which ends with this process.
func (r *relay) startChild() error {
	command, err := serverCommand("stdio", bowlineTyped)
	if err != nil {
		return err
	}
	in, out, _, err := start(command)
	if err != nil {
		return err
	}
	r.in = append(r.in, in)
	go r.read(out)
	return nil
}

// A relayed message is read for where it goes.
type relayedMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
}

func (r *relay) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodPost {
		http.Error(w, "no stream", http.StatusMethodNotAllowed)
		return
	}
	message, answer, err := r.exchange(request.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	if message.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if message.Method == "initialize" {
		w.Header().Set("Mcp-Session-Id", "1")
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(<-answer)
}

// exchange passes a message on. If it is a request, its answer comes later.
func (r *relay) exchange(from io.Reader) (message relayedMessage, answer chan []byte, err error) {
	body, err := io.ReadAll(from)
	if err != nil {
		return message, nil, err
	}
	if err := json.Unmarshal(body, &message); err != nil {
		return message, nil, err
	}
	answer = make(chan []byte, 1)
	return message, answer, r.pass(append(body, '\n'), message, answer)
}

// pass gives a call to one child, and what is no call to all: each must know of the session, and the first answer counts.
func (r *relay) pass(line []byte, message relayedMessage, answer chan []byte) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if message.ID != nil {
		r.waiting[string(message.ID)] = answer
	}
	if message.Method == "tools/call" {
		r.next = (r.next + 1) % len(r.in)
		_, err = r.in[r.next].Write(line)
		return err
	}
	for _, in := range r.in {
		_, failed := in.Write(line)
		err = errors.Join(err, failed)
	}
	return err
}

func (r *relay) read(out io.Reader) {
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var message relayedMessage
		if json.Unmarshal(line, &message) != nil {
			continue
		}
		r.mu.Lock()
		answer := r.waiting[string(message.ID)]
		delete(r.waiting, string(message.ID))
		r.mu.Unlock()
		if answer != nil {
			answer <- line
		}
	}
}
