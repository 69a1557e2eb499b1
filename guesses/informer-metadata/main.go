// Informer-metadata prints the kind of a ConfigMap in the cache of a metadata-only informer.
package main

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"example.com/controllers/guesses/internal/client"
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	resource := corev1.SchemeGroupVersion.WithResource("configmaps")
	metadataClient := metadata.NewForConfigOrDie(client.Config())
	factory := metadatainformer.NewFilteredSharedInformerFactory(metadataClient, 0, client.Namespace(), nil)
	informer := factory.ForResource(resource)
	factory.Start(ctx.Done())
	cache.WaitForCacheSync(ctx.Done(), informer.Informer().HasSynced)
	cached, err := informer.Lister().ByNamespace(client.Namespace()).Get("web")
	if err != nil {
		log.Fatal(err)
	}
	kind := cached.GetObjectKind().GroupVersionKind()
	fmt.Printf("%T: apiVersion %q, kind %q\n", cached, kind.GroupVersion(), kind.Kind)
}
