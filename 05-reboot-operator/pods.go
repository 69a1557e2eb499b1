package reboot

import (
	"example.com/controllers/reboot/drain"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// blocking returns the Pods that block reboots while they run.
func (c *Controller) blocking() (blocking []*corev1.Pod) {
	for _, lister := range c.blockers {
		pods, _ := lister.List(labels.Everything()) // a lister's cache cannot fail
		blocking = append(blocking, pods...)
	}
	return blocking
}

// running returns the names of the Nodes whose agents are running; nil if that is not checked.
func (c *Controller) running() map[string]bool {
	if c.agents == nil {
		return nil
	}
	pods, _ := c.agents.List(labels.Everything())
	return drain.Running(pods)
}
