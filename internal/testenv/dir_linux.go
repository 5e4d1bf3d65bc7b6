package testenv

import "syscall"

// hasRoom says whether a GiB is free in a folder.
func hasRoom(folder string) bool {
	var free syscall.Statfs_t
	return syscall.Statfs(folder, &free) == nil && free.Bavail*uint64(free.Bsize) >= 1<<30
}
