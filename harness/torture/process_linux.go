package torture

import "syscall"

// ofOurs has a program end with us, however we end.
func ofOurs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
