package secretsync

import (
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// deletesFirst is a queue in which the keys of copies to delete go ahead of all others. A key may become urgent while it is in
// the queue: when a source is deleted in the middle of a fan-out, the event handler adds the keys of all its copies again, and
// those that are in the queue already move to the front.
//
// workqueue calls the methods one at a time. It never pushes a key that is in the queue already; it calls Touch instead.
type deletesFirst struct {
	isUrgent func(cache.ObjectName) bool
	urgent   []cache.ObjectName
	// other holds the keys that were not urgent when they were added. One that is not in waiting has moved to urgent.
	other   []cache.ObjectName
	waiting map[cache.ObjectName]bool // the keys of other that have not moved
}

func newDeletesFirst(isUrgent func(cache.ObjectName) bool) *deletesFirst {
	return &deletesFirst{isUrgent: isUrgent, waiting: map[cache.ObjectName]bool{}}
}

// Push adds a key.
func (q *deletesFirst) Push(key cache.ObjectName) {
	if q.isUrgent(key) {
		q.urgent = append(q.urgent, key)
		return
	}
	q.other = append(q.other, key)
	q.waiting[key] = true
}

// Touch moves a key that waits to the front if it has become urgent.
func (q *deletesFirst) Touch(key cache.ObjectName) {
	if q.waiting[key] && q.isUrgent(key) {
		delete(q.waiting, key)
		q.urgent = append(q.urgent, key)
	}
}

// Len returns how many keys wait.
func (q *deletesFirst) Len() int { return len(q.urgent) + len(q.waiting) }

// Pop returns the first urgent key or, if there is none, the first of the others.
func (q *deletesFirst) Pop() (key cache.ObjectName) {
	if len(q.urgent) > 0 {
		key, q.urgent = q.urgent[0], q.urgent[1:]
		return key
	}
	for {
		key, q.other = q.other[0], q.other[1:]
		if q.waiting[key] {
			delete(q.waiting, key)
			return key
		}
	}
}

// newQueue returns a queue of copies in which those that isUrgent selects go first.
func newQueue(options Options, isUrgent func(cache.ObjectName) bool) workqueue.TypedRateLimitingInterface[cache.ObjectName] {
	const name = "copies" // in the metrics of the queue
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](options.Backoff, options.MaxBackoff),
		workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[cache.ObjectName]{
				Name:  name,
				Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[cache.ObjectName]{Name: name, Queue: newDeletesFirst(isUrgent)}),
			}),
		})
}

// isDelete reports whether the copy at a key is to be deleted. The queue calls it for each key that is added.
func (c *Controller) isDelete(key cache.ObjectName) bool {
	if metadataAt(c.copies.GetStore(), key.String()) == nil {
		return false
	}
	_, decision, ok := c.decide(key)
	return ok && decision.Action == Delete
}
