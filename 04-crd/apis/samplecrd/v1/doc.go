// Package v1 is version v1 of the API group samplecrd.k8s.io.
//
// Its types are data: what a person asks for, and what the controller says of it. The rest of what a client
// needs is generated from them by "make generate".
//
// +k8s:deepcopy-gen=package
// +groupName=samplecrd.k8s.io
// +kubebuilder:ac:generate=true
// +kubebuilder:ac:output:package=../../../generated/applyconfiguration
package v1
