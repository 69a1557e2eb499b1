package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SchemeGroupVersion is the group and the version of the types here.
var SchemeGroupVersion = schema.GroupVersion{Group: "samplecrd.k8s.io", Version: "v1"}

// Resource returns the group's resource of that name. The generated listers name it in their errors.
func Resource(name string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(name).GroupResource()
}

var (
	schemeBuilder = runtime.NewSchemeBuilder(func(scheme *runtime.Scheme) error {
		scheme.AddKnownTypes(SchemeGroupVersion, &Network{}, &NetworkList{})
		metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
		return nil
	})
	// AddToScheme teaches a scheme which kinds the types are. The generated clientset calls it.
	AddToScheme = schemeBuilder.AddToScheme
)
