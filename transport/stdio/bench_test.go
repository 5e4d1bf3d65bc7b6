package stdio

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/bowline-mcp/bowline/transport"
)

// BenchmarkEchoRoundTrip sends one frame at a time to a child that copies bytes, and
// back. The floor does the same with pipes alone.
func BenchmarkEchoRoundTrip(b *testing.B) {
	frame := bytes.Repeat([]byte("x"), 64)
	b.Run("link", func(b *testing.B) {
		p := open(b, roleCommand(b, "echo"))
		b.ReportAllocs()
		for b.Loop() {
			p.Grant(transport.Main, 1)
			if err := p.Send(transport.Outbound{Frame: frame}); err != nil {
				b.Fatal(err)
			}
			<-p.received
		}
	})
	b.Run("floor", func(b *testing.B) {
		in, out := barePipes(b)
		lines := bufio.NewReader(out)
		line := append(frame, '\n')
		b.ReportAllocs()
		for b.Loop() {
			in.Write(line)
			if _, err := lines.ReadSlice('\n'); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkEchoThroughput keeps the link busy in both directions.
func BenchmarkEchoThroughput(b *testing.B) {
	for _, size := range []int{64, 1 << 10, 1 << 20} {
		b.Run(byteSize(size), func(b *testing.B) {
			p := open(b, roleCommand(b, "echo"))
			frame := bytes.Repeat([]byte("x"), size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			go func() {
				for range b.N {
					for errors.Is(p.Send(transport.Outbound{Frame: frame}), transport.ErrBusy) {
						<-p.writable
					}
				}
			}()
			for range b.N {
				<-p.received
				p.Grant(transport.Main, 1)
			}
		})
	}
}

func byteSize(n int) string {
	return map[int]string{64: "64B", 1 << 10: "1KiB", 1 << 20: "1MiB"}[n]
}

func barePipes(b *testing.B) (in, out *os.File) {
	command := roleCommand(b, "echo")
	cmd := exec.Command(command.Path)
	cmd.Env = append(os.Environ(), command.Env...)
	theirIn, in := mustPipe(b)
	out, theirOut := mustPipe(b)
	cmd.Stdin, cmd.Stdout = theirIn, theirOut
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	closeAll([]*os.File{theirIn, theirOut})
	b.Cleanup(func() {
		closeAll([]*os.File{in, out})
		cmd.Wait()
	})
	return in, out
}

func BenchmarkReader(b *testing.B) {
	line := append(bytes.Repeat([]byte("x"), 64), '\n')
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	r := &reader{from: &repeatingReader{bytes.Repeat(line, 1000), 0}, limit: 1 << 20}
	for b.Loop() {
		if _, err := r.next(); err != nil {
			b.Fatal(err)
		}
	}
}

// repeatingReader is an endless stream.
type repeatingReader struct {
	text []byte
	at   int
}

func (r *repeatingReader) Read(p []byte) (int, error) {
	n := copy(p, r.text[r.at:])
	r.at = (r.at + n) % len(r.text)
	return n, nil
}
