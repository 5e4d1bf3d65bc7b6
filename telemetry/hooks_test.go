package telemetry_test

import (
	"context"
	"reflect"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hooksWith returns hooks each of which counts its calls.
func hooksWith(calls *int) telemetry.Hooks {
	var h telemetry.Hooks
	value := reflect.ValueOf(&h).Elem()
	for i := range value.NumField() {
		hook := value.Field(i)
		hook.Set(reflect.MakeFunc(hook.Type(), func(args []reflect.Value) []reflect.Value {
			*calls++
			return args[:hook.Type().NumOut()] // a context is given back
		}))
	}
	return h
}

// callAll calls every hook that is there once, and returns the names of the
// others.
func callAll(h telemetry.Hooks) (absent []string) {
	value := reflect.ValueOf(h)
	for i := range value.NumField() {
		hook := value.Field(i)
		if hook.IsNil() {
			absent = append(absent, value.Type().Field(i).Name)
			continue
		}
		var args []reflect.Value
		for n := range hook.Type().NumIn() {
			args = append(args, reflect.Zero(hook.Type().In(n)))
		}
		hook.Call(args)
	}
	return absent
}

// all is how many hooks there are.
func all() int { return reflect.TypeFor[telemetry.Hooks]().NumField() }

func TestTeeTellsEachOfThem(t *testing.T) {
	var first, second int
	absent := callAll(telemetry.Tee(hooksWith(&first), telemetry.Hooks{}, hooksWith(&second)))
	if first != all() || second != all() || absent != nil {
		t.Errorf("of %d hooks the first was told %d, the second %d, absent are %q", all(), first, second, absent)
	}
}

// Guarantees: G-0024.2
func TestTeeOfNothingIsNothing(t *testing.T) {
	if absent := callAll(telemetry.Tee(telemetry.Hooks{}, telemetry.Hooks{})); len(absent) != all() {
		t.Errorf("absent are %q only", absent)
	}
}

// A hook that only one of them sets is called without a detour.
func TestTeeOfOneIsThatOne(t *testing.T) {
	one := telemetry.Hooks{RequestStopped: func(context.Context, telemetry.RequestStopped) {}, Missed: func(telemetry.Missed) {}}
	tee := telemetry.Tee(telemetry.Hooks{}, one)
	same := func(a, b any) bool { return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() }
	if !same(tee.RequestStopped, one.RequestStopped) || !same(tee.Missed, one.Missed) {
		t.Error("the hooks are others")
	}
}

type key string

// A tracer finds the span that it has put into the context, also next to
// another one, and next to one that derives no context.
//
// Guarantees: G-0024.3
func TestTeeChainsTheContextOfARequest(t *testing.T) {
	var told []any
	tracer := func(name key) telemetry.Hooks {
		note := func(ctx context.Context) { told = append(told, ctx.Value(name)) }
		return telemetry.Hooks{
			RequestStarted: func(ctx context.Context, e telemetry.RequestStarted) context.Context {
				return context.WithValue(ctx, name, string(name)+" of "+e.Method)
			},
			Retried:        func(ctx context.Context, _ telemetry.Retried) { note(ctx) },
			RequestStopped: func(ctx context.Context, _ telemetry.RequestStopped) { note(ctx) },
		}
	}
	careless := telemetry.Hooks{RequestStarted: func(context.Context, telemetry.RequestStarted) context.Context { return nil }}
	hooks := telemetry.Tee(tracer("a"), careless, tracer("b"))

	ctx := hooks.RequestStarted(t.Context(), telemetry.RequestStarted{Method: "ping"})
	hooks.Retried(ctx, telemetry.Retried{})
	hooks.RequestStopped(ctx, telemetry.RequestStopped{})
	if want := []any{"a of ping", "b of ping", "a of ping", "b of ping"}; !slices.Equal(told, want) {
		t.Errorf("they found %q, want %q", told, want)
	}
}

func TestTeeLeavesItsArgumentsAlone(t *testing.T) {
	hooks := []telemetry.Hooks{{}, {}}
	telemetry.Tee(hooks...)
	if hooks[0].Transition != nil {
		t.Error("the caller's slice was changed")
	}
}

// guarded calls as a connection does.
func guarded(f func()) { defer func() { recover() }(); f() }

// A sink that panics takes nothing from the others.
//
// Guarantees: G-0024.1, G-0024.3
func TestTeeKeepsSinksApart(t *testing.T) {
	var told []string
	bad := telemetry.Hooks{
		RequestStarted: func(context.Context, telemetry.RequestStarted) context.Context { panic("bad") },
		RequestStopped: func(context.Context, telemetry.RequestStopped) { panic("bad") },
		Transition:     func(telemetry.Transition) { panic("bad") },
	}
	good := telemetry.Hooks{
		RequestStarted: func(ctx context.Context, _ telemetry.RequestStarted) context.Context {
			return context.WithValue(ctx, key("span"), "mine")
		},
		RequestStopped: func(ctx context.Context, _ telemetry.RequestStopped) {
			told = append(told, "stopped")
			if ctx.Value(key("span")) != "mine" {
				t.Error("the span is lost")
			}
		},
		Transition: func(telemetry.Transition) { told = append(told, "transition") },
	}
	for _, h := range []telemetry.Hooks{telemetry.Tee(bad, good), telemetry.Tee(good, bad)} {
		told = nil
		ctx := t.Context()
		guarded(func() { ctx = h.RequestStarted(t.Context(), telemetry.RequestStarted{}) })
		guarded(func() { h.RequestStopped(ctx, telemetry.RequestStopped{}) })
		guarded(func() { h.Transition(telemetry.Transition{}) })
		if len(told) != 2 {
			t.Errorf("the good sink was told %v", told)
		}
	}
}

// A hook of one kind stays one of that kind.
func TestTeeMistakesNoHookForAnother(t *testing.T) {
	for i := range all() {
		var calls int
		var one telemetry.Hooks
		reflect.ValueOf(&one).Elem().Field(i).Set(reflect.ValueOf(hooksWith(&calls)).Field(i))
		name := reflect.TypeOf(one).Field(i).Name
		for _, hooks := range [][]telemetry.Hooks{{one}, {one, one}} {
			tee := reflect.ValueOf(telemetry.Tee(hooks...))
			for other := range all() {
				if set := !tee.Field(other).IsNil(); set != (other == i) {
					t.Errorf("%s in %d of %d: %s is set: %t", name, len(hooks), len(hooks), tee.Type().Field(other).Name, set)
				}
			}
		}
	}
}
