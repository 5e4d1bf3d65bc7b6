package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// A logger passes on what the server has to say. What it calls fatal is an error of Start: the
// server does not end the process.
type logger struct {
	log *slog.Logger

	mu      sync.Mutex
	fatal   error
	minute  time.Time       // began then
	lines   map[string]bool // of this minute
	dropped int             // of this minute, because there were too many
}

// maxLines is how many lines are passed on in a minute, each once: strangers who connect to the
// server cause some, and a server that cannot reach another tries it every second.
const maxLines = 50

// routine lists the beginnings of warnings that the server writes at each start.
var routine = [...]string{"Waiting for routing", "JetStream has not established contact", "JetStream is not current", "Metalayer blocking snapshot"}

// ofConnection matches the beginning of a line about a connection to another server.
var ofConnection = regexp.MustCompile(`^\S+ - rid:\d+ - `)

func (l *logger) write(level slog.Level, format string, values []any) {
	text := fmt.Sprintf(format, values...)
	if slices.ContainsFunc(routine[:], func(prefix string) bool { return strings.HasPrefix(text, prefix) }) {
		level = slog.LevelDebug
	}
	if !l.log.Enabled(context.Background(), level) {
		return
	}
	passed, dropped := l.passes(text, time.Now())
	if dropped > 0 {
		l.log.Warn("NATS: more lines in a minute than are shown", "dropped", dropped)
	}
	if passed {
		if strings.Contains(text, "TLS route handshake error") {
			text += "; the other side is no server of this cluster, or one of us has another key"
		}
		l.log.Log(context.Background(), level, "NATS: "+text)
	}
}

// passes reports whether a line is passed on, and how many others were not in the minute before.
func (l *logger) passes(text string, now time.Time) (passed bool, dropped int) {
	text = ofConnection.ReplaceAllString(text, "")
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.minute) >= time.Minute {
		dropped = l.dropped
		l.minute, l.lines, l.dropped = now, map[string]bool{}, 0
	}
	switch {
	case l.lines[text]:
		return false, dropped
	case len(l.lines) == maxLines:
		l.dropped++
		return false, dropped
	}
	l.lines[text] = true
	return true, dropped
}

// Noticef receives that the server starts, ends, and elects leaders.
func (l *logger) Noticef(format string, values ...any) { l.write(slog.LevelDebug, format, values) }

// Warnf receives what the server survives.
func (l *logger) Warnf(format string, values ...any) { l.write(slog.LevelWarn, format, values) }

// Errorf receives what the server cannot do.
func (l *logger) Errorf(format string, values ...any) { l.write(slog.LevelError, format, values) }

// Debugf and Tracef are not called, because neither is asked for.
func (l *logger) Debugf(string, ...any) {}

// Tracef is not called, see Debugf.
func (l *logger) Tracef(string, ...any) {}

// Fatalf receives why the server does not start.
func (l *logger) Fatalf(format string, values ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fatal == nil {
		l.fatal = fmt.Errorf(format, values...)
	}
}

func (l *logger) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}
