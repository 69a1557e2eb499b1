package crd

// What is generated from apis/samplecrd/v1: the rest of the types' own package, the rest of a client, and the
// CustomResourceDefinition. "make generate" runs these lines, in this order.
// controller-gen also makes the apply configurations, because it gives them the types' schema. Without it, the fake
// client refuses the types.

//go:generate go tool -modfile=tools/go.mod deepcopy-gen --output-file zz_generated.deepcopy.go ./apis/samplecrd/v1
//go:generate go tool -modfile=tools/go.mod controller-gen applyconfiguration paths=./apis/...
//go:generate go tool -modfile=tools/go.mod client-gen --output-dir generated/clientset --output-pkg example.com/controllers/crd/generated/clientset --clientset-name versioned --apply-configuration-package example.com/controllers/crd/generated/applyconfiguration --input-base example.com/controllers/crd/apis --input samplecrd/v1
//go:generate go tool -modfile=tools/go.mod lister-gen --output-dir generated/listers --output-pkg example.com/controllers/crd/generated/listers ./apis/samplecrd/v1
//go:generate go tool -modfile=tools/go.mod informer-gen --output-dir generated/informers --output-pkg example.com/controllers/crd/generated/informers --versioned-clientset-package example.com/controllers/crd/generated/clientset/versioned --listers-package example.com/controllers/crd/generated/listers ./apis/samplecrd/v1
//go:generate go tool -modfile=tools/go.mod controller-gen crd:generateEmbeddedObjectMeta=false paths=./apis/... output:crd:dir=manifests
