package mcpconfig

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/suggest"
)

const (
	maxSize     = 1 << 20 // bytes of a file, and of what variables may add to it
	maxBrackets = 10_000  // in a file; bounds the depth, for the parser recurses
	maxMistakes = 100     // reported of one file
)

// A Config is what one file says.
type Config struct {
	Path    string   // as given to Load or Parse
	Servers []Server // in file order, the disabled ones too

	// Notices are for the person who wrote the file, one line each: what was
	// ignored, and what may be meant otherwise.
	Notices []string
}

// A Server is one entry. If it is disabled, nothing but its name is known.
type Server struct {
	Name     string // not empty, without control characters
	Disabled bool
	Kind     Kind

	// Of Stdio. Settings of another kind than Kind are read too, and noticed.
	Command string // not empty
	Args    []string
	Env     []string // "key=value", in file order
	Dir     string   // "": the current directory

	// Of HTTP and SSE.
	URL     string // of http or https, with a host
	Headers http.Header

	Timeout     time.Duration // of one request; 0: not set
	InitTimeout time.Duration // until the session is ready; 0: not set
}

// A Kind is how a server is reached.
type Kind string

const (
	Stdio Kind = "stdio" // a child process
	HTTP  Kind = "http"  // Streamable HTTP
	SSE   Kind = "sse"   // HTTP+SSE of MCP 2024-11-05
)

// Load reads the file at path. A file that cannot be read is the error of
// package os; what is wrong in it, an *Error. A nil env is os.LookupEnv.
func Load(path string, env func(name string) (value string, set bool)) (*Config, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxSize+1))
	if err != nil {
		return nil, err
	}
	return Parse(path, text, env)
}

// Parse reads text as the file called name, which need not exist. All that is
// wrong is one *Error. A nil env is os.LookupEnv.
func Parse(name string, text []byte, env func(name string) (value string, set bool)) (*Config, error) {
	if env == nil {
		env = os.LookupEnv
	}
	r := &reader{name: name, text: withoutBOM(text), env: env}
	c := &Config{Path: name}
	if root, ok := r.parse(); ok {
		c.Servers = r.servers(root)
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	c.Notices = r.notices
	if len(r.ignored) > 0 {
		c.Notices = append(c.Notices, fmt.Sprintf("%s: ignored: %s", name, suggest.List(r.ignored)))
	}
	return c, nil
}
