package v1alpha1

// Condition types in status.ancestors[].conditions.
const (
	// PolicyConditionAccepted says whether the controller took the policy in.
	// A policy is taken whole or not at all; one that is not taken grants
	// nothing, and its targets are closed all the same.
	PolicyConditionAccepted = "Accepted"

	// PolicyConditionProgrammed says whether what was generated for the policy
	// is there and reported as enforced by its own controller. Upstream
	// proposes the condition in pull request 319; c7e4194 does not have it.
	PolicyConditionProgrammed = "Programmed"
)

// Reasons of the condition Accepted.
const (
	// PolicyReasonAccepted: the policy was taken. Status True.
	PolicyReasonAccepted = "Accepted"

	// PolicyReasonInvalid: a value contradicts another or cannot be read. Status
	// False.
	PolicyReasonInvalid = "Invalid"

	// PolicyReasonInvalidCEL: an expression does not compile, or the enforcer
	// could not run it. Status False.
	PolicyReasonInvalidCEL = "InvalidCEL"

	// PolicyReasonTargetNotFound: sectionName names no listener. Status False.
	PolicyReasonTargetNotFound = "TargetNotFound"

	// PolicyReasonUnsupportedAction: the action is one that this implementation
	// does not carry out. Status False.
	PolicyReasonUnsupportedAction = "UnsupportedAction"

	// PolicyReasonUnsupportedField: the policy uses a field, or a value of one,
	// that cannot be enforced exactly. Status False.
	PolicyReasonUnsupportedField = "UnsupportedField"

	// PolicyReasonLimitPerTargetExceeded is upstream's reason for a policy
	// beyond the number it allows per target. It is here so that readers of
	// other controllers' entries have its name; this implementation has no such
	// limit and never writes it.
	PolicyReasonLimitPerTargetExceeded = "LimitPerTargetExceeded"
)

// Reasons of the condition Programmed.
const (
	// PolicyReasonProgrammed: in force. Status True.
	PolicyReasonProgrammed = "Programmed"

	// PolicyReasonPending: written, and not yet reported as enforced. Status
	// False.
	PolicyReasonPending = "Pending"

	// PolicyReasonOverridden: another object takes precedence on every route of
	// the target. Status False.
	PolicyReasonOverridden = "Overridden"

	// PolicyReasonPartiallyOverridden: another object takes precedence on some
	// routes of the target. Status False.
	PolicyReasonPartiallyOverridden = "PartiallyOverridden"

	// PolicyReasonTooLarge: what would have to be generated exceeds a limit of
	// the enforcer. Status False.
	PolicyReasonTooLarge = "TooLarge"

	// PolicyReasonPartiallyProgrammed: some rules, or some listeners, could not
	// be served and grant nothing. Status False.
	PolicyReasonPartiallyProgrammed = "PartiallyProgrammed"

	// PolicyReasonWouldDisplace: writing would disable somebody else's object,
	// so only the denial was written. Status False.
	PolicyReasonWouldDisplace = "WouldDisplace"

	// PolicyReasonFilterOrder: Envoy might ask Authorino before the MCP router
	// has set its headers, so only the denial was written. Status False.
	PolicyReasonFilterOrder = "FilterOrder"

	// PolicyReasonInvalidAnnotation: an annotation on the Gateway has a value
	// that is not known; what was in force stays so. Status False.
	PolicyReasonInvalidAnnotation = "InvalidAnnotation"

	// PolicyReasonNoEnforcer: nothing in the cluster can enforce the policy on
	// this Gateway. Status False.
	PolicyReasonNoEnforcer = "NoEnforcer"
)
