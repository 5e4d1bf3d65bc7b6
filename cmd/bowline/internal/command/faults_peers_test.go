package command

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A badServer is a legacy server with one tool, and a fault.
type badServer struct {
	flood string // a notification that it sends without a pause; "": none
	deaf  bool   // it reads no more once it has listed its tool
	stays bool   // it ignores the end of its input, and requests to end

	mu sync.Mutex // held while a message is written
}

func (s *badServer) print(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Printf(format+"\n", args...)
}

// serve runs until the input ends, or for ever.
func (s *badServer) serve() int {
	if s.stays {
		signal.Ignore(syscall.SIGTERM)
	}
	for input := bufio.NewReader(os.Stdin); ; {
		frame, err := input.ReadBytes('\n')
		if err != nil && s.stays {
			select {}
		} else if err != nil {
			return 0
		}
		m, err := jsonrpc.Decode(frame, jsonrpc.Limits{})
		if err == nil && m.Kind == jsonrpc.KindRequest {
			s.answer(m)
		}
		if m.Method == protocol.MethodListTools && s.deaf {
			select {}
		}
	}
}

func (s *badServer) answer(m jsonrpc.Message) {
	result := `{}`
	switch m.Method {
	case protocol.MethodDiscover:
		s.print(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"none"}}`, m.ID.Append(nil))
		return
	case protocol.MethodInitialize:
		result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"x","version":"1"}}`
	case protocol.MethodListTools:
		result = `{"tools":[{"name":"tool","inputSchema":{"type":"object"}}]}`
	case protocol.MethodCallTool:
		result = `{"content":[{"type":"text","text":"called"}]}`
	}
	s.print(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID.Append(nil), result)
	if m.Method == protocol.MethodInitialize && s.flood != "" {
		go func() {
			for {
				s.print("%s", s.flood)
			}
		}()
	}
}
