// Generate writes the methods that each type with unknown members, or with a list that has a
// limit, needs in package protocol for encoding/json and for go-json-experiment, and the
// decoders and encoders of its messages. Package protocol says in encoding_json.go and in
// codec.go why it needs them.
//
//	go generate ./protocol
//
// It runs in the folder of that package. A limit of a list is a tag of its field:
// most:"MaxParts icons" refuses more than MaxParts elements, with "icons" in the error.
package main

import (
	"fmt"
	"os"
)

// outputs are the generated files.
var outputs = map[string]func(*source) ([]byte, error){methodsOutput: generateMethods, codecOutput: generateCodec}

func main() {
	if err := generate("."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func generate(dir string) error {
	s, err := load(dir)
	if err != nil {
		return err
	}
	for name, output := range outputs {
		text, err := output(s)
		if err != nil {
			return err
		}
		if err := os.WriteFile(name, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}
