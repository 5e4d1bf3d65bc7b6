package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
)

// A logger passes on what the server has to say. What it calls fatal is an error of Start: the
// server does not end the process.
type logger struct {
	log *slog.Logger

	mu    sync.Mutex
	fatal error
}

func (l *logger) write(level slog.Level, format string, values []any) {
	if l.log.Enabled(context.Background(), level) {
		l.log.Log(context.Background(), level, fmt.Sprintf("NATS: "+format, values...))
	}
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
