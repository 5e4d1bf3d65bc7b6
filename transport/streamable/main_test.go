package streamable

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	runSessionsChild()
	goleak.VerifyTestMain(m)
}
