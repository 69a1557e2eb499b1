// Package informers is client-go's package informers without the groups that no exercise uses. The proof compiles the
// exercises with it: of each package that names client-go's SharedInformerFactory, the Go compiler takes most of its time
// for the generic methods of the informers of all resources.
package informers

import (
	"context"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/apps"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// SharedInformerFactory has those methods of client-go's that the exercises use.
type SharedInformerFactory interface {
	StartWithContext(ctx context.Context)
	WaitForCacheSyncWithContext(ctx context.Context) cache.SyncResult
	Shutdown()

	Apps() apps.Interface
	Core() core.Interface
}

// SharedInformerOption makes an option of client-go's, whose type callers must not see: it names client-go's factory.
type SharedInformerOption func() any

// NewSharedInformerFactory returns client-go's.
func NewSharedInformerFactory(client kubernetes.Interface, defaultResync time.Duration) SharedInformerFactory {
	return NewSharedInformerFactoryWithOptions(client, defaultResync)
}

// NewSharedInformerFactoryWithOptions returns client-go's.
//
//go:noinline
func NewSharedInformerFactoryWithOptions(client kubernetes.Interface, defaultResync time.Duration, options ...SharedInformerOption) SharedInformerFactory {
	all := make([]informers.SharedInformerOption, len(options))
	for i, option := range options {
		all[i] = option().(informers.SharedInformerOption)
	}
	return informers.NewSharedInformerFactoryWithOptions(client, defaultResync, all...)
}

// WithNamespace limits informers to a namespace.
//
//go:noinline
func WithNamespace(namespace string) SharedInformerOption {
	return func() any { return informers.WithNamespace(namespace) }
}

// WithTweakListOptions edits the options of each list and watch.
//
//go:noinline
func WithTweakListOptions(tweak internalinterfaces.TweakListOptionsFunc) SharedInformerOption {
	return func() any { return informers.WithTweakListOptions(tweak) }
}
