package embedded

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/internal/testenv"
)

// A process is a member of a cluster in a process of its own.
type process struct {
	t       *testing.T
	command *exec.Cmd
	stdin   io.Closer
	ended   chan struct{}
	err     error // of Wait, when ended is closed
	stderr  lockedBuffer
}

type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// memberOptions are the Options of a process.
type memberOptions struct {
	Folder, Cluster, Listen string
	Key                     []byte
	Seeds, Routes           []string
}

// spawn starts a member. The channel is closed when it has joined.
func spawn(t *testing.T, o Options) (*process, <-chan struct{}) {
	t.Helper()
	options, err := json.Marshal(memberOptions{o.Folder, o.Cluster, o.Listen, o.Key, o.Seeds, o.Routes})
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, command: exec.Command(os.Args[0]), ended: make(chan struct{})} //nolint:gosec // this program
	p.command.Env = append(os.Environ(), memberVariable+"="+string(options))
	p.command.Stderr = &p.stderr
	stdin, err := p.command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdin = stdin
	output, err := p.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	joined := make(chan struct{})
	go func() {
		defer close(p.ended)
		lines := bufio.NewScanner(output)
		if lines.Scan() && lines.Text() == "joined" {
			close(joined)
		}
		io.Copy(io.Discard, output)
		p.err = p.command.Wait()
	}()
	t.Cleanup(p.kill)
	return p, joined
}

// startMember starts a member and waits until it has joined.
func startMember(t *testing.T, o Options) *process {
	t.Helper()
	p, joined := spawn(t, o)
	p.await(joined)
	return p
}

func (p *process) await(joined <-chan struct{}) {
	p.t.Helper()
	guard := time.NewTimer(limit)
	defer guard.Stop()
	select {
	case <-joined:
	case <-p.ended:
		p.t.Fatalf("a process did not join: %v\n%s", p.err, p.stderr.String())
	case <-guard.C:
		p.t.Fatalf("a process has not joined within %v\n%s", limit, p.stderr.String())
	}
}

// kill ends the process as kill -9 does.
func (p *process) kill() {
	p.command.Process.Kill()
	<-p.ended
}

// end lets the process leave the cluster.
func (p *process) end() {
	p.t.Helper()
	p.stdin.Close()
	testenv.Receive(p.t, p.ended, "a process leaves the cluster")
	if p.err != nil {
		p.t.Errorf("a process ended with %v:\n%s", p.err, p.stderr.String())
	}
}
