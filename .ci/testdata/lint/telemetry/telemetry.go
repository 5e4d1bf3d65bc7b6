package telemetry

import (
	_ "example.test/lint/helpers" // want depguard
	_ "os"
)
