//go:build !linux

package torture

import "syscall"

// ofOurs keeps Ctrl-C from a program: that is for us. Only Linux ends it with us when we are killed; elsewhere a
// guard does, where there is one.
func ofOurs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
