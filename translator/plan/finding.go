package plan

import "k8s.io/apimachinery/pkg/types"

// Severity says what a finding means for the user.
type Severity string

const (
	// Error says that something the policies grant is not in force, or not everywhere.
	Error Severity = "error"
	// Warning says that all is in force as written, and probably not as meant.
	Warning Severity = "warning"
	// Note is worth knowing.
	Note Severity = "note"
)

// Finding is something to tell the user, with its place in what the user wrote.
type Finding struct {
	Severity Severity
	// Origin is the policy, rule and field; zero where the finding is about the Gateway alone.
	Origin Origin
	// Gateway is zero where the finding does not depend on one.
	Gateway types.NamespacedName
	// Listeners are the listeners concerned; empty for all.
	Listeners []string
	// Enforcer is set where only that enforcer is concerned, for instance kuadrant.
	Enforcer string
	// Reason is a condition reason of api/v1alpha1 or another CamelCase word; Message is one sentence: cause, then cure.
	Reason, Message string
}
