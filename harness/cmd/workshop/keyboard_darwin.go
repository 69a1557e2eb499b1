package main

import "golang.org/x/sys/unix"

// flushInput drops what a terminal has received and nobody has read.
func flushInput(fd int) {
	const fread = 1                                        // FREAD of sys/fcntl.h: the queue of what was received
	_ = unix.IoctlSetPointerInt(fd, unix.TIOCFLUSH, fread) // it fails for what is no terminal
}
