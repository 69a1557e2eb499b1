package crd

// "make generate" runs these commands in this order. They generate, from the types in apis/samplecrd/v1, their deep
// copies, apply configurations, a clientset, listers, informers, and the CustomResourceDefinition.
// The apply configurations come from controller-gen because it includes the types' schema, which the fake clientset needs.

//go:generate go tool -modfile=tools/go.mod deepcopy-gen --output-file zz_generated.deepcopy.go ./apis/samplecrd/v1
//go:generate go tool -modfile=tools/go.mod controller-gen applyconfiguration paths=./apis/...
//go:generate go tool -modfile=tools/go.mod client-gen --output-dir generated/clientset --output-pkg example.com/controllers/crd/generated/clientset --clientset-name versioned --apply-configuration-package example.com/controllers/crd/generated/applyconfiguration --input-base example.com/controllers/crd/apis --input samplecrd/v1
//go:generate go tool -modfile=tools/go.mod lister-gen --output-dir generated/listers --output-pkg example.com/controllers/crd/generated/listers ./apis/samplecrd/v1
//go:generate go tool -modfile=tools/go.mod informer-gen --output-dir generated/informers --output-pkg example.com/controllers/crd/generated/informers --versioned-clientset-package example.com/controllers/crd/generated/clientset/versioned --listers-package example.com/controllers/crd/generated/listers ./apis/samplecrd/v1
//go:generate go tool -modfile=tools/go.mod controller-gen crd:generateEmbeddedObjectMeta=false paths=./apis/... output:crd:dir=manifests
