package main

import "golang.org/x/sys/unix"

// flushInput drops what a terminal has received and nobody has read.
func flushInput(fd int) { _ = unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIFLUSH) } // it fails for what is no terminal
