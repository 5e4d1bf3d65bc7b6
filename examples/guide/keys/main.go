// Keys is an MCP server over HTTP that serves who has an API key.
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// keys are the users by the SHA-256 of their keys. A key that is long and random cannot
// be guessed from its hash, nor from the time that a search by hash takes.
type keys map[[sha256.Size]byte]string

// readKeys reads lines of a hash and a user.
func readKeys(r io.Reader) (keys, error) {
	all := keys{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		hash, user, _ := strings.Cut(lines.Text(), " ")
		raw, err := hex.DecodeString(hash)
		if err != nil || len(raw) != sha256.Size || user == "" {
			return nil, fmt.Errorf("%q is no hash and a user", lines.Text())
		}
		all[[sha256.Size]byte(raw)] = user
	}
	return all, lines.Err()
}

// check finds out whose key a request has.
func (k keys) check(r *http.Request) (streamable.Caller, *streamable.Denial) {
	key, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	user := k[sha256.Sum256([]byte(key))]
	if !found || user == "" {
		return nil, &streamable.Denial{Status: http.StatusUnauthorized, Header: http.Header{"Www-Authenticate": {"Bearer"}}, Text: "no key, or a wrong one"}
	}
	return streamable.NewCaller(user), nil
}

// whoami tells whose key this request had.
func whoami(ctx context.Context, _ struct{}) (string, error) {
	return server.RequestFrom(ctx).Origin.Identity, nil
}

func main() {
	address := flag.String("http", "127.0.0.1:8080", "serve on this `address`")
	path := flag.String("keys", "keys", "the `file` of hashes and users")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	file, err := os.Open(*path)
	if err != nil {
		log.Fatal(err)
	}
	known, err := readKeys(file)
	if err := file.Close(); err != nil {
		log.Print(err) // it was only read
	}
	if err != nil {
		log.Fatalf("%s: %v", *path, err)
	}
	s := server.New(protocol.Implementation{Name: "keys", Version: "1.0"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "whoami", Description: "Names the user."}, whoami)
	endpoint := streamable.NewHandler(s, streamable.HandlerOptions{Check: known.check})
	mux := http.NewServeMux()
	mux.Handle("/mcp", endpoint)
	if err := endpoint.ListenAndServe(ctx, &http.Server{Addr: *address, Handler: mux}); err != nil {
		log.Fatal(err)
	}
}
