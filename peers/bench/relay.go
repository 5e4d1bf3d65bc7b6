package bench

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"
)

// floorRelay is the least that stands between an HTTP client and a server that is a child: each message is looked through once,
// and passed on as it came. It serves one client. Both ends are Bowline's, as those of the gateway.
func floorRelay() implementation {
	return implementation{
		http: bowline(echoTool).http,
		serveHTTP: func(listener net.Listener) error {
			command, err := serverCommand("stdio", bowlineTyped)
			if err != nil {
				return err
			}
			in, out, _, err := start(command)
			if err != nil {
				return err
			}
			r := &relay{in: in, waiting: make(map[string]chan []byte)}
			go r.read(out) // until the child ends, with this process
			return http.Serve(listener, r)
		},
	}
}

// A relay has one child.
type relay struct {
	mu      sync.Mutex
	in      io.Writer
	waiting map[string]chan []byte // for the answer, by the id of the request
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
	return message, answer, r.pass(append(body, '\n'), string(message.ID), answer)
}

func (r *relay) pass(line []byte, id string, answer chan []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id != "" {
		r.waiting[id] = answer
	}
	_, err := r.in.Write(line)
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
