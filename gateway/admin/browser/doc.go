// Package browser tests the page of a gateway in Chromium: what a person sees there, presses and waits for. It is a module of its own, so that
// nobody else needs the program that drives the browser.
//
// The tests are behind a tag, and need chromium on the path:
//
//	go test -tags browser -count=1 .
//	go test -tags browser -count=1 -run Pictures . -args -update    # draws the pictures of docs/guide again
//
// Each test has a browser of its own. The gateway and its doors run on goroutines of the test, which waits for them; the servers are processes
// of this program.
package browser
