//go:build !linux

package torture

import "syscall"

// childAttributes puts a child into a process group of its own, as Ctrl-C is for us. Unlike on Linux, the kernel does not
// kill it when this process is killed; a guard does, if there is one.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
