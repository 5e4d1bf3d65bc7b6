//go:build unix

package stdio

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// leaveGroup joins the group of the test, reports when it gets SIGTERM, and does not end.
func leaveGroup() {
	conn := dialTest()
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	group, err := syscall.Getpgid(os.Getppid())
	if err == nil {
		err = syscall.Setpgid(0, group)
	}
	if err != nil {
		panic(err)
	}
	fmt.Println(`"ready"`)
	for range asked {
		fmt.Fprintln(conn, "asked")
	}
}
