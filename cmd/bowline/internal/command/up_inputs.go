package command

import (
	"fmt"
	"sync"

	"github.com/bowline-mcp/bowline/mcpjson"
)

// inputs are the answers of the person who has started a gateway. A reload reads the file anew, maybe hours later, and must not ask again: nobody may
// sit at the terminal, and to read it in the background would stop the process.
type inputs struct {
	mu      sync.Mutex // held while somebody is asked
	answers map[string]string
}

// ask returns a function that asks once for each input. One that is described otherwise than before is another one.
func (i *inputs) ask(user func(mcpjson.Input) (string, error)) func(mcpjson.Input) (string, error) {
	return func(in mcpjson.Input) (string, error) {
		i.mu.Lock()
		defer i.mu.Unlock()
		key := fmt.Sprintf("%#v", in)
		if answer, ok := i.answers[key]; ok {
			return answer, nil
		}
		answer, err := user(in)
		if err == nil {
			if i.answers == nil {
				i.answers = make(map[string]string)
			}
			i.answers[key] = answer
		}
		return answer, err
	}
}
