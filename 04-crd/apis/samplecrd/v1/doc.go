// Package v1 is version v1 of the API group samplecrd.k8s.io.
//
// The types are written by hand. "make generate" generates from them what else a client needs.
//
// +k8s:deepcopy-gen=package
// +groupName=samplecrd.k8s.io
// +kubebuilder:ac:generate=true
// +kubebuilder:ac:output:package=../../../generated/applyconfiguration
package v1
