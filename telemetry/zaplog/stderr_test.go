package zaplog_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/telemetry/zaplog"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"pgregory.net/rapid"
)

// logged is what a child's standard error, written in these parts, is logged as.
func logged(parts ...string) (lines []string) {
	core, seen := observer.New(zapcore.InfoLevel)
	w := zaplog.Stderr(zap.New(core))
	for _, part := range parts {
		if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
			panic("a child's standard error has to be taken whole")
		}
	}
	w.Close()
	for _, entry := range seen.All() {
		lines = append(lines, entry.ContextMap()["line"].(string))
	}
	return lines
}

func TestStderrIsLoggedByTheLine(t *testing.T) {
	for name, c := range map[string]struct{ written, want []string }{
		"lines":         {[]string{"one\ntwo\n"}, []string{"one", "two"}},
		"parts":         {[]string{"o", "ne\nt", "wo", "\n"}, []string{"one", "two"}},
		"Windows":       {[]string{"one\r\n\r\ntwo\r", "\n"}, []string{"one", "two"}},
		"no end":        {[]string{"one\ntwo"}, []string{"one", "two"}},
		"nothing":       {[]string{"\n\n", "", " \n"}, nil},
		"one too long":  {[]string{strings.Repeat("x", 3000), "x\nnext\n"}, []string{strings.Repeat("x", 1024) + "…", "next"}},
		"just so":       {[]string{strings.Repeat("x", 1024), "\nnext\n"}, []string{strings.Repeat("x", 1024), "next"}},
		"many in a row": {[]string{"a\nb\nc\n" + strings.Repeat("d\n", 3)}, []string{"a", "b", "c", "d", "d", "d"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := logged(c.written...); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// However it is cut into parts, the same is logged.
func TestStderrDoesNotDependOnItsParts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune{'a', 'é', '\n', '\r', ' '}), 0, 3000, -1).Draw(rt, "text")
		at := rapid.IntRange(0, len(text)).Draw(rt, "at")
		if whole, parts := logged(text), logged(text[:at], text[at:]); !slices.Equal(whole, parts) {
			rt.Fatalf("%q and, cut at %d, %q", whole, at, parts)
		}
	})
}

// A line that was cut says so, whatever was cut off.
func TestCutLinesSaySo(t *testing.T) {
	for name, line := range map[string]string{
		"blank before":           strings.Repeat(" ", 1025) + "fatal: disk full\n",
		"blank at the boundary":  strings.Repeat("x", 1024) + " fatal: disk full\n",
		"blanks at the boundary": strings.Repeat("x", 1000) + strings.Repeat(" ", 30) + "fatal: disk full\n",
	} {
		got := logged(line)
		if len(got) != 1 || !strings.HasSuffix(got[0], "…") && !strings.Contains(got[0], "fatal") {
			t.Errorf("%s: logged %.20q…, %d lines, as if it were all", name, got, len(got))
		}
	}
}
