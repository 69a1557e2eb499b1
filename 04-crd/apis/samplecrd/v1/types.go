package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Network is a network with one subnet in an OpenStack cloud.
//
// A description in the cloud has at most 255 characters, and a namespace at most 63. So 172 are left for the name. A name cannot be
// changed, so a Network that is older than this rule must pass. The controller shortens its description.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=net,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=unapproved, an example for learners"
// +kubebuilder:printcolumn:name="CIDR",type=string,JSONPath=`.spec.cidr`
// +kubebuilder:printcolumn:name="Gateway",type=string,JSONPath=`.spec.gateway`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || size(self.metadata.name) <= 172",optionalOldSelf=true,reason=FieldValueInvalid,message="metadata.name must not be longer than 172 characters, or it would not fit into the description of the network in the cloud"
type Network struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The desired state of the network.
	//
	// +required
	Spec NetworkSpec `json:"spec"`

	// The observed state of the network. Only the controller writes it.
	//
	// +optional
	Status NetworkStatus `json:"status,omitempty"`
}

// NetworkSpec is the desired state of a Network.
//
// In a subnet's last address, all bits after the prefix are one. The last rule looks for a zero among those bits, octet
// by octet; end is the number of the bit at which an octet ends.
//
// +kubebuilder:validation:XValidation:fieldPath=".gateway",reason=FieldValueInvalid,rule="!isCIDR(self.cidr) || !isIP(self.gateway) || cidr(self.cidr).containsIP(self.gateway)",message="must be an address inside spec.cidr"
// +kubebuilder:validation:XValidation:fieldPath=".gateway",reason=FieldValueInvalid,rule="!isCIDR(self.cidr) || self.gateway != string(cidr(self.cidr).masked().ip())",message="must not be the first address of spec.cidr, which identifies the network itself"
// +kubebuilder:validation:XValidation:fieldPath=".gateway",reason=FieldValueInvalid,rule="!isCIDR(self.cidr) || !isIP(self.gateway) || ip(self.gateway).family() != 4 || !cidr(self.cidr).containsIP(self.gateway) || [8, 16, 24, 32].exists(end, (int(self.gateway.split('.')[end / 8 - 1]) + 1) % [1, 2, 4, 8, 16, 32, 64, 128, 256][end - cidr(self.cidr).prefixLength() < 0 ? 0 : end - cidr(self.cidr).prefixLength() > 8 ? 8 : end - cidr(self.cidr).prefixLength()] != 0)",message="must not be the last address of spec.cidr, which is the broadcast address"
type NetworkSpec struct {
	// The address range of the subnet in CIDR notation, such as 192.168.0.0/16. Immutable.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",reason=FieldValueInvalid,message="must be a CIDR, such as 192.168.0.0/16"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || string(cidr(self).masked()) == self",reason=FieldValueInvalid,message="must be in canonical form: no bits set after the prefix, lower case, no redundant zeros"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self).prefixLength() <= (cidr(self).ip().family() == 4 ? 30 : 126)",reason=FieldValueInvalid,message="is too small for a gateway and ports; the longest prefixes are /30 in IPv4 and /126 in IPv6"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || !cidr('224.0.0.0/4').containsCIDR(self) && !cidr('ff00::/8').containsCIDR(self)",reason=FieldValueInvalid,message="must not be a range of multicast addresses"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || !cidr('127.0.0.0/8').containsCIDR(self)",reason=FieldValueInvalid,message="must not be a range of loopback addresses, which do not leave a machine"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('0.0.0.0/') && self != '::/0'",reason=FieldValueInvalid,message="must not begin with 0.0.0.0, nor be all of IPv6"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",reason=FieldValueForbidden,message="is immutable; delete the Network and create another one"
	CIDR string `json:"cidr"`

	// The address of the subnet's gateway, such as 192.168.0.1. It must be inside the CIDR, and not its first or
	// last address.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self)",reason=FieldValueInvalid,message="must be an IP address, such as 192.168.0.1"
	// +kubebuilder:validation:XValidation:rule="!isIP(self) || ip.isCanonical(self)",reason=FieldValueInvalid,message="must be in canonical form: lower case, no redundant zeros"
	Gateway string `json:"gateway"`
}

// ConditionReady is the type of the condition that says whether the network in the cloud matches the spec.
const ConditionReady = "Ready"

// Reasons of the Ready condition.
const (
	ReasonReady         = "Ready"
	ReasonUnavailable   = "BackendUnavailable" // calls to the cloud fail; likely to resolve itself
	ReasonRefused       = "Refused"            // the cloud rejects the request
	ReasonQuotaExceeded = "QuotaExceeded"      // the project's quota is used up
	ReasonInUse         = "InUse"              // something in the cloud still uses what is to be changed or deleted
	ReasonDisabled      = "Disabled"           // somebody has switched the network off in the cloud
)

// NetworkStatus is the observed state of a Network.
type NetworkStatus struct {
	// The metadata.generation of the Network that this status is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// The ID of the network in the cloud.
	//
	// +optional
	NetworkID string `json:"networkID,omitempty"`

	// The ID of the subnet in the cloud.
	//
	// +optional
	SubnetID string `json:"subnetID,omitempty"`

	// The only condition type is "Ready". Its reasons are Ready, BackendUnavailable, Refused, QuotaExceeded, InUse
	// and Disabled.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NetworkList is a list of Networks.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type NetworkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Network `json:"items"`
}
