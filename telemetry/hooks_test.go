package telemetry_test

import (
	"reflect"
	"testing"

	"github.com/bowline-mcp/bowline/telemetry"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hooksWith returns hooks each of which counts its calls.
func hooksWith(calls *int) telemetry.Hooks {
	var h telemetry.Hooks
	value := reflect.ValueOf(&h).Elem()
	for i := range value.NumField() {
		hook := value.Field(i)
		hook.Set(reflect.MakeFunc(hook.Type(), func([]reflect.Value) []reflect.Value {
			*calls++
			return nil
		}))
	}
	return h
}

// callAll calls every hook once, and returns how many there are.
func callAll(h telemetry.Hooks) int {
	value := reflect.ValueOf(h)
	for i := range value.NumField() {
		hook := value.Field(i)
		hook.Call([]reflect.Value{reflect.Zero(hook.Type().In(0))})
	}
	return value.NumField()
}

func TestDefaultsAreNeverNil(t *testing.T) {
	callAll(telemetry.Hooks{}.WithDefaults()) // a nil hook would panic
}

func TestTeeTellsEachOfThem(t *testing.T) {
	var first, second int
	all := callAll(telemetry.Tee(hooksWith(&first), telemetry.Hooks{}, hooksWith(&second)))
	if first != all || second != all {
		t.Errorf("of %d hooks the first was told %d, the second %d", all, first, second)
	}
}

func TestTeeLeavesItsArgumentsAlone(t *testing.T) {
	hooks := []telemetry.Hooks{{}, {}}
	telemetry.Tee(hooks...)
	if hooks[0].Transition != nil {
		t.Error("the caller's slice was changed")
	}
}
