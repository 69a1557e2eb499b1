// Program standin does nothing until it is told to stop. It runs in Pods in place of images that need not be pulled,
// because nothing depends on what they do.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	<-stop
}
