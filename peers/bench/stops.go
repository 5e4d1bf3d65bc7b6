package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// serveSilent opens a session, and then neither reads nor writes. It
// ends after a minute, if it is not killed.
func serveSilent(in io.Reader, out io.Writer) error {
	requests := bufio.NewReader(in)
	for {
		line, err := requests.ReadBytes('\n')
		if err != nil {
			return err
		}
		var request struct {
			ID     json.RawMessage
			Method string
		}
		if err := json.Unmarshal(line, &request); err != nil {
			return err
		}
		if request.Method != "initialize" {
			break
		}
		fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":%q,"capabilities":{"tools":{}},`+
			`"serverInfo":{"name":"mute","version":"1"}}}`+"\n", request.ID, legacy)
	}
	rest(time.Minute)
	return nil
}

// rest waits: there is no event that says that a process is idle.
func rest(d time.Duration) { <-time.NewTimer(d).C }
