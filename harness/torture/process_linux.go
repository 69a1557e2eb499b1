package torture

import "syscall"

// childAttributes makes the kernel kill a child when this process ends, however that happens.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
