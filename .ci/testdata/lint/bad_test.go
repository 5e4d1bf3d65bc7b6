package lint

import (
	"math/rand" // want depguard
	"testing"
	"time"
)

type env struct{ t *testing.T }

type scanner struct{}

func (scanner) Skip(int) {}

func TestBad(t *testing.T) { check(t, env{t}, t, scanner{}) }

func check(t *testing.T, e env, tb testing.TB, s scanner) {
	t.Skip("later")         // want forbidigo
	e.t.SkipNow()           // want forbidigo
	tb.Skipf("later")       // want forbidigo
	time.Sleep(time.Hour)   // want forbidigo
	<-time.After(time.Hour) // allowed
	s.Skip(rand.Int())      // allowed
}
